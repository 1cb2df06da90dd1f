"""What runs leave behind, in a process of its own: what else a process of tests does changes what it holds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import patience, zoo

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

# Each session has a run ready when it ends, or when sizes go on otherwise than they did.
ENDS = """
import gc
from pathlib import Path
import numpy as np
import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.device import release_dead
from tests.plugin import models

weights = np.random.default_rng(0).standard_normal((1024, 4096)).astype(np.float32)  # 16 MiB
model = models.model(
    [models.node("MatMul", ["x", "w"], ["y"], "product")],
    [("x", models.FLOAT, ["n", 1024])],
    [("y", models.FLOAT, ["n", 4096])],
    [("w", weights)],
)
for _ in range(12):
    session = webgpu_ep.session(model)
    for rows in (*[1] * 8, 1, 2, 3, 4, 1, 2, 3, 4):
        session.run(None, {"x": np.ones((rows, 1024), np.float32)})
    del session
    gc.collect()
    release_dead()
    print(int(Path("/proc/self/statm").read_text().split()[1]) * 4096)
"""


def printed(program: str, *arguments: str) -> list[list[int]]:
    done = patience.run([sys.executable, "-c", program, *arguments], cwd=ROOT, env=patience.here())  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [[int(it) for it in line.split()] for line in done.stdout.splitlines()]


@pytest.mark.exhaustive
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the resident size is read from /proc")
def test_sessions_that_end_leave_no_memory_of_runs_that_were_expected() -> None:
    """Also in wgpu-native, which a count of our buffers does not show; on a software adapter that is memory of the process."""
    *_, (before,), _, _, _, _, _, _, (after,) = printed(ENDS)
    assert after - before < 32 << 20


@pytest.mark.exhaustive
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the resident size is read from /proc")
def test_a_thousand_runs_of_changing_shapes_leave_memory_flat() -> None:
    (device, host), (device_then, host_then) = printed(PROGRAM, str(zoo.load("tiny").path))
    assert device_then <= 1.1 * device
    assert host_then - host < 8 << 20
