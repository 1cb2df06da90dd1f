"""What can be chosen for kernels that treat rows: normalisations, reductions, softmax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

from ...records import dataclass
from ..dims import Dim, ceildiv
from ..ir import Variant
from .base import Parameters, constants


@dataclass(frozen=True)
class RowForm(Parameters):
    """Rows shared by `lanes` invocations each, `rows` of them to a workgroup."""

    about: ClassVar[Mapping[str, str]] = {"rows": "", "columns": ""}
    lanes: int
    rows: int

    def __post_init__(self) -> None:
        self._require(self.lanes > 0 and self.lanes & (self.lanes - 1) == 0, "lanes are a power of two")
        self._require(self.rows > 0, "rows are at least 1")

    @property
    def invocations(self) -> int:
        return self.lanes * self.rows

    @property
    def workgroup_bytes(self) -> int:
        """Of `argmax` with extremes of 64 bits, which takes most."""
        return 20 * self.invocations if self.lanes > 1 else 0

    def variant(self, rows: Dim, guard: Dim) -> Variant:
        """The kernel for so many rows."""
        return Variant(ceildiv(rows, self.rows), self.invocations, guard, constants(LANES=self.lanes, ROWS=self.rows))


@dataclass(frozen=True)
class Rows(RowForm):
    """Normalisations, reductions, softmax: `lanes` invocations share a row, and `rows` of them a workgroup."""

    kernel: ClassVar[str] = "rows"

    @classmethod
    def candidates(cls) -> tuple[Self, ...]:
        return cls(16, 4), cls(32, 2), cls(32, 8), cls(128, 1)


@dataclass(frozen=True)
class RowsAcross(RowForm):
    """Rows whose neighbours, not whose columns, are neighbours in memory: `lanes` invocations share one, and `rows` of them a
    workgroup. With an invocation each those of a workgroup load together."""

    kernel: ClassVar[str] = "rows_across"

    @classmethod
    def candidates(cls) -> tuple[Self, ...]:
        return cls(1, 64), cls(1, 128), cls(2, 128)


@dataclass(frozen=True)
class ColumnSplits(Parameters):
    """Parts into which long rows across are cut, which are reduced by themselves first: as many as `busy` invocations in all need,
    of at least `columns` elements each; only where all sizes are known when the graph is compiled."""

    kernel: ClassVar[str] = "parts_across"
    about: ClassVar[Mapping[str, str]] = {"elements": "of all rows", "columns": "elements of a row"}
    busy: int
    columns: int

    def __post_init__(self) -> None:
        self._require(self.busy > 0 < self.columns, "both are at least 1")

    @classmethod
    def candidates(cls) -> tuple[Self, ...]:
        return cls(1 << 16, 64), cls(1 << 17, 64), cls(1 << 19, 64)

    def splits(self, rows: int, columns: int) -> int:
        """The parts of each row, which are all of one size."""
        most = min(self.busy // rows, columns // self.columns) if rows else 1
        return max((parts for parts in range(1, most + 1) if columns % parts == 0), default=1)
