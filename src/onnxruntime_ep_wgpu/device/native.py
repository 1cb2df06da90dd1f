"""The C code of a device (csrc/build_submit.py), for what needs nothing else of one: a process that only lists devices is quick."""

from __future__ import annotations

from typing import Any, Protocol

from .. import _submit  # type: ignore[attr-defined,unused-ignore]
from ..live import LiveMap
from .webgpu.header import address

native: Any = _submit


class DeferringQueue(Protocol):
    """A queue (`queue.py`)."""

    def run_deferred(self) -> None:
        """For a thread that is about to wait for the GPU."""


queues: LiveMap[int, DeferringQueue] = LiveMap()  # by the address of their C struct


def function_of(name: str) -> int:
    """The address of a function, for other C code."""
    return address(native.ffi.addressof(native.lib, name))
