"""Successive runs that C code repeats in one submission, such as a decoder's step and the choice of a token from its logits.

In: the runs that C code has done on a thread (csrc/runs.c). Out: the same runs in one submission, without ONNX Runtime, and a
small tensor that is read after them. Invariants: such runs read and write only tensors of their caller, which stay in place.
They write all results of their sessions, so no other node affects them. They are repeated only as long as their memos are
valid.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from .._ort import ffi, lib
from ..device.chain import DeviceChain
from .abi import address
from .memo import Memos, nodes
from .memory import space as memory
from .memory.allocation import PLACE


class HostBytes(NamedTuple):
    """Bytes on the host that are written to the tensor at an address before each submission."""

    at: int
    source: int
    nbytes: int


class PastRuns(NamedTuple):
    """Runs in the records of the C code, their `number`, and the owners of their nodes."""

    rows: Any
    number: int
    owners: Sequence[Memos]


def runs_done() -> int:
    """Returns how many runs of compiled nodes this thread has done."""
    return int(lib.past_runs(ffi.NULL, 0))


def runs_since(before: int) -> PastRuns | None:
    """Returns this thread's runs after the first `before`, in order; None if Python did one, or for none or too many."""
    count = runs_done() - before
    if not 0 < count <= lib.MOST_CHAINED:
        return None
    rows = ffi.new("PastRun[]", count)
    lib.past_runs(rows, count)
    owners = [it for it in (nodes.get(address(row.node)) for row in rows) if it is not None]
    return PastRuns(rows, count, owners) if len(owners) == count else None


class ChainedRuns:
    """Successive runs of C code, and the 64-bit integers that are read after them.

    `place`: the mark of the integers' memory when their place in the chain's buffer was found.
    """

    __slots__ = ("_chain", "_count", "_kept", "_marks", "_place", "_words")

    def __init__(
        self, rows: Any, count: int, chain: DeviceChain, marks: array[int], place: int, kept: Sequence[Any]
    ) -> None:
        self._marks, self._place = marks, place
        submit = ffi.cast("int (*)(void *, void *const *, const size_t *, size_t)", chain.function)
        self._chain, self._count, self._kept = chain, len(chain.into), (rows, kept)
        self._words = ffi.new("ChainedRuns *", (rows, count, submit, ffi.cast("void *", chain.number)))

    @property
    def is_in_place(self) -> bool:
        """Whether the integers are still at that place."""
        return self._marks[PLACE] == self._place

    def submit(self) -> bool:
        """Repeats the runs, and returns whether it did. If not, nothing has run, and ONNX Runtime can still run them."""
        return self.is_in_place and bool(lib.run_chained(self._words))

    def wait(self) -> list[int]:
        """Returns the integers that were read after the last runs. Raises DeviceError, DeviceLostError."""
        self._chain.wait()
        found: list[int] = ffi.unpack(self._chain.into, self._count)
        return found


def chained(
    runs: Sequence[PastRuns],
    results: Sequence[int],
    others: Sequence[int],
    read: int,
    count: int,
    written: HostBytes | None,
) -> ChainedRuns | None:
    """Returns an object that does these runs in order, all or none; None if that is not possible.

    `results`: the addresses of the results of their sessions. `others`: the addresses of the other tensors that they read.
    `count` 64-bit integers at `read` are read after the runs.
    """
    number = sum(it.number for it in runs)
    if number > lib.MOST_CHAINED:
        return None
    rows = ffi.new("PastRun[]", [row for it in runs for row in it.rows])
    addresses = ffi.new("void *[]", [ffi.cast("void *", it) for it in (*results, *others)])
    if not lib.are_all(rows, number, addresses, len(addresses), len(results)):
        return None
    into = ffi.new("int64_t[]", count)
    space = memory.space()
    space.read(read, ffi.sizeof(into))  # from now on it is in one piece
    marked = space.marked(read, ffi.sizeof(into))
    if marked.at is None:
        return None
    device, (buffer, offset) = marked.at
    first = None
    if written is not None:
        there, place = space.write(written.at, written.nbytes)
        if there is not device or place.offset:
            return None
        first = place.buffer, written.source, written.nbytes
    if offset:
        return None
    owners = [it.owners for it in runs]
    return ChainedRuns(rows, number, DeviceChain(device, buffer, into, first), marked.marks, marked.place, owners)
