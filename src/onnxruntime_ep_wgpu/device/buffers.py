"""GPU memory. In: wgpu-native's buffers. Out: `Buffer` objects, which give their memory back when nothing uses them.

Invariant: a buffer is never destroyed, only released when nothing refers to it (see `owned`); wgpu-native keeps the memory
until the submitted work that uses it is done.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

_numbers = itertools.count(1)


class Buffer:
    """`size` bytes on the GPU (a multiple of 16), for storage bindings and for copies from and to; zero at first.

    `handle` is wgpu-native's object, which the buffer owns. Two buffers are equal only when they are the same buffer;
    `number` is never another one's. A buffer that is `lent` is known outside this package, and so never used again for
    something else.
    """

    __slots__ = ("__weakref__", "handle", "label", "lent", "number", "size", "usage")

    def __init__(self, handle: Any, size: int, usage: int, label: str, lent: bool = False) -> None:
        self.handle = handle
        self.size = size
        self.usage = usage
        self.label = label
        self.lent = lent
        self.number = next(_numbers)

    def __repr__(self) -> str:
        return f"Buffer({self.label!r}, {self.size} bytes)"


class Place(NamedTuple):
    """Where a tensor lies: in `buffer`, from byte `offset` on."""

    buffer: Buffer
    offset: int


class BufferBinding(NamedTuple):
    """What a dispatch binds: `size` bytes of `buffer` from byte `offset` on."""

    buffer: Buffer
    offset: int
    size: int
