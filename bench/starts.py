"""The time from the start of a process to its first result, by provider: `python -m bench.starts DIR`.

DIR has models with inputs beside them (`NAME.onnx`, `NAME.npz`), as from `bench.real_sizes export`. Each run is its own
process, and providers take turns. Printed are medians in milliseconds with the interquartile range: `session` is the session's
creation, and `result` is from the start of the process to the first result. `warm` runs find the caches of the provider and of
the driver from the run before. `cold` runs have new folders for this package's cache and for those of Mesa and NVIDIA.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from onnxruntime_ep_wgpu.tools._output import show_table
from tests import provider

PARTS = ("session", "result")
Times = dict[str, list[float]]

# Processes import only what a program needs.
READ = "import sys, json, time\nimport numpy as np\narrays = np.load(sys.argv[2])\n"
RUN = """
made = time.time()
feeds = {it.name: arrays[key] for it, key in zip(session.get_inputs(), arrays.files, strict=True)}
session.run(None, feeds)
print(json.dumps({"session": made - before, "result": time.time() - float(sys.argv[3])}))
"""
SCRIPTS = {
    "ours": READ + """
import onnxruntime_ep_wgpu as webgpu_ep
before = time.time()
session = webgpu_ep.session(sys.argv[1])
""" + RUN,
    "official": READ + """
import onnxruntime as ort, onnxruntime_ep_webgpu as webgpu_ep
ort.register_execution_provider_library("official", webgpu_ep.get_library_path())
options = ort.SessionOptions()
options.log_severity_level = 3
before = time.time()
options.add_provider_for_devices([it for it in ort.get_ep_devices() if it.ep_name == webgpu_ep.get_ep_name()][:1], {})
session = ort.InferenceSession(sys.argv[1], options)
""" + RUN,
    "cpu": READ + """
import onnxruntime as ort
before = time.time()
session = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
""" + RUN,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=9, metavar="N", help="processes of each kind, warm (9)")
    parser.add_argument("--cold", type=int, default=3, metavar="N", help="processes of each kind, cold (3)")
    parser.add_argument("--providers", default="ours,official,cpu", help="separated by commas")
    given = parser.parse_args()
    names = [it for it in given.providers.split(",") if provider.installed(it)]
    ratios: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(given.folder.glob("*.onnx")):
            for way, count in (("warm", given.runs), ("cold", given.cold)):
                shown = _measured(path, names, count, way == "cold", Path(folder))
                for part in PARTS if {"ours", "official"} <= set(shown) else ():
                    middle = {it: statistics.median(shown[it][part]) for it in ("ours", "official")}
                    ratios[f"{way} {part}"].append(middle["official"] / middle["ours"])
                rows = [
                    [path.stem, way, name, *(_spread(times[part]) for part in PARTS)] for name, times in shown.items()
                ]
                show_table(["model", "caches", "provider", *PARTS], rows)
                sys.stdout.flush()
    for name, found in ratios.items():
        mean = statistics.geometric_mean(found)
        print(
            f"{name}: official / ours {mean:.2f} in the geometric mean of {len(found)} models, {min(found):.2f} to {max(found):.2f}"
        )


def _measured(path: Path, names: list[str], count: int, cold: bool, folder: Path) -> dict[str, Times]:
    found: dict[str, Times] = {name: {part: [] for part in PARTS} for name in names}
    for number in range(count if cold else count + 1):
        for name in names:
            with tempfile.TemporaryDirectory(dir=folder) as new:
                own, driver = (Path(new), Path(new) / "driver") if cold else (folder / "own", folder / "driver")
                driver.mkdir(parents=True, exist_ok=True)
                caches = {
                    "WGPU_EP_CACHE": str(own),
                    "MESA_SHADER_CACHE_DIR": str(driver),
                    "__GL_SHADER_DISK_CACHE_PATH": str(driver),
                }
                row = _first(path, name, caches)
            if isinstance(row, str):
                print(f"{path.stem}: {name}: {row}", file=sys.stderr, flush=True)
                found.pop(name, None)
                names = [it for it in names if it != name]
                continue
            if cold or number:  # the first warm run fills the caches
                for part in PARTS:
                    found[name][part].append(row[part])
    return {name: times for name, times in found.items() if times["result"]}


def _spread(times: list[float]) -> str:
    low, middle, high = np.percentile(np.array(times) * 1e3, (25, 50, 75))
    return f"{middle:.0f} ({low:.0f} to {high:.0f})"


def _first(path: Path, name: str, caches: dict[str, str]) -> dict[str, float] | str:
    """Returns the seconds of one process, or the error."""
    command = [sys.executable, "-c", SCRIPTS[name], str(path), str(path.with_suffix(".npz")), str(time.time())]
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=False, env=os.environ | caches
    )
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
