"""Work that is submitted together, and a small buffer that is read behind it: a Chain of csrc/chain.c.

In: the buffers, and host memory. Out: a number and a function for C code that knows the work (plugin/chained.py); what was read.
Invariant: one submission is on its way at a time. Nothing waits for one that is left: its staging buffer is used no more.
"""

from __future__ import annotations

from typing import Any

from .. import process
from ..errors import DeviceError
from .buffers import Buffer
from .device import Device
from .native import function_of, native
from .webgpu.header import address


class DeviceChain:
    """Fills `into` with the beginning of a buffer, behind the work. Before that, the bytes at an address of the host are written to
    the beginning of another one: `written` (buffer, address, bytes)."""

    __slots__ = ("_buffer", "_device", "_kept", "_words", "function", "into", "number")

    def __init__(
        self, device: Device, buffer: Buffer, into: Any, written: tuple[Buffer, int, int] | None = None
    ) -> None:
        nbytes = native.ffi.sizeof(into)
        staging = device.caches.default.take(nbytes, "a readback")
        first = (address(written[0].handle), *written[1:]) if written else (0, 0, 0)
        read = address(buffer.handle), address(into), nbytes
        words = native.ffi.new("Chain *", (device.queue.shared, first, read, address(staging.handle)))
        self._words = native.ffi.gc(words, native.lib.chain_end)
        self._kept = words, staging, written
        self._device, self._buffer, self.into = device, buffer, into
        self.number, self.function = address(words), function_of("submit_chain")

    def wait(self) -> None:
        """Returns when `into` is what the submission has read. Raises DeviceError, DeviceLostError."""
        if process.forked:
            process.check_not_forked()
        self._device.queue.run_deferred()
        if not native.lib.read_chain(self._words):
            self._device.queue.look()
            raise DeviceError(f"{self._buffer!r} cannot be read")
