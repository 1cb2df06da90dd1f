"""Running out of GPU memory: an error that names the tensor and its bytes; the session goes on with smaller inputs."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx.helper import make_node as node

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.device.webgpu import libraries
from onnxruntime_ep_wgpu.device.webgpu.header import address, ffi
from onnxruntime_ep_wgpu.device.webgpu.messages import errors
from tests import patience
from tests.support import make_model

from .loss import device_of

F = np.float32
SAYS = "Not enough memory left.\n"
if libraries.default_name() == "wgpu-native":
    SAYS = f"Validation Error\n\nCaused by:\n  {SAYS}"


class SmallDevice:
    """The functions of the library, with buffers of at most `most` bytes; above it says what it says when memory runs out. It
    says so for the next `refusals` buffers, too."""

    def __init__(self, lib: Any) -> None:
        self.most, self.refusals, self._lib = 1 << 62, 0, lib

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lib, name)

    def wgpuDeviceCreateBuffer(self, device: Any, descriptor: Any) -> Any:
        if descriptor.size > self.most or self.refusals:
            self.refusals = max(0, self.refusals - 1)
            errors.messages.append((address(device), SAYS))
            descriptor = ffi.new("WGPUBufferDescriptor *", {"size": 16, "usage": descriptor.usage})
        return self._lib.wgpuDeviceCreateBuffer(device, descriptor)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallDevice]:
    gc.collect()  # the device of an earlier test would have free buffers
    library = libraries.named(libraries.default_name())
    small = SmallDevice(library.lib)
    monkeypatch.setattr(library, "lib", small)  # of devices that are made from here on
    yield small
    small.most, small.refusals = 1 << 62, 0


def model(columns: int) -> bytes:
    """y = the sum of every row of softmax(x @ w); `x` has 4 columns, what lies between has `columns`."""
    nodes = [
        node("MatMul", ["x", "w"], ["hidden"], "wide"),
        node("Softmax", ["hidden"], ["soft"], "soft"),
        node("ReduceSum", ["soft"], ["y"], "sum"),
    ]
    return make_model(nodes, {"x": (F, ["n", 4])}, {"w": np.ones((4, columns), F)}).SerializeToString()


def test_an_intermediate_result_is_named_and_a_smaller_input_runs(memory: SmallDevice) -> None:
    session = webgpu_ep.session(model(500), deviceId=41)
    memory.most = 64 * 500 * 4
    with pytest.raises(
        webgpu_ep.OutOfMemoryError, match=r"'(hidden|soft)', \d{6} bytes: Not enough memory left.*smaller"
    ):
        session.run(None, {"x": np.ones((99, 4), F)})
    for rows in (8, 32):
        np.testing.assert_allclose(session.run(None, {"x": np.ones((rows, 4), F)})[0], [[rows]], rtol=1e-4)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("nodes", "name"),
    [([node("ReduceSum", ["x"], ["y"])], "a tensor"), ([node("Expand", ["x", "s"], ["y"])], "output 'y'")],
    ids=["input", "output"],
)
def test_inputs_and_outputs_are_told_with_their_bytes(memory: SmallDevice, nodes: list[Any], name: str) -> None:
    weights = {"s": np.array([100, 1, 1])} if name == "output 'y'" else {}
    session = webgpu_ep.session(make_model(nodes, {"x": (F, ["n", 4])}, weights).SerializeToString(), deviceId=41)
    rows = 10 if weights else 1000
    memory.most = 10_000
    with pytest.raises(webgpu_ep.OutOfMemoryError, match=f"for {name} of 16000 bytes"):
        session.run(None, {"x": np.ones((rows, 4), F)})
    session.run(None, {"x": np.ones((5, 4), F)})


def test_a_weight_that_does_not_fit_is_named_when_the_session_is_made(memory: SmallDevice) -> None:
    memory.most = 10_000
    with pytest.raises(webgpu_ep.OutOfMemoryError, match=r"the weight 'w', 16000 bytes"):
        webgpu_ep.session(model(1000), deviceId=41)
    found = webgpu_ep.session(model(10), deviceId=41).run(None, {"x": np.ones((1, 4), F)})[0]
    np.testing.assert_allclose(found, [[1]], rtol=1e-6)


def test_free_buffers_are_released_before_it_is_an_error(memory: SmallDevice) -> None:
    session = webgpu_ep.session(model(10), deviceId=41)
    device = device_of(41)
    cache, before = device.caches.storage, device.counters["buffer_bytes"]
    taken = [cache.take(1 << 20, "a test") for _ in range(3)]
    while taken:
        cache.give(taken.pop())
    assert device.counters["buffer_bytes"] >= before + (3 << 20)
    memory.refusals = 1
    kept = cache.take(5 << 20, "a test")
    assert cache.counters.held_buffers == 0 and kept.size >= 5 << 20
    assert device.counters["buffer_bytes"] <= before + kept.size
    memory.refusals = 1  # with nothing to release, at once
    with pytest.raises(webgpu_ep.OutOfMemoryError, match="a test"):
        cache.take(9 << 20, "a test")
    assert not memory.refusals
    np.testing.assert_allclose(session.run(None, {"x": np.ones((1, 4), F)})[0], [[1]], rtol=1e-6)


REAL = """
import resource, numpy as np, onnxruntime as ort, onnxruntime_ep_wgpu as webgpu_ep
from tests.plugin.test_out_of_memory import model
options = ort.SessionOptions()
options.log_severity_level = 4
session = webgpu_ep.session(model(1 << 15), sess_options=options)
def run(rows): return float(session.run(None, {"x": np.ones((rows, 4), np.float32)})[0].sum())
print(round(run(8)))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (96 << 20),) * 2)
try:
    run(1000)
except webgpu_ep.OutOfMemoryError as error:
    print(error)
print(round(run(8)))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the address space the way Linux does")
def test_a_driver_that_really_has_no_memory_left_is_survived() -> None:
    """The software adapter's memory is the process's: it ends at a limit for the process."""
    if not webgpu_ep.devices()[0].ep_metadata.get("software"):
        pytest.skip("the adapter has memory of its own")
    done = patience.run([sys.executable, "-c", REAL])
    before, message, after = done.stdout.strip().split("\n")
    assert (done.returncode, before, after) == (0, "8", "8")
    assert "no memory for the intermediate result 'hidden', 134217728 bytes: Not enough memory left" in message
