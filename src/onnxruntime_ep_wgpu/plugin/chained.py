"""Runs that follow each other again and again, as a decoder's step and what picks from its logits, for C code to do at once.

In: the runs that C code has done on a thread (csrc/runs.c). Out: the same again in one submission, and a small tensor that is read
behind them, without ONNX Runtime. Invariants: such runs read and write tensors of their caller alone, which stays where they are,
and write all of its results: so no other node of their sessions matters. They are done again only while their memos stand.
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


class Written(NamedTuple):
    """Bytes of the host that the tensor at an address gets before each submission."""

    at: int
    source: int
    nbytes: int


class PastRuns(NamedTuple):
    """Runs as C code has done them, `number` of them, and the owners of their nodes."""

    rows: Any
    number: int
    owners: Sequence[Memos]


def done() -> int:
    """How many runs of compiled nodes this thread has done."""
    return int(lib.past_runs(ffi.NULL, 0))


def done_since(before: int) -> PastRuns | None:
    """Those that this thread has done since then, in order; None where Python did one, or there are none or too many."""
    count = done() - before
    if not 0 < count <= lib.MOST_CHAINED:
        return None
    rows = ffi.new("PastRun[]", count)
    lib.past_runs(rows, count)
    owners = [it for it in (nodes.get(address(row.node)) for row in rows) if it is not None]
    return PastRuns(rows, count, owners) if len(owners) == count else None


class ChainedRuns:
    """Runs of C code one behind another, with the 64-bit integers that are read behind them. `place` is the mark of these when they
    were found in the chain's buffer."""

    __slots__ = ("_chain", "_count", "_kept", "_marks", "_place", "_words")

    def __init__(
        self, rows: Any, count: int, chain: DeviceChain, marks: array[int], place: int, kept: Sequence[Any]
    ) -> None:
        self._marks, self._place = marks, place
        submit = ffi.cast("int (*)(void *, void *const *, const size_t *, size_t)", chain.function)
        self._chain, self._count, self._kept = chain, len(chain.into), (rows, kept)
        self._words = ffi.new("ChainedRuns *", (rows, count, submit, ffi.cast("void *", chain.number)))

    @property
    def stands(self) -> bool:
        """Whether what is read lies where it did."""
        return self._marks[PLACE] == self._place

    def submit(self) -> bool:
        """Does the runs again. Whether it did: if not, nothing has run, and they can be done by ONNX Runtime or never again."""
        return self.stands and bool(lib.run_chained(self._words))

    def wait(self) -> list[int]:
        """What was read behind the last ones. Raises DeviceError, DeviceLostError."""
        self._chain.wait()
        found: list[int] = ffi.unpack(self._chain.into, self._count)
        return found


def chained(
    runs: Sequence[PastRuns],
    results: Sequence[int],
    others: Sequence[int],
    read: int,
    count: int,
    written: Written | None,
) -> ChainedRuns | None:
    """Runs one behind another, or none; None where they cannot be done so. `results` are the addresses of what their sessions make,
    `others` those of what they read; `count` 64-bit integers at `read` are read behind them."""
    number = sum(it.number for it in runs)
    if number > lib.MOST_CHAINED:
        return None
    rows = ffi.new("PastRun[]", [row for it in runs for row in it.rows])
    addresses = ffi.new("void *[]", [ffi.cast("void *", it) for it in (*results, *others)])
    if not lib.are_all(rows, number, addresses, len(addresses), len(results)):
        return None
    into = ffi.new("int64_t[]", count)
    space = memory.space()
    space.read(read, ffi.sizeof(into))  # from here on it lies in one piece
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
