"""The device of a session is opened while ONNX Runtime reads the model, once, and stays where something runs on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.api.reports import state_of
from onnxruntime_ep_wgpu.device import Context, contexts
from onnxruntime_ep_wgpu.errors import DeviceError

from . import models

NUMBERS = 8_421_000  # of contexts that no other test uses


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of contexts whose devices were opened."""
    found: list[int] = []
    open_now = Context._open

    def noted(context: Context) -> Any:
        found.append(context.number)
        return open_now(context)

    monkeypatch.setattr(Context, "_open", noted)
    return found


@pytest.mark.parametrize("own", [False, True], ids=["session()", "with SessionOptions"])
def test_a_session_takes_the_device_that_was_opened_meanwhile(opened: list[int], own: bool) -> None:
    number = NUMBERS + own
    session = webgpu_ep.session(
        models.square(), sess_options=ort.SessionOptions() if own else None, deviceId=number, allow_cpu_only=False
    )
    context = state_of(session).context
    assert opened.count(number) == 1 and context.current() is not None
    del session
    assert context.current() is None and context.users == ""


def test_a_session_without_a_group_keeps_no_device(opened: list[int]) -> None:
    session = webgpu_ep.session(models.doubles(), deviceId=NUMBERS + 2, forceCpuNodeNames="double")
    context = state_of(session).context
    assert context.sessions == 1 and context.current() is None


def test_a_thread_that_begins_late_opens_no_device(opened: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    late: list[Callable[[], None]] = []
    monkeypatch.setattr(contexts, "start_ahead", late.append)
    session = webgpu_ep.session(models.doubles(), deviceId=NUMBERS + 4, forceCpuNodeNames="double")
    for begin in late:
        begin()
    assert late and opened.count(NUMBERS + 4) == 1 and state_of(session).context.current() is None


def test_a_device_that_cannot_be_opened_is_the_session_s_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_context: Context) -> Any:
        raise DeviceError("the driver is away")

    monkeypatch.setattr(Context, "_open", refuse)
    with pytest.raises(DeviceError, match="the driver is away"):
        webgpu_ep.session(models.square(), deviceId=NUMBERS + 3)
