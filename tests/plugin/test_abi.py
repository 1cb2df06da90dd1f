"""The slots that we call are the ones we mean, in every copy of ONNX Runtime, and errors cross the border as they should."""

from __future__ import annotations

import gc
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu import errors
from onnxruntime_ep_wgpu._ort import ffi, lib
from onnxruntime_ep_wgpu.plugin import abi, callbacks
from onnxruntime_ep_wgpu.plugin import node as compute
from onnxruntime_ep_wgpu.plugin.allocator import Allocator
from onnxruntime_ep_wgpu.plugin.captures import capture_slots
from onnxruntime_ep_wgpu.plugin.factory import Factory
from onnxruntime_ep_wgpu.plugin.kernels import memcpy
from onnxruntime_ep_wgpu.plugin.memory import transfer
from onnxruntime_ep_wgpu.plugin.provider import Provider

from . import models
from .c_api import Runtime, ort_abi

X = np.ones((2, 8), np.float32)


@pytest.fixture(scope="module")
def api() -> abi.Ort:
    """The copy of ONNX Runtime in the shared library; nothing was registered with it."""
    runtime = Runtime()
    return abi.Ort(ffi.cast("OrtApiBase *", runtime.library.OrtGetApiBase()))


def test_every_function_of_a_table_is_called_somewhere() -> None:
    """GetErrorCode is for tests, which look at what crosses the border."""
    root = Path(__file__).parents[2]
    sources = [*(root / "src").rglob("*.py"), *(it for it in (root / "csrc").iterdir() if it.is_file())]
    text = "\n".join(it.read_text() for it in sources if it.name != "ort_abi.py")
    named = {slot.name for table in ort_abi.CALLED.values() for slot in ort_abi.slots(table)}
    assert len(named) > 100
    assert {it for it in named if not re.search(rf"\b{it}\b", text)} == {"GetErrorCode"}


def test_the_highest_version_that_both_sides_know_is_used(api: abi.Ort) -> None:
    minor = int(ort.__version__.split(".")[1])
    assert api.version_text == ort.__version__
    assert api.version == min(minor, 29)
    assert (abi.VERSION_KNOWN, abi.VERSION_NEEDED) == (ort_abi.API_VERSION_KNOWN, ort_abi.API_VERSION_NEEDED)


def test_an_older_version_is_refused_by_name() -> None:
    class Old:
        def GetVersionString(self) -> Any:
            return ffi.new("char[]", b"1.23.2")

    with pytest.raises(abi.OrtError, match=r"1\.23\.2 is too old: install onnxruntime 1\.24\.4 or later"):
        abi.Ort(Old())


def test_a_newer_version_is_asked_for_what_we_know() -> None:
    asked = []

    class New:
        def GetVersionString(self) -> Any:
            return ffi.new("char[]", b"1.99.0")

        def GetApi(self, version: int) -> Any:
            asked.append(version)
            return type("Api", (), {"GetEpApi": staticmethod(lambda: None)})

    assert abi.Ort(New()).version == 29
    assert asked == [29]


def test_statuses_carry_code_and_message(api: abi.Ort) -> None:
    status = api.status(errors.OptionError("wrong \0 \u00e9"))
    assert api.api.GetErrorCode(status) == abi.INVALID_ARGUMENT
    with pytest.raises(abi.OrtError, match="OptionError: wrong \\? \u00e9"):
        api.check_status(status)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.OptionError(), abi.INVALID_ARGUMENT),
        (errors.InputError(), abi.INVALID_ARGUMENT),
        (errors.UnsupportedError(), abi.NOT_IMPLEMENTED),
        (errors.DeviceLostError(), abi.RUNTIME_EXCEPTION),
        (errors.LimitError(), abi.RUNTIME_EXCEPTION),
        (KeyboardInterrupt(), abi.RUNTIME_EXCEPTION),
        (MemoryError(), abi.RUNTIME_EXCEPTION),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_every_error_has_a_code_that_does_not_make_onnx_runtime_try_again_on_the_cpu(
    api: abi.Ort, error: BaseException, code: int
) -> None:
    status = api.status(error)
    assert api.api.GetErrorCode(status) == code != 11  # ORT_EP_FAIL
    api.api.ReleaseStatus(status)


def test_pairs_are_kept(api: abi.Ort) -> None:
    with api.pairs({"a": "1", "\u00e9": ""}) as pairs:
        assert api.read_pairs(pairs) == {"a": "1", "\u00e9": ""}
    assert api.read_pairs(ffi.NULL) == {}


def test_memory_information_reads_back(api: abi.Ort) -> None:
    info = ffi.new("OrtMemoryInfo **")
    api.check_status(api.api.CreateMemoryInfo_V2(api.string("WebGPU_Buf"), 1, 0, 0, 0, 0, 0, info))
    device = api.ep.MemoryInfo_GetMemoryDevice(info[0])
    assert api.ep.MemoryDevice_GetDeviceType(device) == 1
    assert (api.ep.MemoryDevice_GetVendorId(device), api.ep.MemoryDevice_GetDeviceId(device)) == (0, 0)
    api.api.ReleaseMemoryInfo(info[0])


def test_hardware_devices_read_back(api: abi.Ort) -> None:
    made = ffi.new("OrtHardwareDevice **")
    with api.pairs({"is_virtual": "1"}) as pairs:
        api.check_status(api.ep.CreateHardwareDevice(1, 0x10DE, 0x2330, api.string("vendor"), pairs, made))
    assert api.api.HardwareDevice_Type(made[0]) == 1
    assert api.api.HardwareDevice_VendorId(made[0]) == 0x10DE
    assert api.api.HardwareDevice_DeviceId(made[0]) == 0x2330
    api.ep.ReleaseHardwareDevice(made[0])


def test_the_memcpy_kernels_are_registered_for_every_type(api: abi.Ort) -> None:
    kernels = memcpy.MemcpyKernels(api, "WebGpuExecutionProvider")
    assert kernels.registry
    kernels.close()


def test_slots_are_in_order_and_named_once() -> None:
    for table in (ort_abi.CALLED | ort_abi.FILLED).values():
        found = ort_abi.slots(table)
        assert [slot.index for slot in found] == sorted({slot.index for slot in found})
        assert len({slot.name for slot in found}) == len(found)
    with pytest.raises(ValueError, match="order"):
        ort_abi.slots("1 int A(int x)\n0 int B(int x)")
    with pytest.raises(ValueError, match="not a slot"):
        ort_abi.slots("int A(int x)")


@pytest.mark.parametrize("table", ort_abi.CALLED | ort_abi.FILLED)
def test_a_slot_lies_where_its_number_says(table: str) -> None:
    """Tables are arrays of pointers; a version, and flags beside it, take the first one or two."""
    fields = dict(ffi.typeof(f"struct {table}").fields)
    for slot in ort_abi.slots((ort_abi.CALLED | ort_abi.FILLED)[table]):
        if slot.parameters is not None:
            # Flags share the version's eight bytes, so every slot after them is one pointer earlier.
            shared = any(
                other.index == 1 and other.parameters is None
                for other in ort_abi.slots((ort_abi.CALLED | ort_abi.FILLED)[table])
            )
            assert fields[slot.name].offset == 8 * (slot.index - shared)


@pytest.mark.parametrize("captures", [False, True])
def test_unused_callbacks_are_null(devices: list[Any], open_session: Any, captures: bool) -> None:
    """A slot that is filled is called; ours are the ones with a method, those about capture when the session captures."""
    session = open_session(models.square(), {"enableGraphCapture": str(int(captures))})
    provider = max((it for it in callbacks.held.values() if isinstance(it, Provider)), key=lambda it: it.number)
    names = {name for name, since, _ in Provider._slots if since <= provider.ort.version}
    if not captures:
        names -= set(capture_slots())
    assert {"GetName", "GetCapability", "Compile"} <= names
    for slot in ort_abi.slots(ort_abi.FILLED["OrtEp"]):
        if slot.parameters is not None:
            assert bool(getattr(provider.pointer, slot.name)) == (slot.name in names)
    padding = [name for name, _ in ffi.typeof("struct OrtEp").fields if name.startswith("unused")]
    assert all(not any(getattr(provider.pointer, name)) for name in padding)
    assert provider.pointer.ort_version_supported == provider.ort.version
    del session


def test_a_callback_newer_than_onnx_runtime_is_not_offered(api: abi.Ort, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "version", 24)
    allocator = ffi.new("OrtEp *")
    made = Provider.__new__(Provider)
    callbacks.CallbackTable.__init__(made, api)
    assert made.pointer.GetKernelRegistry and not made.pointer.Sync
    assert made.pointer.ort_version_supported == 24
    callbacks.CallbackTable.release(made)
    del allocator


class Interrupt(BaseException):
    """Neither an Exception nor one of ours."""


@pytest.mark.parametrize("error", [RuntimeError("broken"), Interrupt("broken"), errors.InputError("broken")])
def test_any_exception_in_a_run_is_an_error_of_that_run_only(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, open_session: Any
) -> None:
    def broken(*_: Any) -> None:
        raise error

    session = open_session(models.square(), log_severity_level=4)
    with monkeypatch.context() as patch:
        patch.setattr(compute.ComputeInfo, "compute", broken)
        with pytest.raises(Exception, match=f"{type(error).__name__}: broken"):
            session.run(None, {"x": X})
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X)


@pytest.mark.filterwarnings("ignore:Specified 'providers'")
@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (Provider, "get_kernel_registry"),
        (Provider, "create_allocator"),
        (Provider, "is_concurrent_run_supported"),
        (Provider, "get_capability"),
        (Provider, "compile"),
        (Factory, "create_ep"),
        (Factory, "create_allocator"),
        (compute.ComputeInfo, "create_state"),
        (memcpy.MemcpyKernel, "compute"),
        (transfer.DataTransfer, "copy_tensors"),
        (Allocator, "get_stats"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_an_exception_in_any_callback_ends_in_an_exception_or_a_session_that_works(
    owner: type, method: str, monkeypatch: pytest.MonkeyPatch, open_session: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """What ONNX Runtime makes of a status differs by callback; the process lives, and a result is right."""

    def broken(*_: Any) -> None:
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(owner, method, broken)
        try:
            session = open_session(models.square(), log_severity_level=4)
            np.testing.assert_array_equal(session.run(None, {"x": X})[0], X)
        except Exception as error:
            assert "broken" in str(error) or method == "create_state"
    np.testing.assert_array_equal(open_session(models.square()).run(None, {"x": X})[0], X)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (Provider, "release_node_compute_infos"),
        (Factory, "release_ep"),
        (Factory, "release_allocator"),
        (Factory, "is_stream_aware"),
        (Allocator, "free"),
        (memcpy.MemcpyKernel, "released"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_an_exception_in_a_callback_without_a_status_is_printed(
    owner: type, method: str, monkeypatch: pytest.MonkeyPatch, open_session: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(owner, method, broken)
        session = open_session(models.square())
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X)
        del session
        gc.collect()
    printed = capsys.readouterr().err
    assert not printed or "RuntimeError: broken" in printed


def test_a_run_that_fails_prints_no_notice_and_does_not_run_on_the_cpu(
    open_session: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session = open_session(models.square(), log_severity_level=4)

    def broken(*_: Any) -> None:
        raise webgpu_ep.DeviceError("broken")

    monkeypatch.setattr(compute.ComputeInfo, "compute", broken)
    with pytest.raises(Exception, match="DeviceError: broken"):
        session.run(None, {"x": X})
    assert "EP Error" not in capsys.readouterr().out
    assert session.get_providers()[0] == webgpu_ep.get_ep_name()


def test_names_are_never_null(devices: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime makes strings of them without looking."""
    for held in list(callbacks.held.values()):
        if held.struct in ("OrtEpFactory", "OrtEp"):
            assert abi.text(held.pointer.GetName(held.pointer)) in webgpu_ep.get_ep_names()


def test_an_unknown_object_is_an_error_and_not_a_crash(capfd: pytest.CaptureFixture[str]) -> None:
    stranger = ffi.new("OrtEp *")
    assert not lib.c_OrtEp_GetName(stranger)
    assert "OrtEp_GetName" in capfd.readouterr().err
