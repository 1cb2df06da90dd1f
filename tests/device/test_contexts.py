"""Contexts: which sessions share a device, with which settings, and for how long the device lives."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from onnxruntime_ep_wgpu.device import Context, Settings, adapters, context_of, open_device
from onnxruntime_ep_wgpu.device.native import lib
from onnxruntime_ep_wgpu.errors import DeviceLostError, OptionError

NINE = Settings(storage_buffers=9)


@pytest.fixture
def context(request: Any) -> Context:
    """A context that no other test uses."""
    return context_of(adapters()[0], 2_000_000 + hash(request.node.name) % 1_000_000)


def test_sessions_with_one_number_share_a_device_and_its_caches(context: Context) -> None:
    context.join()
    context.join()
    assert context.device() is context.device()
    assert context.device() is open_device(context.adapter, context.number)
    assert context.device() is not open_device(context.adapter, context.number + 1)
    context.leave()
    context.leave()


def test_the_device_ends_with_the_last_session_without_the_help_of_the_collector(context: Context) -> None:
    context.join()
    context.join()
    device = weakref.ref(context.device())
    gc.disable()
    try:
        context.leave()
        assert device() is not None
        context.leave()
        assert device() is None
    finally:
        gc.enable()


def test_a_preserved_device_stays_after_the_last_session(context: Context) -> None:
    context.join(preserve=True)
    device = weakref.ref(context.device())
    context.leave()
    assert device() is context.current()
    context.join()
    context.leave()
    assert context.device() is device()


def test_what_holds_the_device_keeps_it_after_the_last_session(context: Context) -> None:
    context.join()
    held = context.device()
    context.leave()
    context.join()
    assert context.device() is held
    context.leave()


def test_other_settings_on_a_context_in_use_are_refused_with_both_values(context: Context) -> None:
    context.join(NINE)
    with pytest.raises(OptionError, match=r"'maxStorageBuffersPerShaderStage': 8 contradicts 9.*1 session.*deviceId"):
        context.join(Settings(storage_buffers=8))
    assert context.sessions == 1
    context.leave()


def test_tensors_alone_hold_a_context_to_its_settings(context: Context) -> None:
    held = context.device()
    with pytest.raises(OptionError, match="tensors use"):
        context.join(NINE)
    del held
    context.join(NINE)
    assert context.device().target.max_storage_buffers == min(
        9, context.adapter.limits["max-storage-buffers-per-shader-stage"]
    )
    context.leave()


def test_a_session_that_does_not_ask_takes_the_context_as_it_is(context: Context) -> None:
    context.join(NINE)
    context.join(Settings(), asked=())
    assert context.settings == NINE
    context.leave()
    context.leave()
    context.join(Settings(), asked=())
    assert context.settings == Settings()
    context.leave()


def test_a_lost_device_is_made_anew_with_the_same_settings(context: Context) -> None:
    context.join(NINE)
    lost = context.device()
    lib.wgpuDeviceDestroy(lost._handle)
    with pytest.raises(DeviceLostError):
        lost.submit(())
    assert context.device() is not lost
    assert context.device().target == lost.target
    context.leave()
