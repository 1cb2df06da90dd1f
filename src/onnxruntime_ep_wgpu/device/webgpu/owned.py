"""Native objects that Python owns: released once nothing refers to them, and never twice.

In: functions of a library that make objects. Out: their handles. A handle that dies is queued, and `let_go` releases what
is queued; it is called before every submit, when a run, a tensor or a session ends, and when a device is opened.

Invariants, which need every step to be a call from C to C, without Python code in between:

- Ctrl-C loses nothing. A KeyboardInterrupt can be raised between any two instructions of Python code in the main thread,
  after a call above all: so making an object and noting that it must be released are one call there (`own`), and so are
  taking it from the queue and releasing it.
- A finaliser cannot be interrupted, waits for no lock and calls nothing of a library, which may be busy on this thread:
  it appends to a queue.
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

# What is released first stands first: objects before what they were made of.
_KINDS = (
    "ComputePassEncoder", "CommandEncoder", "CommandBuffer", "QuerySet", "BindGroup", "ComputePipeline", "ShaderModule",
    "PipelineLayout", "BindGroupLayout", "Buffer", "Queue", "Device",
)  # fmt: skip
_types = {kind: ffi.typeof(f"WGPU{kind}") for kind in _KINDS}
_second = itemgetter(1)


class ObjectOwner:
    """The objects of one library; `lib` has its functions."""

    def __init__(self, lib: Any) -> None:
        self._lib = lib
        self._queues: dict[str, deque[Any]] = {kind: deque() for kind in _KINDS}
        self._releases = tuple((getattr(lib, f"wgpu{kind}Release"), self._queues[kind]) for kind in _KINDS)
        self._buffers = self._queues["Buffer"]
        _owners.append(self)

    def own(self, kind: str, create: Callable[..., Any], *arguments: Any) -> Any:
        """What `create(*arguments)` makes, a handle of a WGPU`kind`, released when it dies. NULL is nothing."""
        return next(map(ffi.gc, starmap(create, (arguments,)), (self._queues[kind].append,)))

    def own_address(self, kind: str, create: Callable[..., int], *arguments: Any) -> Any:
        """The same for a function that gives the handle as a number."""
        made = map(ffi.cast, (_types[kind],), starmap(create, (arguments,)))
        return next(map(ffi.gc, made, (self._queues[kind].append,)))

    def adopted(self, kind: str, handle: Any) -> Any:
        """A handle whose reference the caller gives away."""
        return ffi.gc(handle, self._queues[kind].append)

    def shared(self, kind: str, handle: Any) -> Any:
        """A handle that has another owner too: with a reference of our own."""
        add = getattr(self._lib, f"wgpu{kind}AddRef")
        both = map(_second, zip(map(add, (handle,)), (handle,), strict=True))
        return next(map(ffi.gc, both, (self._queues[kind].append,)))

    def let_go(self) -> None:
        """Releases what died."""
        if self._buffers:
            for dependent in _dependents:
                dependent.buffers_ended()
        for release, queue in self._releases:
            if queue:
                with contextlib.suppress(IndexError):  # empty
                    # filter: NULL, for what could not be made.
                    deque(map(release, filter(None, iter(queue.popleft, None))), maxlen=0)


class Dependent(Protocol):
    """Something that is of no use without certain buffers."""

    def buffers_ended(self) -> None:
        """Some buffers have died, maybe one of its own."""


_owners: list[ObjectOwner] = []
_dependents: LiveSet[Dependent] = LiveSet()


def depend(dependent: Dependent) -> None:
    """From here on `dependent` is notified, for as long as it lives."""
    _dependents.add(dependent)


def let_go() -> None:
    """Releases what died. Takes no lock; may be called on any thread, in a finaliser too."""
    if not process.forked:
        for owner in _owners:
            owner.let_go()
