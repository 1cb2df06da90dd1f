"""The time of a process until its first result: with the cache off, empty and filled, with a compiled model, and on the CPU.

    python -m bench.first [MODEL ...] [--runs N] [--other SRC]

Each run is its own process, and the kinds take turns. Values are medians in milliseconds:

- `wall`: from the start of the process to the first result
- `session`: the session's creation within it
- `cpu`: the CPU time of all threads
- `thread`: the CPU time of the main thread

The kinds of processes:

- `off`, `empty` and `filled` are states of this package's cache. All but `cold` use the graphics driver's cache.
- `cold` has no cache at all, including those of the drivers (Mesa and NVIDIA).
- `cpu` is ONNX Runtime's CPU provider without this package.
- `context` is the compiled model (docs/context.md). The cache only has the record that it is the user's own.
- `other` is another version of this package, from the folder `--other`, with its cache off.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tests import zoo

SCRIPT = """
import json, sys, time
import numpy as np
import onnxruntime_ep_wgpu as webgpu_ep
before = time.time()
session = webgpu_ep.session(sys.argv[1])
made = time.time()
session.run(None, dict(np.load(sys.argv[2])))
done = time.time()
began = float(sys.argv[3])
loaded = sum(name.startswith("onnxruntime_ep_wgpu.compiler") for name in sys.modules)
print(json.dumps({"wall": done - began, "session": made - before, "run": done - made, "thread": time.thread_time(),
    "cpu": time.process_time(), "compiler": loaded / 1e3}))
"""

ON_CPU = """
import json, sys, time
import numpy as np
import onnxruntime as ort
before = time.time()
session = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
made = time.time()
session.run(None, dict(np.load(sys.argv[2])))
done = time.time()
print(json.dumps({"wall": done - float(sys.argv[3]), "session": made - before, "run": done - made,
    "thread": time.thread_time(), "cpu": time.process_time(), "compiler": 0}))
"""

COMPILE = """
import sys
import onnxruntime as ort, onnxruntime_ep_wgpu as webgpu_ep
options = ort.SessionOptions()
options.add_session_config_entry("ep.context_enable", "1")
webgpu_ep.session(sys.argv[1], sess_options=options)
"""


def compiled(model: Path, folder: str, cache: str) -> Path:
    """Returns the compiled model of a copy of a model and its external data. The cache records that the user made it."""
    for it in model.parent.glob(f"{model.stem}*"):
        shutil.copy(it, folder)
    path = Path(folder) / model.name
    subprocess.run([sys.executable, "-c", COMPILE, str(path)], check=True, env=os.environ | {"WGPU_EP_CACHE": cache})
    return path.with_name(f"{path.stem}_ctx.onnx")


def once(
    model: Path, inputs: Path, cache: str, source: str, script: str = SCRIPT, driver: str = ""
) -> dict[str, float]:
    """Runs one process. Returns times in milliseconds, and the number of loaded modules of the compiler.

    `driver` is a folder for the driver's cache, instead of the user's."""
    path = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"WGPU_EP_CACHE": cache, "PYTHONPATH": path}
    if driver:
        environment |= {"MESA_SHADER_CACHE_DIR": driver, "__GL_SHADER_DISK_CACHE_PATH": driver}
    command = [sys.executable, "-c", script, str(model), str(inputs), str(time.time())]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return {name: 1e3 * value for name, value in json.loads(done.stdout.splitlines()[-1]).items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.first", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", default=["minilm", "resnet_f32"], metavar="MODEL", help="of tests/zoo")
    parser.add_argument("--runs", type=int, default=9, metavar="N", help="processes of each kind (9)")
    parser.add_argument("--other", metavar="SRC", help="folder of another version of the package")
    given = parser.parse_args()
    own = str(Path(__file__).parents[1] / "src")
    for name in given.models:
        case = zoo.load(name)
        with tempfile.TemporaryDirectory() as folder:
            np.savez(inputs := Path(folder) / "inputs.npz", **case.inputs(0))
            filled = os.path.join(folder, "filled")
            once(case.path, inputs, filled, own)  # fills the driver's cache too
            context = compiled(case.path, folder, filled)
            rows: dict[str, list[dict[str, float]]] = {}
            for number in range(given.runs):
                ways = {
                    "off": (case.path, "off", own),
                    "empty": (case.path, os.path.join(folder, str(number)), own),
                    "filled": (case.path, filled, own),
                    "context": (context, filled, own),
                }
                if given.other:
                    ways["other"] = (case.path, "off", given.other)
                for way, (model, cache, source) in ways.items():
                    rows.setdefault(way, []).append(once(model, inputs, cache, source))
                with tempfile.TemporaryDirectory() as driver:
                    rows.setdefault("cold", []).append(once(case.path, inputs, "off", own, driver=driver))
                rows.setdefault("cpu", []).append(once(case.path, inputs, "off", own, ON_CPU))
        for way, found in rows.items():
            middle = {key: statistics.median(row[key] for row in found) for key in found[0]}
            print(f"{name:16s} {way:7s}", *(f"{key} {value:7.0f}" for key, value in middle.items()), flush=True)


if __name__ == "__main__":
    main()
