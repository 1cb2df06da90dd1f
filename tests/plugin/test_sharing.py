"""A device of the caller runs sessions, and tensors are wgpu buffers and the other way round, without a copy."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import wgpu

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.api.reports import state_of
from onnxruntime_ep_wgpu.device import adapters, wgpu_py
from onnxruntime_ep_wgpu.plugin.memory import space as memory
from onnxruntime_ep_wgpu.program.target import COMPONENT_STORES

from . import models
from .loss import WITH_WGPU_PY
from .test_memo import Bound, made_by, repeats

pytestmark = WITH_WGPU_PY
X = np.random.default_rng(4).standard_normal((5, 8), np.float32)
STORAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST


def make_device(**limits: int) -> Any:
    adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
    return adapter.request_device_sync(required_limits={name.replace("_", "-"): n for name, n in limits.items()})


@pytest.fixture
def gpu() -> Any:
    return make_device()


def upload(gpu: Any, array: np.ndarray, size: int = 0) -> Any:
    buffer = gpu.create_buffer(size=size or max(16, array.nbytes), usage=STORAGE)
    gpu.queue.write_buffer(buffer, 0, array)
    return buffer


def read(gpu: Any, buffer: Any, offset: int, like: np.ndarray) -> np.ndarray:
    return np.frombuffer(gpu.queue.read_buffer(buffer, offset, like.nbytes), like.dtype).reshape(like.shape)


def run(session: ort.InferenceSession, x: Any, y: Any) -> None:
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    for _ in range(3):
        session.run_with_iobinding(binding)


def test_a_session_runs_on_the_callers_device(gpu: Any) -> None:
    session = webgpu_ep.session(models.chain(), wgpu_device=gpu)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], models.chain_reference(X), rtol=1e-4, atol=1e-4)
    assert webgpu_ep.wgpu_device_of(session) is gpu


def test_sessions_on_one_callers_device_share_it(gpu: Any) -> None:
    first, second = (webgpu_ep.session(models.square(), wgpu_device=gpu) for _ in range(2))
    contexts = [state_of(it).context for it in (first, second)]
    assert contexts[0] is contexts[1]
    assert contexts[0].sessions == 2


def test_a_callers_buffers_are_inputs_and_outputs_without_a_copy(gpu: Any) -> None:
    session = webgpu_ep.session(models.square(), wgpu_device=gpu)
    inputs, outputs = upload(gpu, X), gpu.create_buffer(size=X.nbytes, usage=STORAGE)
    x = webgpu_ep.ort_value_from(inputs, np.float32, X.shape)
    y = webgpu_ep.ort_value_from(outputs, np.float32, X.shape)
    device = state_of(session).context.device()
    session.run(None, {"x": X})
    before = device.counters
    run(session, x, y)
    assert device.counters["uploads"] == before["uploads"]
    assert device.counters["downloads"] == before["downloads"]
    np.testing.assert_array_equal(read(gpu, outputs, 0, X), X * X)
    np.testing.assert_array_equal(y.numpy(), X * X)
    gpu.queue.write_buffer(inputs, 0, X + 1)
    run(session, x, y)
    np.testing.assert_array_equal(read(gpu, outputs, 0, X), (X + 1) * (X + 1))


def test_one_buffer_may_be_input_and_output_in_different_values(gpu: Any) -> None:
    session = webgpu_ep.session(models.square(), wgpu_device=gpu)
    both = upload(gpu, X)
    values = [webgpu_ep.ort_value_from(both, np.float32, X.shape) for _ in range(2)]
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", values[0])
    binding.bind_ortvalue_output("y", values[1])
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(read(gpu, both, 0, X), X * X)


@pytest.mark.costly
@pytest.mark.parametrize("offset", [0, 256, 36])
def test_a_value_may_be_a_part_of_a_buffer(gpu: Any, offset: int) -> None:
    session = webgpu_ep.session(models.square(), wgpu_device=gpu)
    everything = np.zeros(1024, np.float32)
    everything[offset // 4 : offset // 4 + X.size] = X.reshape(-1)
    inputs, outputs = upload(gpu, everything), upload(gpu, everything * 0)
    x = webgpu_ep.ort_value_from(inputs, np.float32, X.shape, offset)
    run(session, x, webgpu_ep.ort_value_from(outputs, np.float32, X.shape, offset))
    want = everything * everything
    np.testing.assert_array_equal(read(gpu, outputs, 0, want), want)


def test_the_memory_of_a_tensor_is_a_buffer_for_wgpu(gpu: Any) -> None:
    session = webgpu_ep.session(models.square(), wgpu_device=gpu)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "webgpu", 0)
    session.run_with_iobinding(binding)
    (value,) = binding.get_outputs()
    buffer, offset, nbytes = webgpu_ep.buffer_of(value)
    assert nbytes == X.nbytes
    np.testing.assert_array_equal(read(gpu, buffer, offset, X), X * X)
    gpu.queue.write_buffer(buffer, offset, X)
    np.testing.assert_array_equal(value.numpy(), X)


def test_a_small_tensor_that_wgpu_writes_has_no_stale_copy_on_the_host(devices: list[Any]) -> None:
    """Small tensors that came from the host are known there; one that others may write is not."""
    sizes = np.array([3, 4], np.int64)
    value = ort.OrtValue.ortvalue_from_numpy(sizes, "webgpu", 0)
    buffer, offset, _ = webgpu_ep.buffer_of(value)
    value.update_inplace(sizes * 2)
    buffer._device.queue.write_buffer(buffer, offset, sizes * 5)
    np.testing.assert_array_equal(value.numpy(), sizes * 5)


def test_a_buffer_that_was_given_out_is_not_used_for_other_tensors(devices: list[Any]) -> None:
    value = ort.OrtValue.ortvalue_from_numpy(X, "webgpu", 0)
    buffer, offset, _ = webgpu_ep.buffer_of(value)
    del value
    others = [ort.OrtValue.ortvalue_from_numpy(-X, "webgpu", 0) for _ in range(4)]
    np.testing.assert_array_equal(read(buffer._device, buffer, offset, X), X)
    del others


def test_a_value_keeps_the_callers_buffer_and_device_alive() -> None:
    gpu = make_device()
    alive = weakref.ref(gpu)
    value = webgpu_ep.ort_value_from(upload(gpu, X), np.float32, X.shape)
    del gpu
    gc.collect()
    assert alive() is not None
    np.testing.assert_array_equal(value.numpy(), X)
    del value
    gc.collect()
    assert alive() is None


def test_a_session_keeps_the_callers_device_alive_and_lets_it_go() -> None:
    gpu = make_device()
    alive = weakref.ref(gpu)
    session = webgpu_ep.session(models.square(), wgpu_device=gpu)
    del gpu
    gc.collect()
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * X)
    del session
    gc.collect()
    assert alive() is None


def test_a_sessions_own_device_is_a_wgpu_device(devices: list[Any]) -> None:
    session = webgpu_ep.session(models.square(), deviceId=21)
    gpu = webgpu_ep.wgpu_device_of(session)
    assert isinstance(gpu, wgpu.GPUDevice)
    assert webgpu_ep.wgpu_device_of(session) is gpu
    assert gpu.adapter.info["device"] == adapters()[0].name
    assert gpu.limits["max-storage-buffers-per-shader-stage"] == 8
    y = gpu.create_buffer(size=X.nbytes, usage=STORAGE)
    run(session, webgpu_ep.ort_value_from(upload(gpu, X), np.float32, X.shape),
        webgpu_ep.ort_value_from(y, np.float32, X.shape))  # fmt: skip
    np.testing.assert_array_equal(read(gpu, y, 0, X), X * X)
    assert webgpu_ep.wgpu_device_of(webgpu_ep.session(models.square(), wgpu_device=gpu)) is gpu


def test_a_wgpu_device_of_ours_lets_go_of_everything() -> None:
    session = webgpu_ep.session(models.square(), deviceId=22)
    gpu = webgpu_ep.wgpu_device_of(session)
    device = weakref.ref(wgpu_py.wrapped(gpu))
    del session
    gc.collect()
    assert device() is not None
    del gpu
    gc.collect()
    assert device() is None


def test_an_error_is_raised_by_the_side_that_caused_it(gpu: Any) -> None:
    session = webgpu_ep.session(models.square(), wgpu_device=gpu)
    ours = webgpu_ep.wgpu_device_of(webgpu_ep.session(models.square(), deviceId=23))
    device = state_of(session).context.device()
    for theirs in (gpu, ours):
        with pytest.raises(wgpu.GPUValidationError, match="usage"):
            theirs.create_buffer(size=16, usage=wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.STORAGE)
    with pytest.raises(webgpu_ep.ShaderError, match="broken"):
        device.pipeline("@compute fn main() {", (), "broken")
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * X)


def test_a_device_with_too_low_limits_is_refused_with_what_to_ask_for() -> None:
    few = make_device(max_storage_buffers_per_shader_stage=4)
    with pytest.raises(
        webgpu_ep.LimitError,
        match=r"stage = 4, 8 is needed; .*required_limits=\{'max-storage-buffers-per-shader-stage': 8\}",
    ):
        webgpu_ep.session(models.square(), wgpu_device=few)
    eight = make_device(max_storage_buffers_per_shader_stage=8)
    with pytest.raises(webgpu_ep.LimitError, match=r"stage = 8, 9 is needed"):
        webgpu_ep.session(models.square(), wgpu_device=eight, maxStorageBuffersPerShaderStage=9)


def test_kernels_are_compiled_for_what_the_callers_device_offers() -> None:
    adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
    if "timestamp-query" not in adapter.features:
        pytest.skip("the adapter has no feature to leave out")
    plain = adapter.request_device_sync(required_limits={"max-storage-buffer-binding-size": 64 << 20})
    target = state_of(webgpu_ep.session(models.square(), wgpu_device=plain)).target
    of_shaders = {COMPONENT_STORES} & target.features  # whatever a device offers
    assert (target.features, target.max_binding_bytes) == (of_shaders, 64 << 20)
    rich = adapter.request_device_sync(required_features=["timestamp-query"])
    target = state_of(webgpu_ep.session(models.square(), wgpu_device=rich)).target
    assert target.features == {"timestamp-query", *of_shaders}


def test_addresses_of_a_device_are_options_for_any_client(gpu: Any) -> None:
    options = webgpu_ep.device_options(gpu)
    so = ort.SessionOptions()
    so.add_provider_for_devices(webgpu_ep.devices()[:1], {**options, "deviceId": "24"})
    session = ort.InferenceSession(models.square(), so, enable_fallback=0)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * X)
    again = webgpu_ep.session(models.square(), wgpu_device=gpu, deviceId=24)
    assert webgpu_ep.wgpu_device_of(again) is gpu


@pytest.mark.costly
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"webgpuInstance": "0"}, r"'webgpuInstance' is 0: give the addresses of both"),
        ({"webgpuDevice": "0"}, r"'webgpuDevice' is 0: give the addresses of both"),
        ({"webgpuInstance": None}, r"'webgpuInstance' is 0"),
        ({"webgpuDevice": None}, r"'webgpuDevice' is 0"),
        ({"webgpuDevice": "4096"}, r"no live device of wgpu-py at 4096"),
        ({"webgpuInstance": "4096"}, r"4096 is not the instance of the device"),
        ({"webgpuDevice": "0x1"}, r"'0x1' is not valid; valid: an address as a decimal number"),
        ({"deviceId": "0"}, r"'deviceId': 0 is the adapter's own shared device"),
    ],
    ids=str,
)
def test_wrong_addresses_are_refused_and_never_followed(gpu: Any, change: dict[str, Any], message: str) -> None:
    options = {key: value for key, value in {**webgpu_ep.device_options(gpu), **change}.items() if value is not None}
    with pytest.raises(webgpu_ep.OptionError, match=message):
        webgpu_ep.session(models.square(), **options)


def test_a_device_id_is_one_device(gpu: Any) -> None:
    first = webgpu_ep.session(models.square(), wgpu_device=gpu, deviceId=25)
    with pytest.raises(webgpu_ep.OptionError, match=r"'deviceId': 26 contradicts 25, which webgpuDevice has already"):
        webgpu_ep.session(models.square(), wgpu_device=gpu, deviceId=26)
    with pytest.raises(webgpu_ep.OptionError, match=r"'deviceId': 25 is another device, which 1 session uses"):
        webgpu_ep.session(models.square(), wgpu_device=make_device(), deviceId=25)
    del first


def test_a_device_that_is_gone_is_an_unknown_address() -> None:
    gpu = make_device()
    options = webgpu_ep.device_options(gpu)
    del gpu
    gc.collect()
    with pytest.raises(webgpu_ep.OptionError, match="no live device of wgpu-py"):
        webgpu_ep.session(models.square(), **options)


def test_buffers_that_cannot_hold_the_tensor_are_refused(gpu: Any) -> None:
    with pytest.raises(webgpu_ep.DeviceError, match="lacks the usage COPY_SRC and COPY_DST; create it with"):
        webgpu_ep.ort_value_from(gpu.create_buffer(size=256, usage=wgpu.BufferUsage.STORAGE), np.float32, [4])
    small = gpu.create_buffer(size=12, usage=STORAGE)
    with pytest.raises(
        webgpu_ep.DeviceError, match=r"12 bytes at offset 0 needs a buffer of 16 bytes or more.* has 12 bytes"
    ):
        webgpu_ep.ort_value_from(small, np.float32, [3])
    with pytest.raises(webgpu_ep.DeviceError, match="offset that is a multiple of 4"):
        webgpu_ep.ort_value_from(gpu.create_buffer(size=256, usage=STORAGE), np.float32, [4], 6)
    mapped = gpu.create_buffer(size=256, usage=STORAGE, mapped_at_creation=True)
    with pytest.raises(webgpu_ep.DeviceError, match="is mapped; unmap it first"):
        webgpu_ep.ort_value_from(mapped, np.float32, [4])
    with pytest.raises(webgpu_ep.DeviceError, match=r"is not a wgpu\.GPUBuffer"):
        webgpu_ep.ort_value_from(X, np.float32, [4])
    with pytest.raises(webgpu_ep.DeviceError, match=r"is not a wgpu\.GPUDevice"):
        webgpu_ep.session(models.square(), wgpu_device="a device")


def test_only_tensors_on_a_device_are_buffers(devices: list[Any]) -> None:
    with pytest.raises(webgpu_ep.DeviceError, match="memory of 'cpu'"):
        webgpu_ep.buffer_of(ort.OrtValue.ortvalue_from_numpy(X))
    with pytest.raises(webgpu_ep.DeviceError, match="has no elements"):
        webgpu_ep.buffer_of(ort.OrtValue.ortvalue_from_numpy(X[:0], "webgpu", 0))


def test_a_part_of_a_shared_tensor_is_written_in_place_or_refused(gpu: Any) -> None:
    data = np.arange(64, dtype=np.uint8)
    buffer = upload(gpu, data)
    value = webgpu_ep.ort_value_from(buffer, np.uint8, data.shape)
    start = value.data_ptr()
    place = memory.space().write(start + 8, 8)
    place.device.upload(*place.place, b"\xff" * 8)
    data[8:16] = 255
    np.testing.assert_array_equal(read(gpu, buffer, 0, data), data)
    with pytest.raises(
        webgpu_ep.DeviceError, match="cannot be written: they contain a part of a tensor that is shared with wgpu"
    ):
        memory.space().write(start + 9, 2)


def test_a_destroyed_device_of_the_caller_is_a_lost_device(gpu: Any) -> None:
    session = webgpu_ep.session(models.square(), wgpu_device=gpu)
    session.run(None, {"x": X})
    gpu.destroy()
    for _ in range(2):
        with pytest.raises(webgpu_ep.DeviceLostError):
            session.run(None, {"x": X})


def test_a_run_that_is_repeated_on_a_destroyed_device_of_the_caller_is_an_error(gpu: Any) -> None:
    """wgpu-native tells wgpu-py what it refuses; C code that does not hear of it would end the process."""
    session = webgpu_ep.session(models.chain(), wgpu_device=gpu)
    bound = Bound(session, 5, made_by(session, X), made_by(session, X))
    assert repeats(lambda: session.run_with_iobinding(bound.binding)) >= 3
    gpu.destroy()
    with pytest.raises(webgpu_ep.DeviceLostError):
        session.run_with_iobinding(bound.binding)
