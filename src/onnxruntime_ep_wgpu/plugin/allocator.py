"""ONNX Runtime's allocator of device memory: sizes in, device addresses out.

Invariant: `Alloc` makes no GPU buffer, so it cannot run out of GPU memory; see `memory`. It returns NULL only if the reserved
addresses are used up. Every user of an address checks for NULL. Memory that is allocated and freed repeatedly does not reach
this code: C code handles it (`memory/pool.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._ort import ffi, lib
from ..device import release_dead
from . import watch
from .abi import Ort, address
from .callbacks import CallbackTable, callback
from .memory import pool
from .memory import space as memory

if TYPE_CHECKING:
    from ..device import Context


class Allocator(CallbackTable, struct="OrtAllocator"):
    """Allocates memory on the device of a context, which is opened on first use. `is_shared`: it belongs to no session."""

    def __init__(self, ort: Ort, info: Any, context: Context, *, is_shared: bool = False) -> None:
        super().__init__(ort)
        self._info, self._opener, self.is_shared = info, context.device, is_shared
        self._owner = pool.Owner(context)
        self._owner.number = address(self.pointer)

    @property
    def context(self) -> Context:
        """The context of new memory."""
        return self._owner.context

    def follow(self, context: Context) -> None:
        """Allocates on the device of this context from now on. Memory that was freed on the earlier one is not used again."""
        before = self._owner
        before.number = 0
        memory.space().end_pooling(owner=before)
        self._opener, self._owner = context.device, pool.Owner(context)
        self._owner.number = address(self.pointer)

    def release(self) -> None:
        self._owner.number = 0
        memory.space().end_pooling(owner=self._owner)
        super().release()

    @callback("Alloc", device=True, first="alloc")
    def alloc(self, nbytes: int) -> Any:
        space = memory.space()
        other = watch.memory() if self.is_shared else None
        if other is not None and other is not self.context and other.adapter.index == self.context.adapter.index:
            allocation = space.reserve(nbytes, other.device)
        else:
            allocation = space.reserve(nbytes, self._opener, self._owner)
        if allocation is None:
            return ffi.NULL
        pointer = ffi.cast("void *", allocation.start)
        space.begin(allocation)
        return pointer

    @callback("Reserve", device=True)
    def reserve(self, nbytes: int) -> Any:
        return self.alloc(nbytes)

    @callback("Free", device=True, first="free_range")
    def free(self, pointer: Any) -> None:
        if pointer:
            release_dead()  # releases what ended before; the buffers of this range may be used again
            memory.space().free(address(pointer), lib.wgpu_answer)

    @callback("Info")
    def info(self) -> Any:
        return self._info

    @callback("GetStats")
    def get_stats(self, out: Any) -> None:
        space = memory.space()
        stats = {"InUse": space.bytes_in_use, "MaxInUse": space.bytes_at_most, "NumAllocs": space.allocations_made}
        out[0] = self.ort.new_pairs({key: str(value) for key, value in stats.items()})
