"""Node with the web runtime: where it is, and programs run there on numpy arrays."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onnxruntime_ep_wgpu.program import file as program_file
from onnxruntime_ep_wgpu.program.dtypes import packed, unpacked
from onnxruntime_ep_wgpu.program.program import Program
from tests import patience

WEB = Path(__file__).parents[2] / "web"


def missing() -> str | None:
    """Why the web runtime cannot be tested here; None when it can."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        return "npm is not installed: the web runtime is not tested"
    wanted = json.loads((WEB / "package.json").read_text())["devDependencies"]
    lacking = [name for name in wanted if not (WEB / "node_modules" / name).exists()]
    if lacking:
        return f"web/node_modules lacks {', '.join(lacking)}: run `scripts/setup test`, or `npm ci` in web/"
    return None


def chromium() -> str | None:
    """The browser that the tests drive; None where there is none."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def no_browser() -> str | None:
    """Why nothing can be tested in a browser here; None when it can."""
    return None if chromium() else "Chromium is not installed: on Debian, apt-get install chromium"


def node(*arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs Node in web/; variables of its environment are given by name."""
    return patience.run(["node", *map(str, arguments)], cwd=WEB, env=os.environ | env)


def check(file: str, everything: bool = False, **env: str) -> None:
    """Runs tests of web/test, in as few variants as say something or in `everything`; what fails is shown."""
    env |= {"WGPU_WEB_PATIENCE": str(patience.SECONDS), "CHROMIUM": chromium() or ""}
    # What exports models here is this checkout.
    env |= {"WGPU_EP_PYTHON": sys.executable, "PYTHONPATH": patience.here()["PYTHONPATH"]}
    # Threads of the adapter would keep the process.
    done = node(
        "--test", "--test-force-exit", f"test/{file}", **env, **({"WGPU_WEB_EVERYTHING": "1"} if everything else {})
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


def with_more(folder: str) -> list[str]:
    """The tests of a folder that have more variants than are run by default."""
    return sorted(path.name for path in (WEB / folder).glob("*.test.mjs") if "settings.mjs" in path.read_text())


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Keeps other processes of the test run from building at the same time."""
    with open(WEB / "node_modules" / ".building", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class Case:
    """A Program and arrays for its inputs; of so many `runs` the last one is looked at."""

    name: str
    program: Program
    inputs: tuple[Any, ...]
    runs: int = 1


def run(cases: list[Case], folder: Path) -> dict[str, list[Any] | str]:
    """What each case gives in Node, by name: arrays, or the error."""
    rows = []
    for case in cases:
        program_file.save(case.program, folder / f"{case.name}.wgpu")
        inputs = []
        for k, array in enumerate(case.inputs):
            path = folder / f"{case.name}.in{k}"
            path.write_bytes(packed(np.asarray(array)).tobytes())
            inputs.append({"file": str(path), "dims": list(np.shape(array))})
        rows.append(
            {
                "program": str(folder / f"{case.name}.wgpu"),
                "inputs": inputs,
                "output": str(folder / case.name),
                "runs": case.runs,
            }
        )
    listed = folder / "cases.json"
    listed.write_text(json.dumps(rows))
    done = node("test/run_cases.mjs", listed)
    out: dict[str, list[Any] | str] = {}
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    by_path = {str(folder / f"{case.name}.wgpu"): case for case in cases}
    for line in lines:
        if "start" in line:
            out[by_path[line["start"]].name] = f"the process ended: {done.stderr[-500:]}"
            continue
        case = by_path[line["program"]]
        if "error" in line:
            out[case.name] = line["error"]
            continue
        values = [case.program.values[v] for v in case.program.outputs]
        out[case.name] = [
            unpacked(np.fromfile(folder / f"{case.name}.{k}", np.uint8), value.dtype, tuple(found["dims"]))
            for k, (value, found) in enumerate(zip(values, line["outputs"], strict=True))
        ]
    for case in cases:
        out.setdefault(case.name, f"did not run: {done.stderr[-500:]}")
    return out
