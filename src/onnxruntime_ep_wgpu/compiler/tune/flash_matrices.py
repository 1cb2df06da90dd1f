"""Choices for attention with matrix units, or with their emulation in plain WGSL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...program.target import MatrixUnit
from ...program.tuning import Bound
from ...records import dataclass
from ..dims import Dim, ceildiv
from .attention import FlashForm, FlashShape, loads

PAD = 8  # halves after each row of a tile in workgroup memory, so that rows begin in different banks
RISE = 8  # the base of a row rises when a score exceeds it by this; exp(8) fits in a half


@dataclass(frozen=True)
class FlashMatrices(FlashForm):
    """Attention of halves by workgroups of `subgroups` subgroups. These share `tile_q` queries evenly, and process `tile_k` keys
    at a time. Heads have at most `widest` elements. `held` is 1 if matrices of queries stay in registers, 0 if each tile loads
    them again. Units are of `unit_m`, `unit_n` and `unit_k`; the adapter has such units for subgroups of `subgroup`.

    Raises ValueError for a tile that its subgroups cannot share evenly.
    """

    kernel: ClassVar[str] = "flash_matrices"
    about: ClassVar[Mapping[str, str]] = {**FlashForm.about, "workgroups": "of all tiles and splits"}
    allowed: ClassVar = {"held": (0, 1)}
    others: ClassVar = (
        (128, 64, 4, 64),
        *((128, 32, subgroups, 128) for subgroups in (4, 8)),
        *((64, 64, 4, widest) for widest in (64, 128)),
        *((tile_q, 16, 4, 64) for tile_q in (64, 128)),
        *((32, keys, 2, 128) for keys in (32, 64)),
        # Units of other vendors: Apple, AMD and Intel.
        *((64, 32, 4, widest, 1, 8, 8, 8, 32) for widest in (64, 128)),
        (64, 32, 4, 128, 1, 16, 16, 16, 64),
        *((64, 32, 4, 128, 1, 8, 16, 16, lanes) for lanes in (16, 32)),
    )
    tile_q: int
    tile_k: int
    subgroups: int
    widest: int
    held: int = 1
    unit_m: int = 16
    unit_n: int = 16
    unit_k: int = 16
    subgroup: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        MatrixUnit(self.unit_m, self.unit_n, self.unit_k, "f16", "f32", self.subgroup)
        eights = all(it % 8 == 0 for it in (self.unit_m, self.unit_n, self.unit_k, self.widest))
        self._require(eights, "units and the widest head are multiples of 8")
        self._require(self.tile_q % (self.subgroups * self.unit_m) == 0, "tile_q is a multiple of subgroups * unit_m")
        whole = self.tile_k % self.unit_n == 0 == self.tile_k % self.unit_k
        self._require(whole, "tile_k is a multiple of unit_n and unit_k")
        self._require(self.subgroup % self.rows == 0, f"a subgroup has an invocation for each of its {self.rows} rows")
        self._require(
            self.tile_k % (8 * self.parts) == 0, f"{self.parts} invocations share the keys of a row in eights"
        )
        shared = self.unit_m * self.unit_n % self.subgroup == 0
        self._require(shared, f"{self.subgroup} invocations do not share a matrix of sums evenly")

    @property
    def bounds(self) -> tuple[Bound, ...]:
        wide = (Bound(name, None, self.widest) for name in ("size", "value_size"))
        return (Bound(str(self.unit), 1), Bound("in_eights", 1), *wide)

    @property
    def queries(self) -> int:
        return self.tile_q

    @property
    def unit(self) -> MatrixUnit:
        return MatrixUnit(self.unit_m, self.unit_n, self.unit_k, "f16", "f32", self.subgroup)

    @property
    def invocations(self) -> int:
        return self.subgroups * self.subgroup

    @property
    def rows(self) -> int:
        """The rows of a subgroup."""
        return self.tile_q // self.subgroups

    @property
    def parts(self) -> int:
        """The invocations that share a row."""
        return self.subgroup // self.rows

    @property
    def workgroup_bytes(self) -> int:
        units = (self.unit_k, self.unit_n)
        row = max(-(-self.widest // unit) * unit for unit in units) + PAD
        tile = 4 * self.tile_q * (self.tile_k + 4) + 2 * self.tile_k * row
        queries = 2 * self.tile_q * row
        extra = 4 * (self.tile_q + 1 + (self.invocations if self.parts > 1 else 0))
        return (max(tile, queries) if self.held else tile + queries) + extra

    def quantities(self, sizes: Mapping[str, Dim]) -> Mapping[str, Dim]:
        eights = all(isinstance(it, int) and it % 8 == 0 for it in (sizes["size"], sizes["value_size"]))
        tiles = sizes["batch"] * ceildiv(sizes["rows"], self.tile_q) * sizes["splits"]
        return {"workgroups": tiles, "in_eights": int(eights)}

    def _constants(self, shape: FlashShape) -> Mapping[str, int]:
        depth, values = -(-shape.size // self.unit_k), -(-shape.value_size // self.unit_n)
        fitting = [it for it in range(1, values + 1) if values % it == 0 and it * self.unit_n <= self.tile_k]
        staged, wide, tall = max(fitting), depth * self.unit_k, values * self.unit_n
        return {
            "TILE_Q": self.tile_q,
            "TILE_K": self.tile_k,
            "LANES": self.subgroup,
            "PARTS": self.parts,
            "BLOCKS_M": self.rows // self.unit_m,
            "UNITS_K": self.tile_k // self.unit_n,
            "STEPS_K": self.tile_k // self.unit_k,
            "UNIT_M": self.unit_m,
            "UNIT_N": self.unit_n,
            "UNIT_K": self.unit_k,
            "DEPTH": depth,
            "VALUES": values,
            "STAGED": staged,
            "STAGES": values // staged,
            "FOURS": self.tile_k // self.parts // 4,
            "EIGHTS": self.tile_k // self.parts // 8,
            "PAD": PAD,
            "RISE": RISE,
            "QUERIES_HELD": self.held,
            **loads("Q", self.tile_q * wide // 8, self.invocations),
            **loads("K", self.tile_k * wide // 8, self.invocations),
            **loads("V", self.tile_k * tall // 8, self.invocations),
        }
