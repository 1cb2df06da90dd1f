"""Native objects that Python owns. They are released exactly once, after nothing refers to them.

In: functions of a library that make objects. Out: their handles. A dead handle is queued, and `release_dead` releases the
queued ones. It is called before every submit, when a run, a tensor or a session ends, and when a device is opened.

Invariants, for which every step is a call from C to C, without Python code in between:

- Ctrl-C leaks nothing. In the main thread, a KeyboardInterrupt can be raised between any two instructions of Python code, and
  after every call. Therefore one call makes an object and registers its release (`own`). Likewise, one call takes an object from
  the queue and releases it.
- A finaliser cannot be interrupted and takes no lock. It calls no function of a library, which may be active on this thread. It
  only appends to a queue.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from itertools import starmap
from operator import itemgetter
from typing import Any, Protocol

from ... import process
from ...live import LiveSet
from .header import ffi

# In the order of release: objects before those that they were made from.
_KINDS = (
    "ComputePassEncoder", "CommandEncoder", "CommandBuffer", "QuerySet", "BindGroup", "ComputePipeline", "ShaderModule",
    "PipelineLayout", "BindGroupLayout", "Buffer", "Queue", "Device",
)  # fmt: skip
_types = {kind: ffi.typeof(f"WGPU{kind}") for kind in _KINDS}
_second = itemgetter(1)


class ObjectOwner:
    """Owns the objects of one library. `lib` has its functions."""

    def __init__(self, lib: Any) -> None:
        self._lib = lib
        self._queues: dict[str, deque[Any]] = {kind: deque() for kind in _KINDS}
        self._releases = tuple((getattr(lib, f"wgpu{kind}Release"), self._queues[kind]) for kind in _KINDS)
        self._buffers = self._queues["Buffer"]
        _owners.append(self)

    def own(self, kind: str, create: Callable[..., Any], *arguments: Any) -> Any:
        """Returns the handle of a WGPU`kind` that `create(*arguments)` makes. It is released when it dies. NULL is allowed."""
        return next(map(ffi.gc, starmap(create, (arguments,)), (self._queues[kind].append,)))

    def own_address(self, kind: str, create: Callable[..., int], *arguments: Any) -> Any:
        """Like `own`, for a function that returns the handle as a number."""
        made = map(ffi.cast, (_types[kind],), starmap(create, (arguments,)))
        return next(map(ffi.gc, made, (self._queues[kind].append,)))

    def adopted(self, kind: str, handle: Any) -> Any:
        """Takes over the caller's reference to a handle."""
        return ffi.gc(handle, self._queues[kind].append)

    def shared(self, kind: str, handle: Any) -> Any:
        """Adds a reference of our own to a handle that has another owner."""
        add = getattr(self._lib, f"wgpu{kind}AddRef")
        both = map(_second, zip(map(add, (handle,)), (handle,), strict=True))
        return next(map(ffi.gc, both, (self._queues[kind].append,)))

    def release_dead(self) -> None:
        """Releases the dead objects."""
        if self._buffers:
            for dependent in _dependents:
                dependent.buffers_ended()
        for release, queue in self._releases:
            if queue:
                with contextlib.suppress(IndexError):  # empty
                    # `filter` skips NULL, the handle of an object that could not be made.
                    deque(map(release, filter(None, iter(queue.popleft, None))), maxlen=0)


class Dependent(Protocol):
    """An object that is useless without certain buffers."""

    def buffers_ended(self) -> None:
        """Some buffers have died, perhaps one of this object."""


_owners: list[ObjectOwner] = []
_dependents: LiveSet[Dependent] = LiveSet()


def depend(dependent: Dependent) -> None:
    """Registers a dependent, which is notified as long as it lives."""
    _dependents.add(dependent)


def release_dead() -> None:
    """Releases the dead objects of all libraries. Takes no lock; any thread and any finaliser may call it."""
    if not process.is_forked:
        for owner in _owners:
            owner.release_dead()
