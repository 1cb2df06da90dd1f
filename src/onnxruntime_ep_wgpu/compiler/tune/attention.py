"""Choices for attention kernels, and whether attention is a single kernel."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import ClassVar

from ...program.tuning import Bound
from ...records import dataclass
from ..dims import Dim, ceildiv, floordiv, less_equal, maximum, minimum, quotient, select
from ..ir import Variant
from .base import Parameters, constants

_SHARES = 32  # upper bound of the shares of the keys that are summed separately
_UNDER_WAY = 8  # loads of four elements in flight per invocation, of keys and of values


@dataclass(frozen=True)
class FlashShape:
    """Attention of `rows` rows for each of `batch` heads of keys.

    Queries have `size` elements, results `value_size`. Each of `splits` workgroups processes a part of the keys. `unrolled`:
    steps of products may be unrolled.
    """

    batch: Dim
    rows: Dim
    size: int
    value_size: int
    splits: Dim
    unrolled: bool


@dataclass(frozen=True)
class FlashForm(Parameters):
    """A kernel that never stores its scores."""

    about: ClassVar[Mapping[str, str]] = {
        "batch": "batches times heads of keys",
        "rows": "queries of all heads that share keys",
        "per": "heads that share keys: rows for each query",
        "keys": "",
        "size": "elements of a query or key",
        "value_size": "elements of a value",
        "splits": "parts of the keys",
    }

    @property
    def queries(self) -> int:
        """The rows of a workgroup."""
        raise NotImplementedError

    def variant(self, shape: FlashShape, guard: Dim) -> Variant:
        """Returns the kernel for an attention of this shape."""
        tiles_q = ceildiv(shape.rows, self.queries)
        chosen = constants(**self._constants(shape), SIZE_WHOLE=quotient(shape.size, 4) is not None)
        count = shape.batch * tiles_q * shape.splits
        sizes = (("tiles_q", tiles_q), ("batches", shape.batch))
        return Variant(count, self.invocations, guard, chosen, sizes, self.kernel)

    def _constants(self, shape: FlashShape) -> Mapping[str, int]:
        raise NotImplementedError


def loads(operand: str, vectors: int, invocations: int) -> Mapping[str, int]:
    """Returns the loads of each invocation for the vectors of a tile, and whether all invocations load equally many."""
    return {f"{operand}_LOADS": -(-vectors // invocations), f"{operand}_EVENLY": vectors % invocations == 0}


@dataclass(frozen=True)
class FlashTile(FlashForm):
    """Attention by workgroups of `slices` groups of `threads_x` x `threads_y` invocations. Each invocation accumulates 4 `rows4`
    queries by 4 `columns4` keys, and `values4` times 4 elements of results. Workgroup memory holds `depth` elements of queries
    and keys at a time, and `keys` rows of values."""

    kernel: ClassVar[str] = "flash_attention"
    about: ClassVar[Mapping[str, str]] = {**FlashForm.about, "workgroups": "of all tiles and splits"}
    others: ClassVar = ((8, 8, 2, 1, 2, 2, 8, 16), (16, 8, 2, 1, 1, 2, 8, 16))
    threads_x: int
    threads_y: int
    rows4: int
    columns4: int
    values4: int
    slices: int
    depth: int
    keys: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require(self.depth % 4 == 0, "depth is a multiple of 4, since an invocation loads four elements together")
        self._require(self.tile_k % self.keys == 0, f"keys divide the {self.tile_k} of a tile")
        threads = self.threads_x * self.threads_y
        shared = f"the {threads} invocations of a slice share {self.queries} queries in fours evenly"
        self._require(4 * threads % self.queries == 0, shared)

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
        """The unrolled steps of a product."""
        return gcd(8, self.depth, self.keys)

    def iterations(self, size: int) -> int:
        """Returns the maximum loop iterations of an invocation per `tile_k` keys, for heads of `size` elements."""
        threads = self.threads_x * self.threads_y
        scores = -(-size // self.depth) * (1 + self.depth)
        parts = 4 * threads // self.queries
        weights = 2 * -(-self.tile_k // parts) + parts
        values = -(-self.tile_k // self.keys)
        return 1 + scores + weights + values + self.tile_k

    @property
    def iterations_at_end(self) -> int:
        """The maximum loop iterations of an invocation besides those."""
        stored = 1 + self.slices + self.queries * 4 * self.threads_x
        return self.slices * self.invocations + self.values4 * stored

    @property
    def workgroup_bytes(self) -> int:
        scores = max(self.tile_k, 4 * self.threads_x) * self.queries
        behind = max(self.keys * self.widest, 4 * self.threads_x * self.threads_y)
        area = max((self.queries + self.tile_k) * self.depth, scores + behind)
        return 4 * self.slices * (area + self.queries)

    def quantities(self, sizes: Mapping[str, Dim]) -> Mapping[str, Dim]:
        return {"workgroups": sizes["batch"] * ceildiv(sizes["rows"], self.queries) * sizes["splits"]}

    def _constants(self, shape: FlashShape) -> Mapping[str, int]:
        return {
            "TILE_Q": self.queries,
            "THREADS_X": self.threads_x,
            "ROWS4": self.rows4,
            "COLUMNS4": self.columns4,
            "VALUES4": self.values4,
            "SLICES": self.slices,
            "DEPTH": self.depth,
            "UNROLLED": self.unrolled if shape.unrolled else 1,
            "KEYS": self.keys,
            "LANES": gcd(8, self.depth // 4),
            "Q_BLOCK": gcd(8, self.queries // 4),
            "K_BLOCK": gcd(8, self.tile_k // 4),
            **loads("Q", self.queries * self.depth // 4, self.threads_x * self.threads_y),
            **loads("K", self.tile_k * self.depth // 4, self.threads_x * self.threads_y),
            **loads("V", self.keys * self.threads_x * self.values4, self.threads_x * self.threads_y),
        }


@dataclass(frozen=True)
class FlashRows(FlashForm):
    """Attention of at most `rows` rows, of heads of at most `widest` elements, bound by reading keys and values. `threads`
    invocations process `threads` / `rows` keys at a time."""

    kernel: ClassVar[str] = "flash_rows"
    allowed: ClassVar = {"rows": (1, 2, 4, 8, 16), "threads": (256, 512, 1024)}
    rows: int
    widest: int
    threads: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require(self.widest <= self.threads, f"widest is from 1 to {self.threads}")

    @property
    def bounds(self) -> tuple[Bound, ...]:
        most = {"rows": self.rows, "per": self.rows, "size": self.widest, "value_size": self.widest}
        return tuple(Bound(quantity, None, number) for quantity, number in most.items())

    @property
    def queries(self) -> int:
        return self.rows

    @property
    def keys(self) -> int:
        """The maximum number of keys at a time. Each row has its own invocation per key."""
        return self.invocations // self.rows

    @property
    def invocations(self) -> int:
        return self.threads

    @property
    def workgroup_bytes(self) -> int:
        rows = (self.rows + 1) * 4 * -(-self.widest // 4)  # the queries, and the appended key
        products = max(8 * (self.keys * self.rows + 4), min(self.rows, 2) * 4 * self.invocations)
        return 4 * (rows + products + 2 * self.invocations + self.invocations // 4 + 3 * self.rows)

    def _constants(self, shape: FlashShape) -> Mapping[str, int]:
        size4, values4 = -(-shape.size // 4), -(-shape.value_size // 4)
        keys, held = self.keys, min(self.rows, 2)
        while keys > 16 and keys * max(size4, values4) > _UNDER_WAY * self.invocations:
            keys //= 2
        while held < self.rows and keys * values4 * self.rows > _UNDER_WAY * self.invocations * held:
            held *= 2
        parts = min(8, 1 << (size4 - 1).bit_length())
        shares = min(self.invocations * held // (values4 * self.rows), self.invocations // self.rows, _SHARES)
        return {
            "ROWS": self.rows,
            "KEYS": keys,
            "NEAR": 1 << keys.bit_length() // 2,
            "PARTS": parts,
            "HELD": held,
            "WIDTH": min(held, 4),
            "SHARES": shares,
            "QUERY_STEPS": -(-self.rows * size4 // self.invocations),
            "KEY_STEPS": -(-keys * parts // self.invocations),
            "PART_STEPS": -(-size4 // parts),
            "VALUE_STEPS": -(-keys // shares),
        }


@dataclass(frozen=True)
class SplitKeys(Parameters):
    """Splits the keys of an attention into parts of at least `keys`, so that `workgroups` workgroups with `rows` rows each are
    busy. Up to `whole` keys are one part, which saves the dispatch that combines parts."""

    kernel: ClassVar[str] = "flash_parts"
    about: ClassVar[Mapping[str, str]] = {it: FlashForm.about[it] for it in ("batch", "rows", "keys")}
    others: ClassVar = ((256, 8, 64), (1024, 8, 64), (512, 8, 256))
    workgroups: int
    rows: int
    keys: int
    whole: int = 1

    def splits(self, batch: Dim, rows: Dim, keys: Dim) -> Dim:
        """Returns the number of parts."""
        workgroups = maximum(1, batch * ceildiv(rows, self.rows))
        parts = minimum(floordiv(self.workgroups, workgroups), ceildiv(keys, self.keys))
        return select(less_equal(keys, self.whole), 1, maximum(1, parts))


@dataclass(frozen=True)
class AttentionForm(Parameters):
    """Attention without keys that are hidden by position. `fused` is 1 for one kernel, which never stores its scores, or 0 for
    products and a softmax."""

    kernel: ClassVar[str] = "attention"
    about: ClassVar[Mapping[str, str]] = {
        "batch": "batches times heads",
        "rows": "queries",
        "keys": "",
        "size": "elements of a query or key",
        "value_size": "elements of a value",
        "scores_per_binding": "how many times the scores, as f32, fit into the largest binding",
    }
    allowed: ClassVar = {"fused": (0, 1)}
    others: ClassVar = ((0,),)
    fused: int
