"""Many threads share a device; a lost device is an error and never ends the process."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from onnxruntime_ep_wgpu.device import Device, adapters, open_device
from onnxruntime_ep_wgpu.device.webgpu.header import new
from onnxruntime_ep_wgpu.device.webgpu.messages import errors
from onnxruntime_ep_wgpu.errors import DeviceLostError
from tests import patience

from .conftest import ADD_ONE, ADD_ONE_BINDINGS, AddOne, get, put


def test_four_threads_upload_calculate_and_download_at_once(device: Device) -> None:
    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(50):
            x = random.random(int(random.integers(1, 5000)), np.float32)
            add = AddOne(device, x.size)
            result = device.buffer(x.nbytes)
            device.submit([add.dispatch(put(device, x), result)])
            assert np.array_equal(get(device, result, x), x + 1)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_four_threads_compile_one_kernel_once(device: Device) -> None:
    before = device.counters["pipelines"]
    wgsl = ADD_ONE + "// the kernel of four threads\n"
    start = threading.Barrier(4)

    def compile_it(_: int) -> object:
        start.wait()
        return device.pipeline(wgsl, ADD_ONE_BINDINGS, "shared")

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(compile_it, range(4)))) == 1
    assert device.counters["pipelines"] == before + 1


def test_other_threads_run_while_one_waits_for_the_gpu(device: Device) -> None:
    """A download waits without the interpreter lock and without the device lock."""
    slow = device.pipeline(
        "@group(0) @binding(0) var<storage, read_write> y: array<u32>;"
        "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3u) {"
        " var v = id.x; for (var i = 0u; i < 20000u; i++) { v = v * 1664525u + 1013904223u; } y[id.x] = v; }",
        ("read_write",),
        "slow",
    )
    y = device.buffer(4 * 64 * 1024)
    dispatch = (slow, device.bind_group(slow, [(y, 0, y.size)]), (128, 1, 1))

    def made_meanwhile(count: int) -> int:
        """How many buffers this thread makes while another one waits for so many dispatches."""
        begun, done = threading.Event(), threading.Event()

        def wait_for_it() -> None:
            device.submit([dispatch] * count)
            begun.set()
            device.download(y, 0, memoryview(bytearray(16)))
            done.set()

        thread = threading.Thread(target=wait_for_it)
        thread.start()
        begun.wait()
        made = 0
        while not done.is_set():
            device.buffer(16)
            made += not done.is_set()
        thread.join()
        return made

    # However fast the GPU is and however busy the processor: some amount of work leaves the time for it.
    assert any(made_meanwhile(2**k) > 10 for k in range(14))


def test_sessions_share_a_device_per_adapter_and_context() -> None:
    adapter = adapters()[0]
    assert open_device(adapter) is open_device(adapter)
    assert open_device(adapter, context=1) is not open_device(adapter)


def test_a_lost_device_raises_everywhere_and_is_replaced() -> None:
    adapter = adapters()[0]
    device = open_device(adapter, context=1001)
    x = np.arange(4, dtype=np.float32)
    add = AddOne(device, x.size)
    buffer = put(device, x)
    dispatch = add.dispatch(buffer, device.buffer(16))
    device.wait()
    device.queue.lib.wgpuDeviceDestroy(device.handle)
    for action in (
        lambda: device.submit([dispatch]),
        lambda: device.buffer(16),
        lambda: device.upload(buffer, 0, b"1234"),
        lambda: device.download(buffer, 0, memoryview(bytearray(4))),
        lambda: device.pipeline("// new", (), "new"),
        device.wait,
    ):
        with pytest.raises(DeviceLostError, match="was lost"):
            action()
    assert device.lost
    fresh = open_device(adapter, context=1001)
    assert fresh is not device
    assert np.array_equal(get(fresh, put(fresh, x), x), x)


def test_the_process_ends_cleanly_with_everything_still_open() -> None:
    code = (
        "from onnxruntime_ep_wgpu.device import adapters, open_device\n"
        "device = open_device(adapters()[0]); buffer = device.buffer(1000); device.upload(buffer, 0, b'12345')\n"
        "cycle = [device.buffer(10)]; cycle.append(cycle)"
    )
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
    result = patience.run([sys.executable, "-c", code], env=environment)
    assert (result.returncode, result.stderr) == (0, "")


def test_what_was_said_of_a_lost_device_is_not_said_of_another_one() -> None:
    lost, live = (Device(adapters()[0], adapters()[0].target()) for _ in range(2))
    buffer = lost.buffer(16)
    lost.queue.lib.wgpuDeviceDestroy(lost.handle)
    lost.queue.lib.wgpuQueueWriteBuffer(lost.queue.handle, buffer.handle, 0, new("char[]", 4), 4)
    assert "device is lost" in errors.messages[0][1]  # and nobody has looked at it when the thread goes on
    result, x = live.buffer(12), np.ones(3, np.float32)
    live.submit([AddOne(live, 3).dispatch(put(live, x), result)])
    assert np.array_equal(get(live, result, x), x + 1)
    assert not live.lost
    lost.queue.lib.wgpuQueueWriteBuffer(lost.queue.handle, buffer.handle, 0, new("char[]", 4), 4)
    with pytest.raises(DeviceLostError):
        lost.wait()
    live.wait()
