"""Choices for kernels that process rows: normalisations, reductions, softmax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...records import dataclass
from ..dims import Dim, ceildiv
from ..ir import Variant
from .base import Parameters, constants


@dataclass(frozen=True)
class RowForm(Parameters):
    """`lanes` invocations share each row; a workgroup has `rows` rows."""

    about: ClassVar[Mapping[str, str]] = {"rows": "", "columns": ""}
    lanes: int
    rows: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require(self.lanes.bit_count() == 1, "lanes are a power of two")

    @property
    def invocations(self) -> int:
        return self.lanes * self.rows

    @property
    def workgroup_bytes(self) -> int:
        """The memory that `argmax` needs with extremes of 64 bits, the largest of all."""
        return 20 * self.invocations if self.lanes > 1 else 0

    def variant(self, rows: Dim, guard: Dim) -> Variant:
        """Returns the kernel for a number of rows."""
        return Variant(ceildiv(rows, self.rows), self.invocations, guard, constants(LANES=self.lanes, ROWS=self.rows))


@dataclass(frozen=True)
class Rows(RowForm):
    """Normalisations, reductions, softmax: `lanes` invocations share a row, and a workgroup has `rows` rows."""

    kernel: ClassVar[str] = "rows"
    others: ClassVar = ((16, 4), (32, 2), (32, 8), (128, 1))


@dataclass(frozen=True)
class RowsAcross(RowForm):
    """Rows with columns that are not adjacent in memory; instead, neighbouring rows are adjacent. `lanes` invocations share a
    row, and a workgroup has `rows` rows. With one invocation per row, those of a workgroup load together."""

    kernel: ClassVar[str] = "rows_across"
    others: ClassVar = ((1, 64), (1, 128), (2, 128))


@dataclass(frozen=True)
class ColumnSplits(Parameters):
    """Splits long rows across memory into parts, which are reduced first. All rows together have at most `busy` parts, with at
    least `columns` elements each. Requires that all sizes are known at compile time."""

    kernel: ClassVar[str] = "parts_across"
    about: ClassVar[Mapping[str, str]] = {"elements": "of all rows", "columns": "elements of a row"}
    others: ClassVar = ((1 << 16, 64), (1 << 17, 64), (1 << 19, 64))
    busy: int
    columns: int

    def splits(self, rows: int, columns: int) -> int:
        """Returns the number of parts of each row, which have equal sizes."""
        most = min(self.busy // rows, columns // self.columns) if rows else 1
        return max((parts for parts in range(1, most + 1) if columns % parts == 0), default=1)
