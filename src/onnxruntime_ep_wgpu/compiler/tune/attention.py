"""What can be chosen for kernels of attention, and whether it is one kernel at all. See `parameters.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import ClassVar

from ...program.tuning import Bound
from ..dims import Dim, ceildiv
from .base import Parameters


@dataclass(frozen=True)
class FlashTile(Parameters):
    """A workgroup of `flash_attention`: `threads_x` x `threads_y` invocations in each of `slices` groups, which sum
    4 `rows4` queries by 4 `columns4` keys, and `values4` times 4 elements of results.

    `depth` elements of queries and keys are in workgroup memory at a time, and `keys` rows of values. Quantities: those of
    FlashRows, with a value_size of at most `widest`; and `workgroups`, which the tile itself gives.
    """

    kernel: ClassVar[str] = "flash_attention"
    quantity_names: ClassVar[frozenset[str]] = frozenset(
        {"batch", "rows", "per", "keys", "size", "value_size", "splits", "workgroups"}
    )
    threads_x: int
    threads_y: int
    rows4: int
    columns4: int
    values4: int
    slices: int
    depth: int
    keys: int

    def __post_init__(self) -> None:
        self._require_positive()
        self._require(self.keys <= self.tile_k, f"keys are at most {self.tile_k}")
        invocations = self.threads_x * self.threads_y
        self._require(self.queries <= invocations, f"{self.queries} queries are more than {invocations} invocations")

    @property
    def bounds(self) -> tuple[Bound, ...]:
        return (Bound("value_size", None, self.widest),)

    @property
    def widest(self) -> int:
        return 4 * self.threads_x * self.values4

    @property
    def queries(self) -> int:
        return 4 * self.rows4 * self.threads_y

    @property
    def tile_k(self) -> int:
        return 4 * self.columns4 * self.threads_x

    @property
    def invocations(self) -> int:
        return self.threads_x * self.threads_y * self.slices

    @property
    def unrolled(self) -> int:
        """Steps of a product that are written out."""
        return gcd(8, self.depth, self.keys)

    def iterations(self, size: int) -> int:
        """Of the loops of an invocation for each `tile_k` keys of heads of `size` elements, at most."""
        threads = self.threads_x * self.threads_y
        staged = -(-self.queries * self.depth // (4 * threads)) + -(-self.tile_k * self.depth // (4 * threads))
        scores = -(-size // self.depth) * (1 + staged + self.depth)
        parts = threads // self.queries
        weights = 2 * -(-self.tile_k // parts) + parts
        values = -(-self.tile_k // self.keys) * (1 + -(-self.keys * self.threads_x * self.values4 // threads))
        return 1 + scores + weights + values + self.tile_k

    @property
    def iterations_at_end(self) -> int:
        """Of the loops that an invocation has besides, at most."""
        stored = 1 + self.slices + self.queries * 4 * self.threads_x
        return self.slices * self.invocations + self.values4 * stored

    @property
    def workgroup_bytes(self) -> int:
        operands = max((self.queries + self.tile_k) * self.depth, self.keys * self.widest)
        scores = max(self.tile_k, 4 * self.threads_x) * self.queries
        return 4 * (self.slices * (operands + scores + self.queries) + 2 * self.invocations)

    def quantities(self, sizes: Mapping[str, Dim]) -> Mapping[str, Dim]:
        return {"workgroups": sizes["batch"] * ceildiv(sizes["rows"], self.queries) * sizes["splits"]}


@dataclass(frozen=True)
class FlashRows(Parameters):
    """Attention of at most `rows` rows, of heads of at most `widest` elements, where reading keys and values takes the time.
    Quantities: batch, rows, per (heads that share keys: rows for each query), keys, size (elements of a query or key),
    value_size (of a value), splits (parts of the keys)."""

    kernel: ClassVar[str] = "flash_rows"
    quantity_names: ClassVar[frozenset[str]] = frozenset(
        {"batch", "rows", "per", "keys", "size", "value_size", "splits"}
    )
    rows: int
    widest: int

    def __post_init__(self) -> None:
        self._require(self.rows in (1, 2, 4, 8, 16), "rows is a power of two up to 16")
        self._require(0 < self.widest <= 4 * self.invocations, f"widest is from 1 to {4 * self.invocations}")

    @property
    def bounds(self) -> tuple[Bound, ...]:
        return tuple(
            Bound(name, None, most)
            for name, most in (
                ("rows", self.rows),
                ("per", self.rows),
                ("size", self.widest),
                ("value_size", self.widest),
            )
        )

    @property
    def keys(self) -> int:
        """Keys at a time, each row's by an invocation of its own."""
        return self.invocations // self.rows

    @property
    def invocations(self) -> int:
        return 256

    @property
    def workgroup_bytes(self) -> int:
        products = self.rows * 8 * (self.keys + 4)
        return 4 * (self.rows * 4 * -(-self.widest // 4) + products + 2 * self.invocations + self.rows)


@dataclass(frozen=True)
class FlashParts(Parameters):
    """Keys of an attention are cut into parts of at least `keys`, so that `workgroups` are busy with rows of `rows`.
    Quantities: batch, rows, keys."""

    kernel: ClassVar[str] = "flash_parts"
    quantity_names: ClassVar[frozenset[str]] = frozenset({"batch", "rows", "keys"})
    workgroups: int
    rows: int
    keys: int

    def __post_init__(self) -> None:
        self._require_positive()


@dataclass(frozen=True)
class AttentionForm(Parameters):
    """Whether attention without hidden keys is one kernel, `fused`, or products and a softmax, 0, whose scores are in memory.
    Quantities: batch (with heads), rows, keys, size, value_size, and `fits`: how many times the scores, as f32, fit into the
    largest binding."""

    kernel: ClassVar[str] = "attention"
    quantity_names: ClassVar[frozenset[str]] = frozenset({"batch", "rows", "keys", "size", "value_size", "fits"})
    fused: int

    def __post_init__(self) -> None:
        self._require(self.fused in (0, 1), "fused is 0 or 1")
