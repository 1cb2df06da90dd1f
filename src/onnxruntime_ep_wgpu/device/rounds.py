"""The iterations of a loop, many in one submission: the rows that csrc/rounds.c encodes.

In: the work of two alternating iterations; each reads the states where the other stores them. Out: submitted work, or an error.
Invariant: the caller keeps the buffers, recordings and plans until the call returns.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .buffers import Buffer
from .encoding import Copy, Recording
from .native import native
from .webgpu.header import address

if TYPE_CHECKING:
    from .queue import Queue
    from .turn import Turn

LONGEST = 768  # dispatches and copies per command buffer


class SteppedCopy(NamedTuple):
    """A copy within an iteration. Each iteration adds `step` to the source offset and `place_step` to the destination offset.

    All are in bytes. `nbytes` is rounded up to 4.
    """

    source: Buffer
    start: int
    step: int
    destination: Buffer
    place: int
    place_step: int
    nbytes: int


def stepped(copies: Iterable[Copy]) -> list[SteppedCopy]:
    """Copies that are the same in every iteration."""
    return [SteppedCopy(source, start, 0, to, place, 0, nbytes) for source, start, to, place, nbytes in copies]


class Round(NamedTuple):
    """The work of one iteration: copies, dispatches, copies."""

    recording: Recording
    before: Sequence[SteppedCopy]
    after: Sequence[SteppedCopy]


def run_rounds(queue: Queue, turn: Turn, two: Sequence[Round], first: int, count: int, longest: int = 0) -> None:
    """Submits `count` iterations that alternate between `two`, beginning with `two[first]`.

    A command buffer has about `longest` dispatches at most; 0 means the best number. Raises DeviceError, DeviceLostError.
    """
    ffi = native.ffi
    queue.check_not_lost()
    rows = ffi.new("Round[2]")
    kept = []
    for row, it in zip(rows, two, strict=True):
        words = [it.recording.words, _words(it.before), _words(it.after)]
        row.dispatches, row.before, row.after = (ffi.from_buffer("uint64_t[]", part) for part in words)
        row.count, row.befores, row.afters = len(it.recording), len(it.before), len(it.after)
        kept.append(words)
    longest = min(longest or LONGEST, LONGEST)
    if not native.lib.run_rounds(queue.shared, turn.words, rows, first, count, longest):
        queue.raise_refusal("the iterations of a loop")


def _words(copies: Iterable[SteppedCopy]) -> array[int]:
    words = array("Q")
    for source, start, step, destination, place, place_step, nbytes in copies:
        ends = address(source.handle), start, step, address(destination.handle), place, place_step
        words.extend((*ends, (nbytes + 3) & ~3))
    return words
