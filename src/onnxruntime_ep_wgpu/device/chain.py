"""Work in one submission with a small readback at its end: a Chain of csrc/chain.c.

In: the buffers, and host memory. Out: a number and a function for the C code that has the work (plugin/chained.py), and the bytes
read. Invariant: one submission is in flight at a time. If it is abandoned, nothing waits for it, and its staging buffer is not
reused.
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
    """Reads the beginning of `buffer` into `into` after the work.

    `written` (buffer, host address, bytes): before the work, these bytes are written to the beginning of that buffer.
    """

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
        """Returns when `into` has the bytes that the submission read. Raises DeviceError, DeviceLostError."""
        if process.is_forked:
            process.check_not_forked()
        self._device.queue.run_deferred()
        if not native.lib.read_chain(self._words):
            self._device.queue.check_loss()
            raise DeviceError(f"{self._buffer!r} cannot be read")
