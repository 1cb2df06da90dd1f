"""What holds when a machine has several devices; run by test_several_devices.py where there is only one.

The first two adapters take part: each has its own memory, allocator, sessions and tensors.
"""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.device import adapters, context_of
from onnxruntime_ep_wgpu.plugin import watch
from onnxruntime_ep_wgpu.plugin.factory import SEVERAL_DEVICES
from onnxruntime_ep_wgpu.plugin.memory import space as memory

from . import models

X = np.random.default_rng(5).standard_normal((5, 8), np.float32)
VERSION = int(ort.__version__.split(".")[1])


@pytest.fixture(autouse=True, scope="module")
def devices() -> list[Any]:
    return webgpu_ep.devices()


def on(number: int, array: np.ndarray = X) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy(array, "webgpu", number)


def empty(number: int) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_shape_and_type(list(X.shape), np.float32, "webgpu", number)


def adapter_of(value: ort.OrtValue) -> int:
    return memory.space().read(value.data_ptr(), 4).device.adapter.index


def test_each_device_has_memory_of_its_own(devices: list[Any]) -> None:
    infos = [device.memory_info(ort.OrtDeviceMemoryType.DEFAULT) for device in devices]
    assert [(info.name, info.device_id) for info in infos] == [("WebGPU_Buf", n) for n in range(len(devices))]


@pytest.mark.parametrize("name", ["webgpu", "gpu"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_device_id_names_the_adapter(name: str, number: int) -> None:
    value = ort.OrtValue.ortvalue_from_numpy(X, name, number)
    assert adapter_of(value) == number
    np.testing.assert_array_equal(value.numpy(), X)
    value.update_inplace(X * 2)
    np.testing.assert_array_equal(value.numpy(), X * 2)


def test_tensors_are_copied_between_devices_both_ways() -> None:
    for source, target in ((0, 1), (1, 0)):
        one, other = on(source), empty(target)
        ort.copy_tensors([one], [other], None)
        assert (adapter_of(one), adapter_of(other)) == (source, target)
        np.testing.assert_array_equal(other.numpy(), X)


def test_large_tensors_are_copied_between_devices() -> None:
    large = np.random.default_rng(0).integers(0, 255, (40 << 20) + 3, np.uint8)
    one = on(0, large)
    other = ort.OrtValue.ortvalue_from_shape_and_type([large.size], np.uint8, "webgpu", 1)
    ort.copy_tensors([one], [other], None)
    np.testing.assert_array_equal(other.numpy(), large)


@pytest.mark.parametrize("number", [0, 1])
def test_a_session_runs_on_the_device_that_it_was_given(number: int) -> None:
    session = webgpu_ep.session(models.chain(), device=number)
    assert webgpu_ep.report(session).device == adapters()[number].name
    np.testing.assert_allclose(session.run(None, {"x": X})[0], models.chain_reference(X), rtol=1e-4, atol=1e-4)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "webgpu", number)
    for _ in range(3):
        session.run_with_iobinding(binding)
    (value,) = binding.get_outputs()
    assert adapter_of(value) == number
    np.testing.assert_allclose(value.numpy(), models.chain_reference(X), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("x", [0, 1])
@pytest.mark.parametrize("y", [0, 1])
def test_inputs_and_outputs_may_lie_on_any_device(number: int, x: int, y: int) -> None:
    session = webgpu_ep.session(models.square(), device=number)
    binding = session.io_binding()
    source, target = on(x), empty(y)
    binding.bind_ortvalue_input("x", source)
    binding.bind_ortvalue_output("y", target)
    for _ in range(3):
        session.run_with_iobinding(binding)
    assert adapter_of(target) == y
    np.testing.assert_array_equal(target.numpy(), X * X)


def test_a_context_has_the_memory_id_of_its_adapter() -> None:
    session = webgpu_ep.session(models.square(), device=1, deviceId=3)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "webgpu", 1)
    session.run_with_iobinding(binding)
    (value,) = binding.get_outputs()
    context = context_of(adapters()[1], 3)
    assert memory.space().read(value.data_ptr(), 4).device is context.device()
    np.testing.assert_array_equal(value.numpy(), X * X)
    # ONNX Runtime's copy_tensors refuses a session's own tensors with an id above 0; these calls do not.
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], X * X)
    if VERSION >= 31:
        copy = on(0, X * 0)
        copy.update_inplace(value)
        np.testing.assert_array_equal(copy.numpy(), X * X)


@pytest.mark.skipif(VERSION < 31, reason="create_ortvalue_from_shape_and_type came with onnxruntime 1.31")
def test_a_session_makes_tensors_on_its_own_device() -> None:
    session = webgpu_ep.session(models.square(), device=1, deviceId=4)
    value = session.create_ortvalue_from_shape_and_type(list(X.shape), np.float32, "webgpu", 1)
    value.update_inplace(X)
    context = context_of(adapters()[1], 4)
    assert memory.space().read(value.data_ptr(), 4).device is context.device()
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y", "webgpu", 1)
    before = context.device().counters["uploads"]
    session.run_with_iobinding(binding)
    assert context.device().counters["uploads"] == before
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), X * X)


def test_the_adapter_index_picks_the_adapter() -> None:
    session = webgpu_ep.session(models.square(), adapterIndex=1)
    assert webgpu_ep.report(session).device == adapters()[1].name
    with pytest.raises(webgpu_ep.OptionError, match=r"'adapterIndex': 1 .* contradicts the device"):
        webgpu_ep.session(models.square(), device=0, adapterIndex=1)


@pytest.mark.parametrize("index", [0, 1])
def test_a_session_may_be_given_several_devices(devices: list[Any], index: int) -> None:
    so = ort.SessionOptions()
    so.log_severity_level = 4
    so.add_provider_for_devices(devices[:2], {"adapterIndex": str(index)})
    if VERSION < SEVERAL_DEVICES:
        with pytest.raises(Exception, match="same device_memory_info"):
            ort.InferenceSession(models.square(), so, enable_fallback=0)
        return
    session = ort.InferenceSession(models.square(), so, enable_fallback=0)
    state = watch.live()[-1].state
    assert state is not None and state.context.adapter.index == index
    del state
    for number in (0, 1):
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", on(number))
        binding.bind_output("y", "webgpu", number)
        session.run_with_iobinding(binding)
        (value,) = binding.get_outputs()
        assert adapter_of(value) == number
        np.testing.assert_array_equal(value.numpy(), X * X)


def test_the_power_preference_picks_among_several(devices: list[Any]) -> None:
    if VERSION < SEVERAL_DEVICES:
        pytest.skip("this ONNX Runtime takes one device per session")
    so = ort.SessionOptions()
    so.add_provider_for_devices(devices[:2], {"powerPreference": "low-power"})
    session = ort.InferenceSession(models.square(), so, enable_fallback=0)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * X)


def test_threads_use_both_devices_at_once() -> None:
    sessions = [webgpu_ep.session(models.chain(), device=number) for number in (0, 1)]
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(8):
                value = on(number)
                got = sessions[number].run_with_ort_values(None, {"x": value})[0].numpy()
                np.testing.assert_allclose(got, models.chain_reference(X), rtol=1e-4, atol=1e-4)
                other = empty(1 - number)
                ort.copy_tensors([value], [other], None)
                np.testing.assert_array_equal(other.numpy(), X)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n % 2,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_a_device_without_sessions_and_tensors_is_let_go() -> None:
    gc.collect()
    context = context_of(adapters()[1])
    assert context.current() is None
    value = on(1)
    assert context.current() is not None
    del value
    gc.collect()
    assert context.current() is None
