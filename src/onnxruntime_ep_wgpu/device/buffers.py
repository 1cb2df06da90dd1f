"""GPU memory. In: wgpu-native's buffers. Out: `Buffer` objects, which give their memory back when nothing uses them.

Invariant: a buffer is never destroyed, only released when nothing refers to it; wgpu-native keeps the memory until the
submitted work that uses it is done. Releases are queued, so that no finaliser enters wgpu-native during another call.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from .native import lib


class Releases:
    """Objects to release, filed by finalisers on any thread and released under the device lock.

    `buffers` and `nbytes` count the buffers released so far.
    """

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self.buffers = 0
        self.nbytes = 0
        self._queue: deque[tuple[Callable[[Any], None], Any, int]] = deque()

    def drain(self) -> None:
        """Releases everything filed so far. The caller holds the device lock."""
        queue = self._queue
        while queue:
            release, handle, nbytes = queue.popleft()
            release(handle)
            if nbytes:
                self.buffers += 1
                self.nbytes += nbytes

    def add(self, release: Callable[[Any], None], handle: Any, nbytes: int = 0) -> None:
        """Files `handle` (`nbytes` of GPU memory when it is a buffer); releases at once when nobody uses the device.

        Safe in a finaliser: it never waits.
        """
        self._queue.append((release, handle, nbytes))
        if self._lock.acquire(blocking=False):
            try:
                self.drain()
            finally:
                self._lock.release()


class Buffer:
    """`size` bytes on the GPU (a multiple of 16), for storage bindings and for copies from and to; zero at first.

    `handle` is wgpu-native's object. Two buffers are equal only when they are the same buffer. A buffer that is `lent` is
    known outside this package, and so never used again for something else.
    """

    __slots__ = ("__weakref__", "_counted", "_release", "handle", "label", "lent", "size", "usage")

    def __init__(self, handle: Any, size: int, usage: int, label: str, releases: Releases, lent: bool = False) -> None:
        self.handle = handle
        self.size = size
        self.usage = usage
        self.label = label
        self.lent = lent
        # What was made elsewhere is not in the device's account.
        self._counted = 0 if lent else size
        self._release = releases.add

    def __del__(self, native: Any = lib.wgpuBufferRelease) -> None:
        # Bound when the class is made: at interpreter exit this module's names are gone before the last objects are.
        handle = getattr(self, "handle", None)
        if handle is not None:
            # A weak reference may give the buffer to another thread even now: it can see that it is gone.
            self.handle = None
            self._release(native, handle, self._counted)

    def __repr__(self) -> str:
        return f"Buffer({self.label!r}, {self.size} bytes)"
