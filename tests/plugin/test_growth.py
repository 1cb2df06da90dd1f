"""What runs leave behind, in a process of its own: what else a process of tests does changes what it holds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import zoo

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import gc, sys
from pathlib import Path
import numpy as np
from tests import provider

rng = np.random.default_rng(0)
session = provider.open_session(sys.argv[1])

def runs(count):
    for _ in range(count):
        batch, height, width = rng.integers(1, 4), rng.integers(8, 40), rng.integers(8, 40)
        session.run(None, {"x": rng.random((batch, 3, height, width), np.float32)})
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    print(provider.counters()["buffer_bytes"], resident)

session.run(None, {"x": np.zeros((4, 3, 40, 40), np.float32)})
runs(1600)  # by then the buffers of kept plans have the sizes that they go on with
runs(1000)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the resident size is read from /proc")
def test_a_thousand_runs_of_changing_shapes_leave_memory_flat() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(zoo.load("tiny").path)],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (device, host), (device_then, host_then) = ([int(it) for it in line.split()] for line in done.stdout.splitlines())
    assert device_then <= 1.1 * device
    assert host_then - host < 8 << 20
