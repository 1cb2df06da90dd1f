"""The uniform blocks of a plan in as few buffers as possible.

In: the numbers (u32) that each dispatch reads. Out: per dispatch the part of a buffer to bind. Invariant: a dispatch binds
its own block alone, so only that is held to the limit of a uniform binding; a buffer may be as large as buffers may be.
Dispatches with equal numbers, as the layers of a transformer have, share a block.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ..device import Buffer, BufferBinding, Device
from ..errors import LimitError
from ..live import LiveSet

ALIGNMENT = 256  # bytes; every adapter allows uniform offsets at this multiple


class UniformBuffers:
    """Blocks on a device, in buffers of its uniform cache."""

    def __init__(self, device: Device, blocks: Sequence[Sequence[int]]) -> None:
        """`blocks[n]` are the numbers of dispatch n. Raises LimitError for a block that cannot be bound."""
        self.buffers: list[Buffer] = []
        self.users: LiveSet[object] = LiveSet()  # plans
        self._device = device
        self._places: dict[
            tuple[int, ...], tuple[int, int]
        ] = {}  # the buffer's place in `buffers`, and the offset in it
        most = min(65536, device.adapter.limits["max-uniform-buffer-binding-size"])
        data = bytearray()
        for values in map(tuple, blocks):
            if not values or values in self._places:
                continue
            if binding_bytes(len(values)) > most:
                raise LimitError(
                    f"a kernel reads {len(values)} numbers of 4 bytes from its uniforms; the adapter"
                    f" {device.adapter.name!r} binds {most} bytes (max-uniform-buffer-binding-size)"
                )
            if len(data) + binding_bytes(len(values)) > device.target.max_buffer_bytes:
                self._write(data)
                data = bytearray()
            self._places[values] = len(self.buffers), len(data)
            data += struct.pack(f"<{len(values)}I", *values)
            data += b"\0" * (-len(data) % ALIGNMENT)
        if data:
            self._write(data)

    def _write(self, data: bytearray) -> None:
        self.buffers.append(self._device.memory.uniform(bytes(data)))

    def entry(self, values: Sequence[int]) -> BufferBinding:
        """What to bind for a dispatch that reads these numbers."""
        number, offset = self._places[tuple(values)]
        return BufferBinding(self.buffers[number], offset, binding_bytes(len(values)))

    def leave(self, user: object) -> None:
        """`user` will submit no more work with them; the last one gives the buffers back."""
        self.users.discard(user)
        if not self.users:
            self.give_back()

    def give_back(self) -> None:
        """Gives the buffers back to their cache: no more work with them will be submitted."""
        buffers, self.buffers = self.buffers, []
        for buffer in buffers:
            self._device.caches.uniform.give(buffer)


def binding_bytes(count: int) -> int:
    """Bytes that a block of `count` numbers binds: whole vectors of 16 bytes."""
    return -(-4 * count // 16) * 16
