"""The C code of a device (csrc/build_submit.py).

A module of its own, because its users need nothing else of a device, and a process that only lists devices starts quickly.
"""

from __future__ import annotations

from typing import Any, Protocol

from .. import _submit  # type: ignore[attr-defined,unused-ignore]
from ..live import LiveMap
from .webgpu.header import address

native: Any = _submit


class DeferringQueue(Protocol):
    """A queue (`queue.py`)."""

    def run_deferred(self) -> None:
        """Call this before a wait for the GPU."""


queues: LiveMap[int, DeferringQueue] = LiveMap()  # by the address of the C struct


def function_of(name: str) -> int:
    """Returns the address of a function, for other C code."""
    return address(native.ffi.addressof(native.lib, name))
