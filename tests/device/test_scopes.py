"""Error scopes: an error belongs to the work that caused it, and no interrupt leaves a scope behind."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from onnxruntime_ep_wgpu.device import Device, scopes
from onnxruntime_ep_wgpu.device.webgpu.header import USAGE_MAP_READ, new
from onnxruntime_ep_wgpu.device.webgpu.messages import errors
from onnxruntime_ep_wgpu.errors import DeviceError

MAP_WRITE = 0x2


def invalid(device: Device) -> str:
    """Makes a buffer that may not be; returns "made"."""
    descriptor = new("WGPUBufferDescriptor *")
    descriptor.size, descriptor.usage = 16, USAGE_MAP_READ | MAP_WRITE
    device.queue.owner.own("Buffer", device.queue.lib.wgpuDeviceCreateBuffer, device.handle, descriptor)
    return "made"


@pytest.fixture
def quiet(device: Device) -> Iterator[Device]:
    errors.take(device.handle)
    yield device
    errors.take(device.handle)


def reaches_the_device(device: Device) -> bool:
    """Whether an error outside of every scope is told to the device."""
    invalid(device)
    return bool(errors.take(device.handle))


def test_an_error_is_that_of_the_work_and_does_not_reach_the_device(quiet: Device) -> None:
    assert reaches_the_device(quiet)
    with pytest.raises(DeviceError, match="the copy: Validation error"):
        scopes.in_error_scope(quiet.queue.library, quiet.handle, "the copy", invalid, quiet)
    assert not errors.take(quiet.handle)
    assert scopes.in_error_scope(quiet.queue.library, quiet.handle, "the copy", lambda: 3) == 3
    assert reaches_the_device(quiet)


def test_what_the_work_raises_ends_the_scope(quiet: Device) -> None:
    def work() -> None:
        raise ValueError("its own")

    for _ in range(3):
        with pytest.raises(ValueError, match="its own"):
            scopes.in_error_scope(quiet.queue.library, quiet.handle, "the copy", work)
    assert reaches_the_device(quiet)


class Interrupt:
    """Raises KeyboardInterrupt before instruction number `at` of the Python code of error scopes."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if frame.f_code.co_filename != scopes.__file__:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            self.left -= 1
            if self.left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self


def test_an_interrupt_before_any_instruction_leaves_no_scope_behind(quiet: Device) -> None:
    before = sys.gettrace()
    sys.settrace(Interrupt(1 << 30))  # Python 3.12 tells of instructions from the second time on
    scopes.in_error_scope(quiet.queue.library, quiet.handle, "the copy", lambda: True)
    at, caught, done = 0, [], False
    while not done:
        sys.settrace(Interrupt(at))
        try:
            done = scopes.in_error_scope(quiet.queue.library, quiet.handle, "the copy", lambda: True)
        except KeyboardInterrupt as interrupt:
            caught.append(interrupt)  # with the frames that it left, as whoever handles it may have them
        finally:
            sys.settrace(before)
        assert reaches_the_device(quiet), f"before instruction {at} of {scopes.__name__}"
        at += 1
    assert len(caught) == at - 1 > 50
