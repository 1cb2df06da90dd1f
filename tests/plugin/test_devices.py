"""Sessions and devices: a session runs where it was told to, next to other providers, and says so when its device is lost."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.device import adapters, context_of
from onnxruntime_ep_wgpu.device.contexts import Context
from onnxruntime_ep_wgpu.device.webgpu import libraries
from onnxruntime_ep_wgpu.plugin import abi, callbacks, compiling, deciding, factory, watch
from onnxruntime_ep_wgpu.plugin.assign.forced import Forced
from onnxruntime_ep_wgpu.plugin.memory import space as memory
from onnxruntime_ep_wgpu.plugin.provider import Provider
from tests import patience

from . import models
from .fakes import Fake

X = np.random.default_rng(3).standard_normal((5, 8), np.float32)
OpenSession = Callable[..., ort.InferenceSession]


def test_concurrent_runs_are_always_allowed(open_session: OpenSession) -> None:
    """Otherwise ONNX Runtime holds a lock across our callbacks: a deadlock with the interpreter's."""
    session = open_session(models.square())
    provider = next(it for it in reversed(list(callbacks.held.values())) if isinstance(it, Provider))
    answer = abi.ffi.new("bool *")
    assert not provider.pointer.IsConcurrentRunSupported(provider.pointer, answer)
    assert answer[0] is True
    del session


def test_two_providers_in_one_session_share_the_nodes(
    fake: Fake, devices: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    left_out = iter(["relu", "matmul"])  # by the first provider, by the second
    monkeypatch.setattr(deciding, "Forced", lambda _names: Forced([next(left_out)]))
    alias = [it for it in ort.get_ep_devices() if it.ep_name == "WgpuExecutionProvider"]
    so = ort.SessionOptions()
    so.log_severity_level = 3
    so.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    so.add_provider_for_devices(devices[:1], {})
    so.add_provider_for_devices(alias[:1], {})
    session = ort.InferenceSession(models.chain(), so)
    placed = {
        node.name: part.ep_name for part in session.get_provider_graph_assignment_info() for node in part.get_nodes()
    }
    assert placed == {
        "mul": "WebGpuExecutionProvider",
        "matmul": "WebGpuExecutionProvider",
        "relu": "WgpuExecutionProvider",
        "add": "WebGpuExecutionProvider",
    }
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, {"x": X})[0], models.chain_reference(X), rtol=1e-4, atol=1e-5)


def test_a_machine_without_an_adapter_registers_and_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(factory, "adapters", tuple)
    for module in ("plugin.factory", "device"):
        problem = f"onnxruntime_ep_wgpu.{module}.adapters_problem"
        monkeypatch.setattr(problem, lambda: "no WebGPU adapter: install a driver")
    monkeypatch.setattr(factory.Factory, "_shown_already", lambda self: False)  # as the first registration of a process
    before = len(ort.get_ep_devices())
    ort.register_execution_provider_library("without-adapter", webgpu_ep.get_library_path())
    assert len(ort.get_ep_devices()) == before
    assert "install a driver" in capfd.readouterr().err
    ort.unregister_execution_provider_library("without-adapter")
    monkeypatch.setattr("onnxruntime_ep_wgpu.api.devices.registered", list)
    with pytest.raises(webgpu_ep.DeviceError, match="install a driver"):
        webgpu_ep.devices()


def test_an_adapter_that_onnx_runtime_sees_is_matched_by_vendor_and_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two equal cards are matched one to one; what has no match gets a device of our own."""
    seen = {10: (0x10DE, 0x2330), 11: (0x10DE, 0x2330), 12: (0x8086, 1)}
    entries: list[tuple[Any, dict[str, str]]] = []
    made: list[int] = []

    class Api:
        HardwareDevice_VendorId = staticmethod(lambda device: seen[device][0])
        HardwareDevice_DeviceId = staticmethod(lambda device: seen[device][1])

    class Ep:
        @staticmethod
        def CreateHardwareDevice(
            kind: int, vendor: int, device: int, name: Any, pairs: dict[str, str], out: Any
        ) -> None:
            assert pairs["is_virtual"] == "1"
            made.append(device)

        @staticmethod
        def CreateEpDevice(_factory: Any, hardware: Any, pairs: dict[str, str], _options: Any, out: Any) -> None:
            entries.append((hardware, pairs))

        EpDevice_AddAllocatorInfo = staticmethod(lambda *_: None)

    class Ort:
        api, ep = Api, Ep
        check_status = staticmethod(lambda status: None)
        string = staticmethod(lambda text: text)

        class pairs:
            def __init__(self, values: dict[str, str]) -> None:
                self.values = values

            def __enter__(self) -> dict[str, str]:
                return self.values

            def __exit__(self, *_: Any) -> None:
                pass

    one = factory.Factory.__new__(factory.Factory)
    one.ort, one.pointer, one._hardware, one._on = Ort(), None, [], {}  # type: ignore[assignment]
    monkeypatch.setattr(one, "memory_info", lambda _number: None)
    free = [12, 10, 11]
    limits = dict.fromkeys(LIMITS, 1)
    common = {"vendor": "v", "backend": "Vulkan", "driver": "d", "features": frozenset(), "limits": limits}
    for index, (vendor, device) in enumerate([(0x10DE, 0x2330), (0x10DE, 0x2330), (0x10005, 0)]):
        adapter = webgpu_adapter(
            index=index, name=f"gpu {index}", type="DiscreteGPU", vendor_id=vendor, device_id=device, **common
        )
        one._device(adapter, free)
    assert [hardware for hardware, _ in entries[:2]] == [10, 11]
    assert free == [12]
    assert made == [0]
    assert [pairs["adapter"] for _, pairs in entries] == ["0", "1", "2"]


LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-storage-size",
    "max-compute-workgroups-per-dimension",
    "min-storage-buffer-offset-alignment",
)


def webgpu_adapter(**fields: Any) -> Any:
    from onnxruntime_ep_wgpu.device import Adapter

    return Adapter(**fields, library=libraries.base())


def test_memory_that_belongs_to_no_session_lies_on_the_shared_context(open_session: OpenSession) -> None:
    session = open_session(models.square(), {"deviceId": "13"})
    value = ort.OrtValue.ortvalue_from_numpy(X, "webgpu", 0)
    place = memory.space().read(value.data_ptr(), X.nbytes)
    assert place.device is context_of(adapters()[0]).device()
    del session


def test_the_graphics_api_of_a_session_is_the_one_asked_for_or_an_error(devices: list[Any]) -> None:
    other = {"Vulkan": "D3D12", "D3D12": "Vulkan"}[adapters()[0].backend]
    session = webgpu_ep.session(models.square(), deviceId=15, dawnBackendType=adapters()[0].backend)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * X)
    with pytest.raises(webgpu_ep.OptionError, match=rf"'dawnBackendType': '{other}' does not reach the adapter"):
        webgpu_ep.session(models.square(), deviceId=16, dawnBackendType=other)


def test_sessions_that_contradict_each_other_about_a_device_are_refused(devices: list[Any]) -> None:
    first = webgpu_ep.session(models.square(), deviceId=17, maxStorageBuffersPerShaderStage=9)
    with pytest.raises(webgpu_ep.OptionError, match=r"'maxStorageBuffersPerShaderStage': 7 contradicts 9"):
        webgpu_ep.session(models.square(), deviceId=17, maxStorageBuffersPerShaderStage=7)
    second = webgpu_ep.session(models.square(), deviceId=17)
    np.testing.assert_array_equal(second.run(None, {"x": X})[0], X * X)
    del first, second
    gc.collect()
    third = webgpu_ep.session(models.square(), deviceId=17, maxStorageBuffersPerShaderStage=7)
    np.testing.assert_array_equal(third.run(None, {"x": X})[0], X * X)


def test_a_session_that_is_refused_leaves_nothing_behind(devices: list[Any]) -> None:
    gc.collect()  # sessions of other tests
    before = len(watch.live())
    first = webgpu_ep.session(models.square(), deviceId=19, maxStorageBuffersPerShaderStage=9)
    for _ in range(2):
        with pytest.raises(webgpu_ep.OptionError, match="contradicts 9"):
            webgpu_ep.session(models.square(), deviceId=19, maxStorageBuffersPerShaderStage=7)
    del first
    gc.collect()
    assert len(watch.live()) == before
    assert context_of(adapters()[0], 19).users == ""


def test_a_device_ends_with_its_last_session_and_its_last_tensor_unless_it_is_preserved(devices: list[Any]) -> None:
    context = context_of(adapters()[0], 18)
    session = webgpu_ep.session(models.square(), deviceId=18)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "webgpu", 0)
    session.run_with_iobinding(binding)
    value = binding.get_outputs()[0]
    held = context.current()
    assert held is not None
    used, device = weakref.ref(held), weakref.ref(held)
    del held, binding, session
    gc.collect()
    assert device() is not None
    np.testing.assert_array_equal(value.numpy(), X * X)
    del value
    gc.collect()
    assert used() is None

    kept = webgpu_ep.session(models.square(), deviceId=18, preserveDevice=True)
    device = weakref.ref(context.device())
    del kept
    gc.collect()
    assert device() is context.current() is not None


@pytest.mark.parametrize("fails", ["", "the device", "the group"])
def test_a_device_is_opened_while_a_group_is_compiled(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    """What fails is said by the thread that makes the session, which does not end while another one opens the device."""
    opening, opened = threading.Event(), threading.Event()
    open_device, compile_group = Context._open, compiling.compile_lowered

    def noted(self: Context) -> Any:
        opening.set()
        if fails == "the device":
            raise webgpu_ep.DeviceError("refused by the driver")
        device = open_device(self)
        opened.set()
        return device

    def waits(*arguments: Any) -> Any:
        assert opening.wait(patience.SECONDS), "nobody opens the device meanwhile"
        if fails == "the group":
            raise webgpu_ep.UnsupportedError("refused by the compiler")
        return compile_group(*arguments)

    monkeypatch.setattr(Context, "_open", noted)
    monkeypatch.setattr(compiling, "compile_lowered", waits)
    number = 70 + len(fails)
    if fails:
        with pytest.raises(Exception, match="refused by the"):
            webgpu_ep.session(models.chain(), deviceId=number)
        assert opened.is_set() == (fails == "the group")
    else:
        x = np.ones((5, 8), np.float32)
        (y,) = webgpu_ep.session(models.chain(), deviceId=number).run(None, {"x": x})
        np.testing.assert_allclose(y, models.chain_reference(x), rtol=1e-4, atol=1e-4)
