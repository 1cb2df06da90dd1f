"""Contexts: which sessions share a device, with which settings, and for how long the device lives."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from onnxruntime_ep_wgpu.device import Context, Settings, adapters, context_of, open_device
from onnxruntime_ep_wgpu.device.contexts import Opening
from onnxruntime_ep_wgpu.errors import DeviceError, DeviceLostError, OptionError

NINE = Settings(storage_buffers=9)


@pytest.fixture
def context(request: Any) -> Context:
    """A context that no other test uses."""
    return context_of(adapters()[0], 2_000_000 + hash(request.node.name) % 1_000_000)


def test_sessions_with_one_number_share_a_device_and_its_caches(context: Context) -> None:
    one = context.join()
    other = context.join()
    assert context.device() is context.device()
    assert context.device() is open_device(context.adapter, context.number)
    assert context.device() is not open_device(context.adapter, context.number + 1)
    one.leave()
    other.leave()


def test_the_device_ends_with_the_last_session_without_the_help_of_the_collector(context: Context) -> None:
    one = context.join()
    other = context.join()
    device = weakref.ref(context.device())
    gc.disable()
    try:
        one.leave()
        assert device() is not None
        other.leave()
        assert device() is None
    finally:
        gc.enable()


def test_a_session_that_is_forgotten_before_it_could_leave_has_left(context: Context) -> None:
    """As by an interrupt between joining and keeping the result."""
    context.join(NINE)
    assert (context.sessions, context.users) == (0, "")
    member = context.join(NINE)
    device = weakref.ref(context.device())
    assert context.sessions == 1
    del member
    assert (context.sessions, device()) == (0, None)


def test_a_preserved_device_stays_after_the_last_session(context: Context) -> None:
    one = context.join(preserve=True)
    device = weakref.ref(context.device())
    one.leave()
    assert device() is context.current()
    other = context.join()
    other.leave()
    assert context.device() is device()


def test_what_holds_the_device_keeps_it_after_the_last_session(context: Context) -> None:
    one = context.join()
    held = context.device()
    one.leave()
    other = context.join()
    assert context.device() is held
    other.leave()


def test_other_settings_on_a_context_in_use_are_refused_with_both_values(context: Context) -> None:
    one = context.join(NINE)
    with pytest.raises(OptionError, match=r"'maxStorageBuffersPerShaderStage': 8 contradicts 9.*1 session.*deviceId"):
        context.join(Settings(storage_buffers=8))
    assert context.sessions == 1
    one.leave()


def test_tensors_alone_hold_a_context_to_its_settings(context: Context) -> None:
    held = context.device()
    with pytest.raises(OptionError, match="tensors use"):
        context.join(NINE)
    del held
    one = context.join(NINE)
    assert context.device().target.max_storage_buffers == min(
        9, context.adapter.limits["max-storage-buffers-per-shader-stage"]
    )
    one.leave()


def test_a_session_that_does_not_ask_takes_the_context_as_it_is(context: Context) -> None:
    one = context.join(NINE)
    other = context.join(Settings(), fields_set=())
    assert context.settings == NINE
    one.leave()
    other.leave()
    third = context.join(Settings(), fields_set=())
    assert context.settings == Settings()
    third.leave()


def test_a_lost_device_is_made_anew_with_the_same_settings(context: Context) -> None:
    one = context.join(NINE)
    lost = context.device()
    lost.queue.lib.wgpuDeviceDestroy(lost.handle)
    with pytest.raises(DeviceLostError):
        lost.submit(())
    assert context.device() is not lost
    assert context.device().target == lost.target
    one.leave()


def test_devices_come_and_go_under_many_threads(context: Context) -> None:
    """Whoever gets the device can use it, also when it ends in another thread at that moment."""
    data = bytes(range(64))

    def work(_: int) -> bytes:
        for _ in range(20):
            device = context.device()
            buffer = device.buffer(64)
            device.upload(buffer, 0, data)
            into = bytearray(64)
            device.download(buffer, 0, memoryview(into))
            del device, buffer
        return bytes(into)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [data] * 8


def test_a_device_that_is_opened_ahead_is_the_one_of_the_context(context: Context) -> None:
    member = context.join()
    opening = context.open_ahead()
    device = context.device()
    opening.end()
    assert context.current() is device and member.device is device
    member.leave()


def test_what_nobody_wants_any_more_is_not_opened(context: Context) -> None:
    member = context.join()
    opening = Opening(context)
    opening.end()
    opening.open()
    assert context.current() is None
    member.leave()


def test_what_fails_ahead_is_said_when_the_device_is_used(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_context: Context) -> Any:
        raise DeviceError("refused")

    member = context.join()
    monkeypatch.setattr(Context, "_open", refuse)
    context.open_ahead().end()
    with pytest.raises(DeviceError, match="refused"):
        context.device()
    member.leave()
