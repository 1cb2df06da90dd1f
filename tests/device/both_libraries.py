"""What holds where both WebGPU libraries use one adapter, in one process; run by test_both_libraries.py.

Which library is usual here is nothing to these tests: each asks for one by name.
"""

from __future__ import annotations

import dataclasses
import gc
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.api.reports import state_of
from onnxruntime_ep_wgpu.device import Device, adapters, choice, context_of
from onnxruntime_ep_wgpu.device.adapters import Adapter
from onnxruntime_ep_wgpu.device.choice import automatic, checked_matrices
from onnxruntime_ep_wgpu.device.webgpu import libraries
from onnxruntime_ep_wgpu.plugin import device_choice, watch
from onnxruntime_ep_wgpu.plugin.memory import space as memory
from onnxruntime_ep_wgpu.program.target import SUBGROUP_MATRIX, MatrixUnit
from tests.language.models import Decoder, write
from tests.plugin import models
from tests.plugin.loss import lose

from .conftest import AddOne, get, put

X = np.random.default_rng(5).standard_normal((5, 8), np.float32)
LIBRARIES = ("wgpu-native", "dawn")


def opened(name: str, number: int = 0, checked: bool = False) -> Device:
    return context_of(adapters()[0], number, name, checked).device()


def session_of(name: str, model: bytes | None = None, **options: Any) -> Any:
    return webgpu_ep.session(models.chain() if model is None else model, webgpuLibrary=name, **options)


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_one_adapter_is_seen_by_both() -> None:
    native, dawn = (adapters()[0].through("", name) for name in LIBRARIES)
    assert (native.library.name, dawn.library.name) == LIBRARIES
    assert (native.index, native.name, native.backend) == (dawn.index, dawn.name, dawn.backend)
    assert native.target().name != dawn.target().name  # a table of choices for one is none for the other
    assert not native.matrices


def test_devices_of_both_calculate_beside_each_other() -> None:
    x = np.arange(1000, dtype=np.float32)
    devices = [opened(name) for name in LIBRARIES]
    assert [it.queue.library.name for it in devices] == [*LIBRARIES]
    found = []
    for device in devices:
        one, other = put(device, x), device.buffer(x.nbytes)
        device.submit([AddOne(device, x.size).dispatch(one, other)])
        found.append((device, other))
    assert all(np.array_equal(get(device, buffer, x), x + 1) for device, buffer in found)


def test_a_device_whose_request_is_interrupted_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was asked for first gets no answer: the memory for the answer is gone."""

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(libraries.named("dawn"), "_wait_any", interrupted)
        opened("dawn", 6)
    gc.collect()
    device = opened("dawn", 6)
    x = np.arange(64, dtype=np.float32)
    np.testing.assert_array_equal(get(device, put(device, x), x), x)


def test_threads_use_both_at_once() -> None:
    x, wrong = np.arange(1000, dtype=np.float32), []

    def work(name: str) -> None:
        device = opened(name)
        add, one, other = AddOne(device, x.size), put(device, x), device.buffer(x.nbytes)
        for step in range(20):
            device.submit([add.dispatch(one, other), add.dispatch(other, one)])
            if not np.array_equal(get(device, one, x), x + 2 * (step + 1)):
                wrong.append((name, step))

    threads = [threading.Thread(target=work, args=(name,)) for name in LIBRARIES * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_sessions_of_both_give_the_same_and_say_which(library: str) -> None:
    session = session_of(library)
    cpu = ort.InferenceSession(models.chain(), providers=["CPUExecutionProvider"]).run(None, {"x": X})
    np.testing.assert_allclose(session.run(None, {"x": X})[0], cpu[0], rtol=1e-5, atol=1e-6)
    report = webgpu_ep.report(session)
    assert report.library.startswith(f"{library} ") and report.library.endswith("(webgpuLibrary)")
    assert f"through {report.library}" in str(report)


def test_sessions_with_one_device_id_have_a_device_per_library() -> None:
    sessions = [session_of(name, deviceId=5) for name in LIBRARIES]
    assert len({it.queue.library.name for it in map(device_of, sessions)}) == 2


def device_of(session: Any) -> Device:
    device: Device = state_of(session).device()
    return device


def test_a_tensor_of_one_library_is_an_input_of_the_other_and_goes_back() -> None:
    model = models.chain()
    native, dawn = (session_of(name, model) for name in LIBRARIES)
    expected = native.run(None, {"x": X})[0]
    for first, second in ((native, dawn), (dawn, native)):
        y = ort.OrtValue.ortvalue_from_shape_and_type([5, 8], np.float32, "webgpu", 0)
        z = ort.OrtValue.ortvalue_from_shape_and_type([5, 8], np.float32, "webgpu", 0)
        bind(first, ort.OrtValue.ortvalue_from_numpy(X, "webgpu", 0), y)
        bind(second, y, z)
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(z.numpy(), native.run(None, {"x": expected})[0], rtol=1e-4, atol=1e-5)


def bind(session: Any, x: ort.OrtValue, y: ort.OrtValue) -> None:
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    session.run_with_iobinding(binding)


def test_a_result_lies_on_the_sessions_own_device(library: str) -> None:
    session = session_of(library)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "webgpu", 0)
    session.run_with_iobinding(binding)
    (y,) = binding.get_outputs()
    assert memory.space().read(y.data_ptr(), X.nbytes).device is device_of(session)


def test_memory_that_is_no_sessions_lies_where_the_newest_session_does(library: str) -> None:
    before = ort.OrtValue.ortvalue_from_numpy(X, "webgpu", 0)
    session = session_of(library)
    x, y = (ort.OrtValue.ortvalue_from_numpy(X, "webgpu", 0) for _ in range(2))
    assert memory.space().read(x.data_ptr(), X.nbytes).device is device_of(session)
    bind(session, x, y)
    expected = y.numpy()
    bind(session, before, y)  # which is moved
    np.testing.assert_array_equal(y.numpy(), expected)
    assert memory.space().read(before.data_ptr(), X.nbytes).device is device_of(session)


def test_what_picks_tokens_runs_where_the_decoder_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own model would take another library: each token's logits would go from one device to the other."""
    names = iter(["dawn"])
    monkeypatch.setattr(
        device_choice, "automatic", lambda *_: choice.LibraryChoice(next(names, "wgpu-native"), "a test")
    )
    model = webgpu_ep.LanguageModel(write(Decoder("fp32"), tmp_path))
    for how in ({}, {"temperature": 0.9, "seed": 1}):
        assert [it for _, it in model.tokens([[1, 2, 3]], max_new_tokens=5, ends=(), **how)]
    assert [state_of(it).library.name for it in (model.decoder.session, *model._samplers.values())] == ["dawn"] * 3


def test_a_captured_run_is_replayed(library: str) -> None:
    session = session_of(library, enableGraphCapture=1)
    x, y = (ort.OrtValue.ortvalue_from_numpy(np.zeros_like(X), "webgpu", 0) for _ in range(2))
    for values in (X, X + 1, X - 2):
        x.update_inplace(values)
        bind(session, x, y)
        expected = session_of(library).run(None, {"x": values})[0]
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_a_lost_device_is_made_anew_and_the_other_library_goes_on(library: str) -> None:
    other = next(name for name in LIBRARIES if name != library)
    session, beside = session_of(library, deviceId=6), session_of(other, deviceId=6)
    expected = session.run(None, {"x": X})[0]
    lost = device_of(session)
    lose(lost)
    with suppress(webgpu_ep.DeviceLostError):  # of a library that says so when it is used
        session.run(None, {"x": X})
    np.testing.assert_allclose(session.run(None, {"x": X})[0], expected, rtol=1e-5, atol=1e-6)
    assert device_of(session) is not lost and lost.lost
    np.testing.assert_allclose(beside.run(None, {"x": X})[0], expected, rtol=1e-5, atol=1e-6)


def test_bounds_checks_are_of_a_device_where_a_module_has_none() -> None:
    native, dawn = ([session_of(name, enableRobustness=it, deviceId=7) for it in (0, 1)] for name in LIBRARIES)
    assert device_of(native[0]) is device_of(native[1])
    assert device_of(dawn[0]) is not device_of(dawn[1])
    for session in (*native, *dawn):
        np.testing.assert_allclose(session.run(None, {"x": X})[0], native[0].run(None, {"x": X})[0], rtol=1e-5)


@pytest.mark.parametrize("offset", [0, 12])
def test_large_writes_arrive_whole(library: str, offset: int) -> None:
    device = opened(library)
    data = np.random.default_rng(offset).integers(0, 256, (9 << 20) + 5, np.uint8)
    buffer = device.buffer(data.nbytes + 64)
    for _ in range(3):
        data += 1
        device.upload(buffer, offset, data.data)
        assert np.array_equal(get(device, buffer, np.zeros(offset + data.size, np.uint8))[offset:], data)


def test_times_of_kernels_are_measured(library: str) -> None:
    device = opened(library)
    if not device.has_timestamps:
        pytest.skip("the adapter has no timestamps")
    x = np.zeros(1 << 16, np.float32)
    add = AddOne(device, x.size)
    times = device.measure([add.dispatch(put(device, x), device.buffer(x.nbytes))] * 3)
    assert len(times) == 3 and all(0 <= it < 60 for it in times)


def test_matrix_units_come_with_their_feature() -> None:
    view = adapters()[0].through("", "dawn")
    target = view.target(matrices=checked_matrices(view))
    assert bool(target.matrices) == (SUBGROUP_MATRIX in target.features)
    assert all(isinstance(it, MatrixUnit) for it in target.matrices)


def test_auto_takes_the_other_library_for_matrix_units_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    software = dataclasses.replace(adapters()[0], type="CPU")
    assert automatic(software, lambda: {"f16"}) == ("wgpu-native", "a software adapter has no matrix units")
    adapter = dataclasses.replace(adapters()[0], type="DiscreteGPU")
    real, units = Adapter.through, ()

    def with_units(self: Adapter, backend: str, library: str = "") -> Adapter:
        found = real(self, backend, library)
        object.__setattr__(found, "matrices", units)
        return found

    monkeypatch.setattr(Adapter, "through", with_units)
    monkeypatch.setattr(choice, "checked_matrices", lambda view: view.matrices)  # this adapter cannot run a probe
    assert automatic(adapter, lambda: {"f16"}).name == "wgpu-native"
    units = (MatrixUnit(16, 16, 16, "f16", "f32", 32),)
    assert automatic(adapter, lambda: {"f16"}).name == "dawn"
    assert automatic(adapter, set) == ("wgpu-native", "the model has no products of f16 or 8 bits")


def test_a_session_that_ended_keeps_no_device(library: str) -> None:
    import gc
    import weakref

    session = session_of(library, deviceId=8)
    session.run(None, {"x": X})
    device = weakref.ref(device_of(session))
    del session
    gc.collect()
    watch.live()
    assert device() is None
