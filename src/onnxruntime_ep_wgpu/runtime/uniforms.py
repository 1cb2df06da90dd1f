"""The uniform blocks of a plan in as few buffers as possible.

In: the numbers (u32) that each dispatch reads. Out: per dispatch the range of a buffer to bind. Invariant: a dispatch binds only
its own block, so the limit of uniform bindings applies to blocks and not to buffers. Dispatches with equal numbers, such as the
layers of a transformer, share a block. In a series they share it if their numbers are equal for all sizes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import numpy as np

from ..device import Buffer, BufferBinding, Device
from ..errors import LimitError
from ..live import LiveSet
from ..program.series import Block, Numbers

ALIGNMENT = 256  # bytes; every adapter allows uniform offsets at its multiples
Key = tuple[int, ...] | Block
"""The block of a dispatch: its numbers, or a block of a series."""


class UniformBuffers:
    """Blocks on a device, in buffers of its uniform cache."""

    def __init__(self, device: Device, blocks: Mapping[Key, Sequence[int]]) -> None:
        """`blocks` has the numbers of each block. Those of a series, which differ for each of its sizes, come first.

        Raises LimitError for a block that cannot be bound.
        """
        self.buffers: list[Buffer] = []
        self.users: LiveSet[object] = LiveSet()  # the plans
        self._device = device
        self._places: dict[
            Key, tuple[int, int, int]
        ] = {}  # the buffer's place in `buffers`, the offset in it, and bytes
        most = min(65536, device.adapter.limits["max-uniform-buffer-binding-size"])
        data = bytearray()
        for key, values in blocks.items():
            if not values:
                continue
            nbytes = binding_bytes(len(values))
            if nbytes > most:
                raise LimitError(
                    f"a kernel reads {len(values)} numbers of 4 bytes from its uniforms; the adapter"
                    f" {device.adapter.name!r} binds {most} bytes (max-uniform-buffer-binding-size)"
                )
            if len(data) + nbytes > device.target.max_buffer_bytes:
                self._write(data)
                data = bytearray()
            self._places[key] = len(self.buffers), len(data), nbytes
            data += struct.pack(f"<{len(values)}I", *values)
            data += b"\0" * (-len(data) % ALIGNMENT)
        if data:
            self._write(data)

    def _write(self, data: bytearray) -> None:
        self.buffers.append(self._device.memory.uniform(bytes(data)))

    def entry(self, key: Key) -> BufferBinding:
        """Returns the binding for a dispatch that reads this block."""
        number, offset, nbytes = self._places[key]
        return BufferBinding(self.buffers[number], offset, nbytes)

    def rows(self, count: int) -> list[tuple[Buffer, Numbers]]:
        """Returns the contents of buffers for each of the `count` sizes of a series, from their beginning on (sizes, bytes)."""
        series = [(key, *place) for key, place in self._places.items() if isinstance(key, Block)]
        found = []
        for number, buffer in enumerate(self.buffers):
            own = [(key, offset, nbytes) for key, place, offset, nbytes in series if place == number]
            if own:
                made = np.zeros((count, max(offset + nbytes for _, offset, nbytes in own)), np.uint8)
                for key, offset, _ in own:
                    made[:, offset : offset + 4 * key.words.shape[1]] = key.words.view(np.uint8)
                found.append((buffer, made))
        return found

    def leave(self, user: object) -> None:
        """Call this when `user` will submit no more work with the buffers. The last one returns them to the cache."""
        self.users.discard(user)
        if not self.users:
            self.give_back()

    def give_back(self) -> None:
        """Returns the buffers to their cache. No more work with them may be submitted."""
        buffers, self.buffers = self.buffers, []
        for buffer in buffers:
            self._device.caches.uniform.give(buffer)


def binding_bytes(count: int) -> int:
    """Bytes of the binding of a block of `count` numbers: whole vectors of 16 bytes."""
    return -(-4 * count // 16) * 16
