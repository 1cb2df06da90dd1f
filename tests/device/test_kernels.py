"""Kernels compile once, say where they are wrong, run in order and leave nothing behind."""

from __future__ import annotations

import gc
import re

import numpy as np
import pytest

from onnxruntime_ep_wgpu.device import Device, Settings, open_device
from onnxruntime_ep_wgpu.errors import DeviceError, LimitError, ShaderError

from .conftest import ADD_ONE, ADD_ONE_BINDINGS, AddOne, get, put


def test_dispatches_of_one_submit_run_in_order(device: Device) -> None:
    x = np.arange(1000, dtype=np.float32)
    add = AddOne(device, x.size)
    one, other = put(device, x), device.buffer(x.nbytes)
    device.submit([add.dispatch(one, other), add.dispatch(other, one)] * 150)
    assert np.array_equal(get(device, one, x), x + 300)


def test_copies_run_before_and_after_the_dispatches(device: Device) -> None:
    x = np.arange(64, dtype=np.float32)
    add = AddOne(device, x.size)
    source, middle, result = put(device, x), device.buffer(x.nbytes), device.buffer(x.nbytes)
    copied, half = device.buffer(x.nbytes), x.nbytes // 2
    before = [(source, 0, middle, 0, half), (source, half, middle, half, half)]
    for _ in range(3):
        device.submit([add.dispatch(middle, result)], before, [(result, 0, copied, half, half)])
    assert np.array_equal(get(device, result, x), x + 1)
    assert np.array_equal(get(device, copied, x), np.concatenate([np.zeros(32), x[:32] + 1]))


def test_a_submit_may_be_copies_alone(device: Device) -> None:
    x = np.arange(64, dtype=np.float32)
    source, middle, last = put(device, x), device.buffer(x.nbytes), device.buffer(x.nbytes)
    device.submit((), [(source, 0, middle, 0, x.nbytes)], [(middle, 0, last, 0, x.nbytes)])
    assert np.array_equal(get(device, last, x), x)


def test_a_recording_runs_again(device: Device) -> None:
    x = np.arange(64, dtype=np.float32)
    add = AddOne(device, x.size)
    one, other = put(device, x), device.buffer(x.nbytes)
    recording = device.record([add.dispatch(one, other), add.dispatch(other, one)])
    for _ in range(3):
        device.submit(recording)
    assert np.array_equal(get(device, one, x), x + 6)


# Each library has words of its own.
MISSING = 'entry point \'main\'|Entry point ""main""'


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("+ 1.0", "+ missing", 7, "missing"),  # does not parse
        ("+ 1.0", "+ 1u", 7, "invalid|no matching overload"),  # parses, does not validate
    ],
)
def test_an_invalid_kernel_names_its_label_the_line_and_the_reason(
    device: Device, old: str, new: str, line: int, message: str, checked: bool
) -> None:
    with pytest.raises(ShaderError) as caught:
        device.pipeline(ADD_ONE.replace(old, new), ADD_ONE_BINDINGS, "add wrong", bounds_checks=checked)
    text = str(caught.value)
    assert f"kernel 'add wrong' does not compile, line {line}: `if (id.x < count)" in text
    assert re.search(message, text)


@pytest.mark.parametrize(
    ("wgsl", "bindings", "message"),
    [
        (ADD_ONE.replace("fn main", "fn other"), ADD_ONE_BINDINGS, MISSING),
        (ADD_ONE.replace("(64)", "(4096)"), ADD_ONE_BINDINGS, "4096"),
        (ADD_ONE, ("read", "read", "uniform"), "binding: 1|@binding[(]1"),
        (ADD_ONE, ("read", "read_write"), "binding: 2|@binding[(]2"),
        ("", (), MISSING),
    ],
)
def test_a_kernel_that_does_not_fit_the_device_or_its_bindings_is_an_error(
    device: Device, wgsl: str, bindings: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ShaderError, match="add wrong") as caught:
        device.pipeline(wgsl, bindings, "add wrong")
    assert re.search(message, str(caught.value))


def test_the_device_works_on_after_errors(device: Device) -> None:
    with pytest.raises(ShaderError):
        device.pipeline("fn", (), "broken")
    x = np.arange(8, dtype=np.float32)
    assert np.array_equal(get(device, put(device, x), x), x)


def test_a_kernel_is_compiled_once_per_device(device: Device) -> None:
    first = device.pipeline(ADD_ONE, ADD_ONE_BINDINGS, "add one")
    count = device.counters["pipelines"]
    assert device.pipeline(ADD_ONE, ADD_ONE_BINDINGS, "add one again") is first
    assert device.counters["pipelines"] == count
    assert device.pipeline(ADD_ONE, ADD_ONE_BINDINGS, "add one", bounds_checks=True) is not first


def test_more_than_eight_storage_buffers_need_a_wish(device: Device) -> None:
    if device.adapter.limits["max-storage-buffers-per-shader-stage"] < 9:
        pytest.skip("the adapter has no more than eight")
    names = [f"b{i}" for i in range(9)]
    wgsl = "".join(f"@group(0) @binding({i}) var<storage, read_write> b{i}: array<u32>;" for i in range(9))
    wgsl += "@compute @workgroup_size(1) fn main() {" + "".join(f"{name}[0] = 1;" for name in names) + "}"
    with pytest.raises((ShaderError, DeviceError), match="8"):
        device.pipeline(wgsl, ("read_write",) * 9, "nine")
    open_device(device.adapter, 1002, Settings(storage_buffers=9)).pipeline(wgsl, ("read_write",) * 9, "nine")


def test_a_binding_above_the_limit_names_bytes_and_limit(device: Device) -> None:
    size = device.target.max_binding_bytes + 256
    if size > min(device.target.max_buffer_bytes, 1 << 30):
        pytest.skip("the adapter's limit is larger than a test should allocate")
    add = AddOne(device, 4)
    large = device.buffer(size, "weight 'w'")
    with pytest.raises(LimitError) as caught:
        device.bind_group(add.pipeline, [(large, 0, size), (device.buffer(16), 0, 16), (add.uniform, 0, 16)])
    assert f"binds {size} bytes of weight 'w'" in str(caught.value)
    assert str(device.target.max_binding_bytes) in str(caught.value)


def test_wrong_bind_groups_are_refused(device: Device) -> None:
    add = AddOne(device, 4)
    x = device.buffer(16)
    with pytest.raises(DeviceError, match="3 bindings, 1 were given"):
        device.bind_group(add.pipeline, [(x, 0, 16)])
    with pytest.raises(DeviceError, match="alignment"):
        device.bind_group(add.pipeline, [(device.buffer(512), 4, 16), (x, 0, 16), (add.uniform, 0, 16)])


def test_work_that_webgpu_refuses_is_an_error_and_runs_nothing(device: Device) -> None:
    x = np.zeros(4, np.float32)
    add = AddOne(device, 4)
    one, other = put(device, x), device.buffer(16)
    pipeline, group, _ = add.dispatch(one, other)
    with pytest.raises(DeviceError, match="100000"):
        device.submit([(pipeline, group, (1, 1, 1)), (pipeline, group, (100000, 1, 1))])
    with pytest.raises(DeviceError, match=r"conflicting usages|writable usage and another usage"):
        device.submit([add.dispatch(one, one)])
    with pytest.raises(DeviceError, match="same buffer"):
        device.copy(one, 0, one, 8, 4)
    assert np.array_equal(get(device, other, x), x)


def test_a_thousand_submits_leave_the_live_counters_flat(device: Device) -> None:
    x = np.zeros(64, np.float32)
    add = AddOne(device, x.size)
    one, other = put(device, x), device.buffer(x.nbytes)
    dispatch = add.dispatch(one, other)
    device.submit([dispatch])
    gc.collect()
    before = dict(device.counters)
    for _ in range(1000):
        device.submit([dispatch, dispatch])
    device.wait()
    after = dict(device.counters)
    assert after.pop("submits") - before.pop("submits") == 1000
    assert after.pop("dispatches") - before.pop("dispatches") == 2000
    assert after == before


def test_times_per_dispatch_come_from_the_gpu(device: Device) -> None:
    if "timestamp-query" not in device.target.features:
        pytest.skip("the adapter has no timestamps")
    x = np.zeros(64, np.float32)
    add = AddOne(device, x.size)
    seconds = device.measure([add.dispatch(put(device, x), device.buffer(x.nbytes))] * 3)
    assert len(seconds) == 3
    assert all(0 <= each < 60 for each in seconds)
