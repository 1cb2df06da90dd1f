"""Choices for products with matrix units, or with their emulation in plain WGSL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...program.dtypes import DType
from ...program.target import MatrixUnit, Target
from ...program.tuning import Bound
from ...records import dataclass
from ..dims import Dim, ceildiv, floordiv, maximum, quotient
from ..ir import Variant
from .products import ProductShape, TiledProduct

PAD_BYTES = 16  # after each row of a tile in workgroup memory, so that rows begin in different banks


@dataclass(frozen=True)
class MatrixTile(TiledProduct):
    """A tile of `m` x `n` results of a product of halves, from `k` columns at a time. Workgroup memory has `buffers` such tiles
    of operands. `rows` x `columns` subgroups share the tile and multiply matrices of `unit_m`, `unit_n` and `unit_k`; the adapter
    has such units for subgroups of `subgroup`.

    Raises ValueError for a tile that its subgroups cannot share evenly.
    """

    kernel: ClassVar[str] = "matmul_matrices"
    call: ClassVar[str] = "matmul"
    operand: ClassVar[str] = "f16"
    result: ClassVar[str] = "f32"
    about: ClassVar[Mapping[str, str]] = {
        **TiledProduct.about,
        "filled": "percent of the columns of its tiles that are results",
    }
    allowed: ClassVar = {"buffers": (1, 2)}
    others: ClassVar = (
        (128, 128, 32, 1, 4),
        (64, 256, 32, 1, 4),
        (96, 64, 64, 2, 2),
        (96, 128, 32, 1, 4),
        (128, 64, 32, 2, 2),
        (128, 64, 64, 4, 2),
        (16, 64, 128, 1, 2),
        # Units of other vendors: Apple, AMD and Intel.
        *((64, 64, 32, 2, 2, 1, 8, 8, 8, 32), (32, 32, 32, 1, 2, 1, 8, 8, 8, 32)),
        (64, 64, 32, 2, 2, 1, 16, 16, 16, 64),
        *((64, 64, 32, 2, 2, 1, 8, 16, 16, lanes) for lanes in (16, 32)),
    )
    k: int
    rows: int
    columns: int
    buffers: int = 1
    unit_m: int = 16
    unit_n: int = 16
    unit_k: int = 16
    subgroup: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require(self.m % (self.rows * self.unit_m) == 0, "m is a multiple of rows * unit_m")
        self._require(self.n % (self.columns * self.unit_n) == 0, "n is a multiple of columns * unit_n")
        self._require(self.k % self.unit_k == 0, "k is a multiple of unit_k")
        together = self.unit.together
        parts = all(it % together == 0 for it in (self.n, self.k, self.unit_n, self.unit_k))
        self._require(parts, f"n and k of tiles and units are multiples of {together}")
        self._require(self.unit_m % 8 == 0, "unit_m is a multiple of 8")
        busy = self.invocations <= min(self.m, self.n) * self.k // together
        self._require(
            busy, f"each of its {self.invocations} invocations loads {together} columns or rows of both operands"
        )
        shared = self.unit_m * self.unit_n % self.subgroup == 0
        self._require(shared, f"{self.subgroup} invocations do not share a matrix of sums evenly")

    @property
    def bounds(self) -> tuple[Bound, ...]:
        return (Bound(str(self.unit), 1),)

    @property
    def unit(self) -> MatrixUnit:
        return MatrixUnit(self.unit_m, self.unit_n, self.unit_k, self.operand, self.result, self.subgroup)

    @property
    def pad(self) -> int:
        """The padding in operands after each row of a tile."""
        return PAD_BYTES * self.unit.together // 16

    @property
    def invocations(self) -> int:
        return self.rows * self.columns * self.subgroup

    @property
    def staged(self) -> tuple[int, int]:
        """The units of a subgroup's results, down and across, that are in workgroup memory at a time: as many as fit in place of
        the tiles."""
        down, across = self.m // self.rows // self.unit_m, self.n // self.columns // self.unit_n
        fitting = (
            (tall, wide)
            for tall in range(1, down + 1)
            for wide in range(1, across + 1)
            if down % tall == 0 == across % wide and 4 * self._results(tall, wide) <= self.tile_bytes
        )
        return max(fitting, key=lambda both: (both[0] * both[1], both[1]), default=(1, 1))

    def _results(self, tall: int, wide: int) -> int:
        """Returns the elements of results of all subgroups."""
        return self.rows * self.columns * tall * self.unit_m * (wide * self.unit_n + 4)

    @property
    def tile_bytes(self) -> int:
        """An upper bound, since the other operand may have either order."""
        pad, width = self.pad, 16 // self.unit.together
        other = max(self.n * (self.k + pad), self.k * (self.n + pad))
        return width * self.buffers * (self.m * (self.k + pad) + other)

    @property
    def workgroup_bytes(self) -> int:
        return max(self.tile_bytes, 4 * self._results(*self.staged))

    def quantities(self, sizes: Mapping[str, Dim]) -> Mapping[str, Dim]:
        columns = maximum(1, ceildiv(sizes["n"], self.n) * self.n)
        return {**super().quantities(sizes), "filled": floordiv(100 * sizes["n"], columns)}

    def variant(self, shape: ProductShape, guard: Dim) -> Variant:
        units_m, units_n = self.m // self.rows // self.unit_m, self.n // self.columns // self.unit_n
        run, together = shape.run, self.unit.together
        packed = run > 0 and 0 == run % 8 == self.k % run
        tall, wide = self.staged
        return self._tiled(
            shape,
            guard,
            MatrixTile.kernel,
            TILE_K=self.k,
            GROUPS_N=self.columns,
            BLOCKS_M=units_m,
            BLOCKS_N=units_n,
            STEPS=self.k // self.unit_k,
            UNIT_M=self.unit_m,
            UNIT_N=self.unit_n,
            UNIT_K=self.unit_k,
            LANES=self.subgroup,
            BUFFERS=self.buffers,
            PAD=self.pad,
            OPERAND=self.operand,
            SUM=self.result,
            TOGETHER=together,
            RESULTS=self._results(tall, wide),
            STAGED=wide,
            STAGES=units_n // wide,
            STAGED_M=tall,
            STAGES_M=units_m // tall,
            A_LOADS=-(-self.m * self.k // (together * self.invocations)),
            B_LOADS=-(-self.n * self.k // ((run if packed else together) * self.invocations)),
            PACKED=packed,
            RUN4=run // 4 if packed else 0,
            RUN8=run // 8 if packed else 0,
            SLICES=1,
            K_WHOLE=quotient(shape.k, self.k) is not None,
            K_TOGETHER=quotient(shape.k, together) is not None,
        )


@dataclass(frozen=True)
class ByteTile(MatrixTile):
    """Matrix units for signed bytes, which are accumulated exactly in i32. A tile of `m` x `n` results, from `k` columns at a
    time, with `buffers` buffers in workgroup memory. `rows` x `columns` subgroups of `subgroup` multiply matrices of `unit_m`,
    `unit_n` and `unit_k`."""

    kernel: ClassVar[str] = "matmul_bytes"
    operand: ClassVar[str] = "i8"
    result: ClassVar[str] = "i32"
    others: ClassVar = (
        (128, 128, 64, 1, 4),
        (128, 128, 64, 2, 2),
        (128, 128, 128, 2, 2),
        (128, 64, 128, 2, 2),
        (32, 64, 128, 1, 2),
        # Units of other vendors.
        *((64, 64, 64, 2, 2, 1, 8, 16, 32, lanes) for lanes in (16, 32)),
        (64, 64, 64, 2, 2, 1, 16, 16, 16, 64),
    )
    unit_k: int = 32

    def run(self, shape: ProductShape) -> int:
        return 0


def units(target: Target, *dtypes: DType | None, of_bytes: bool = False) -> dict[str, Dim]:
    """Returns quantities for bounds about a target's matrix units: those for operands of these types, or with `of_bytes` for
    signed bytes."""
    of_halves = all(it is DType.FLOAT16 for it in dtypes)
    fitting = (
        it for it in target.matrices if (it.multiplies_bytes if of_bytes else of_halves and it.multiplies_halves)
    )
    return {str(it): 1 for it in fitting}
