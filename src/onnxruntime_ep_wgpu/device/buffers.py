"""GPU memory. In: buffer handles of a WebGPU library. Out: `Buffer` objects, which free their memory when they are unreferenced.

Invariant: a buffer is never destroyed, only released when nothing refers to it (see `owned`). The library keeps the memory until
the submitted work that uses it is done.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

_numbers = itertools.count(1)


class Buffer:
    """`size` bytes on the GPU (a multiple of 16), zero at first. Usable as a storage binding, copy source and copy destination.

    The buffer owns `handle`, the library's object. Buffers are compared by identity, and `number` is unique. A buffer that is
    `lent` is referenced outside this package, so it is never reused.
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
    """The location of a tensor: `offset` bytes into `buffer`."""

    buffer: Buffer
    offset: int


class BufferBinding(NamedTuple):
    """The range that a dispatch binds: `size` bytes of `buffer`, starting at byte `offset`."""

    buffer: Buffer
    offset: int
    size: int
