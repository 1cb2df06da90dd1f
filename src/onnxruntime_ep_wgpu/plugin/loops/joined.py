"""A joined output (scan output) of a Loop while its rows are made.

It has memory with room for rows. If their number is unknown, the room doubles, up to the largest buffer of the device.

In: rows, one from each iteration. Out: the copies that put them in place, and the output. Invariant: all rows have one type and
shape. Rows that are not a whole number of words go through the host, because a device copies only whole words.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...device.rounds import SteppedCopy
from ...errors import InputError
from ...runtime.inputs import DeviceTensor

if TYPE_CHECKING:
    from ...device import Buffer, Copy
    from ...program.dtypes import DType
    from ..step_memory import StepMemory

FIRST_ROOM, FIRST_BYTES = 64, 16 << 20  # the first room, in rows, and its largest size in bytes
_WORD = 4  # bytes


class JoinedOutput:
    """One output, which messages call `what`.

    `rows` is the largest number of rows, None if it is unlimited. `all_run` states that all of them will be made.
    """

    def __init__(self, memory: StepMemory, what: str, rows: int | None, all_run: bool) -> None:
        self._memory, self._what, self._rows, self._all_run = memory, what, rows, all_run
        self._row: tuple[DType, tuple[int, ...]] | None = None
        self._buffer: Buffer | None = None
        self._room = 0
        self._on_host = bytearray()

    def copies_on_device(self, dtype: DType, shape: tuple[int, ...]) -> bool:
        """Returns whether the device copies rows of this type and shape."""
        return self._row in (None, (dtype, shape)) and dtype.nbytes(math.prod(shape)) % _WORD == 0

    def reserve(self, dtype: DType, shape: tuple[int, ...], done: int, rows: int) -> None:
        """Ensures room for `rows` rows, and keeps the `done` ones that already exist."""
        self._row = dtype, shape
        nbytes = dtype.nbytes(math.prod(shape))
        if rows <= self._room or not nbytes:
            return
        room = max(rows, self._next_capacity(nbytes))
        grown = self._memory.tensor(dtype, (room, *shape), f"{self._what}, {room} rows of {list(shape)},")
        old, self._buffer, self._room = self._buffer, grown.buffer, room
        if old is not None and grown.buffer is not None:
            if done:
                self._memory.device.copy(old, 0, grown.buffer, 0, done * nbytes)
            self._memory.give([DeviceTensor(dtype, shape, old)])

    def _next_capacity(self, nbytes: int) -> int:
        """Returns for how many rows of `nbytes` bytes there should be room next."""
        if self._all_run and self._rows is not None:
            return self._rows
        room = min(2 * self._room or min(FIRST_ROOM, FIRST_BYTES // nbytes), self._rows_per_buffer(nbytes))
        return room if self._rows is None else min(room, self._rows)

    def _rows_per_buffer(self, nbytes: int) -> int:
        """Returns how many rows of `nbytes` bytes one buffer holds."""
        return self._memory.device.target.max_buffer_bytes // nbytes

    def rows_with_room(self, dtype: DType, shape: tuple[int, ...], done: int, wanted: int) -> int:
        """Returns how many of the `wanted` rows have room after the `done` ones.

        It returns at least 1: if that row has no room, the allocation raises the error.
        """
        nbytes = dtype.nbytes(math.prod(shape))
        return max(1, min(wanted, self._rows_per_buffer(nbytes) - done)) if nbytes else wanted

    def add(self, number: int, row: DeviceTensor) -> list[Copy]:
        """Returns the copy that puts a row in its place; none for a row that goes through the host.

        Raises InputError if the row differs from earlier ones.
        """
        dtype, shape, buffer, offset, _ = row
        if self._row not in (None, (dtype, shape)):
            assert self._row is not None
            raise InputError(
                f"{self._what}: the row of iteration {number} has the shape {list(shape)}, those before it {list(self._row[1])}"
            )
        nbytes = dtype.nbytes(math.prod(shape))
        if self.copies_on_device(dtype, shape):
            self.reserve(dtype, shape, number, number + 1)
            if buffer is None or self._buffer is None:
                return []
            return [(buffer, offset, self._buffer, number * nbytes, nbytes)]
        self._row = dtype, shape
        data = bytearray(nbytes)
        if buffer is not None:
            self._memory.device.download(buffer, offset, data)
        self._on_host += data
        return []

    def stepped(self, row: DeviceTensor, number: int) -> list[SteppedCopy]:
        """Returns the copies for all rows from `number` on. Each iteration makes its row at the same place."""
        nbytes = row.dtype.nbytes(math.prod(row.shape))
        if row.buffer is None or self._buffer is None:
            return []
        return [SteppedCopy(row.buffer, row.offset, 0, self._buffer, number * nbytes, nbytes, nbytes)]

    def tensor(self, rows: int) -> DeviceTensor:
        """Returns the output with `rows` rows."""
        assert self._row is not None
        dtype, shape = self._row
        if self._on_host:
            made = self._memory.tensor(dtype, (rows, *shape), self._what)
            if made.buffer is not None:
                self._memory.device.upload(made.buffer, 0, self._on_host)
            return made
        return DeviceTensor(dtype, (rows, *shape), self._buffer)
