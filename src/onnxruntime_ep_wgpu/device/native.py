"""The C code that submits (csrc/submit.c), for what needs nothing else of a device: a process that only lists devices is quick."""

from __future__ import annotations

from typing import Any

from .. import _submit  # type: ignore[attr-defined,unused-ignore]
from .webgpu.header import address

native: Any = _submit


def upload_function() -> int:
    """What C code calls to write to a buffer (`upload` of csrc/submit.c)."""
    return address(native.ffi.addressof(native.lib, "upload"))
