"""Weights in files are read while the rest of a session is made, so that they are in memory when they are uploaded.

In: ranges of files. Out: nothing; the system has read them, in the order of the files. Invariants: no result depends on it; no
memory of this process is taken, for the system drops what it read when others need the memory; at most half of what is free is
read.

Memory that is mapped to a file is read when it is looked at, 128 KiB at a time on Linux: the disk waits for the copy, and the copy
for the disk. A session with 2.1 GB that are not in memory takes 6.8 s instead of 14.5, of them 1.7 s of CPU time instead of 3.7
(medians of 5 in turns; llvmpipe, a virtual disk, a busy machine of two cores, 2026-11-26).
"""

from __future__ import annotations

import _thread
from collections.abc import Iterable
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING

from .. import platform

if TYPE_CHECKING:
    from .weight_file import FileRange

PIECE_BYTES = 8 << 20
LEAST_BYTES = 1 << 20  # of a range: smaller ones are read soon enough


class ReadAhead:
    """That of one session."""

    def __init__(self) -> None:
        self._left: int | None = None  # bytes that may be read yet; None before the system was asked
        self._known: set[FileRange] = set()
        self._stopped = False

    def begin(self, ranges: Iterable[FileRange]) -> None:
        """Reads ranges that were not named before, on a thread of its own."""
        new = {it for it in ranges if it.nbytes >= LEAST_BYTES} - self._known
        if not new:
            return
        self._known |= new
        if self._left is None:
            self._left = platform.memory_for_files() // 2
        chosen: list[FileRange] = []
        for it in sorted(new, key=lambda it: (it.path, it.offset)):
            if it.nbytes > self._left:
                break
            self._left -= it.nbytes
            chosen.append(it)
        if chosen:
            _thread.start_new_thread(self._read, (chosen,))

    def stop(self) -> None:
        """Nothing more is read."""
        self._stopped = True

    def _read(self, ranges: list[FileRange]) -> None:
        with suppress(OSError):  # whatever needs the bytes says so
            for path, parts in groupby(ranges, key=lambda it: it.path):
                with open(path, "rb") as file:
                    for it in parts:
                        for at in range(0, it.nbytes, PIECE_BYTES):
                            if self._stopped:
                                return
                            platform.will_read(file.fileno(), it.offset + at, min(PIECE_BYTES, it.nbytes - at))
