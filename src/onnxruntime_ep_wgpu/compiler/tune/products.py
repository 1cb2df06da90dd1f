"""Choices for matrix products: one class per kernel, which makes the variant that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import ClassVar

from ...program.tuning import Bound
from ...records import dataclass
from ..dims import Dim, ceildiv, quotient
from ..ir import Constant, Variant
from .base import KERNELS, PRODUCT_SIZES, Parameters, constants

MOST_TOGETHER = 64  # packed weights: four words with elements of two bits
_WIDEST_SUBGROUP = 128  # invocations, of any adapter of WebGPU
MOST_SPLITS = 16  # of k; each is one more operand of the map that adds the results


@dataclass(frozen=True)
class ProductShape:
    """A product (batch, m, k) by (batch, k, n).

    Elements of the other operand have `bits` bits. `longest` packed weights can be unpacked together, 0 for other operands. RUN4
    of all variants is a quarter of `run`.
    """

    batch: Dim
    m: Dim
    n: Dim
    k: Dim
    bits: int = 32
    longest: int = 0
    run: int = 0

    @property
    def fours(self) -> bool:
        """Whether k is a multiple of 4."""
        return quotient(self.k, 4) is not None


@dataclass(frozen=True)
class ProductForm(Parameters):
    """A kernel for products.

    `general`: it supports every shape, and its name is that of the Call. Other kernels are variants of a general one. A kernel
    that names a `call` may also be the only variant.
    """

    general: ClassVar[bool] = False
    call: ClassVar[str] = ""
    about: ClassVar[Mapping[str, str]] = {
        **PRODUCT_SIZES,
        "transposed": "1 if neighbours in k of the other operand are adjacent in memory",
        "bits": "bits of its elements",
        "packed": "words of packed weights that can be unpacked together, else 0",
        "words": "words of one of its columns, if k is known",
        "dots": "packed weights with one scale, in runs that divide k, if rows may be rounded to 8 bits and"
        " the adapter has a dot product of bytes; else 0",
    }

    def variant(self, shape: ProductShape, guard: Dim) -> Variant:
        """Returns the kernel for a product of this shape."""
        raise NotImplementedError

    def run(self, shape: ProductShape) -> int:
        """Returns how many packed weights it unpacks together, or 0 if it loads them one by one."""
        return 0

    @property
    def longest_run(self) -> int:
        """The maximum number of packed weights it can unpack together, if other variants of the same product unpack more."""
        return MOST_TOGETHER


@dataclass(frozen=True)
class TiledProduct(ProductForm):
    """Workgroups compute tiles of `m` x `n` results from tiles of both operands."""

    about: ClassVar[Mapping[str, str]] = {**ProductForm.about, "workgroups": "tiles of all batches"}
    m: int
    n: int

    def quantities(self, sizes: Mapping[str, Dim]) -> Mapping[str, Dim]:
        return {"workgroups": sizes["batch"] * ceildiv(sizes["m"], self.m) * ceildiv(sizes["n"], self.n)}

    def run(self, shape: ProductShape) -> int:
        return min(shape.longest, 32 // shape.bits)

    def _tiled(self, shape: ProductShape, guard: Dim, template: str, **chosen: Constant) -> Variant:
        """Returns the variant with the tile and these constants. `template` is its file if not that of the Call, else ""."""
        tiles_m, tiles_n = ceildiv(shape.m, self.m), ceildiv(shape.n, self.n)
        tiles = (("tiles_m", tiles_m), ("tiles_n", tiles_n))
        count = shape.batch * tiles_m * tiles_n
        return Variant(
            count, self.invocations, guard, constants(TILE_M=self.m, TILE_N=self.n, **chosen), tiles, template
        )


@dataclass(frozen=True)
class Tile(TiledProduct):
    """A tile of `m` x `n` results of a product from `k` columns at a time. An invocation computes `rows` x `columns` of it.
    `slices` groups of invocations split k between them. Loops unroll `unrolled` steps of k.

    Raises ValueError for a tile that its invocations cannot share evenly.
    """

    kernel: ClassVar[str] = "matmul"
    general: ClassVar[bool] = True
    others: ClassVar = (
        (128, 64, 8, 8, 8, 1, 8),
        (64, 64, 16, 4, 8, 1, 16),
        (64, 64, 16, 4, 4, 1),
        (32, 32, 16, 4, 4, 4),
    )
    k: int
    rows: int
    columns: int
    slices: int
    unrolled: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        fours = all(it % 4 == 0 for it in (self.m, self.n, self.k, self.rows, self.columns))
        self._require(fours, "m, n, k, rows and columns are multiples of 4")
        self._require(self.m % self.rows == 0 == self.n % self.columns, "rows divide m, and columns n")
        self._require(self.k % self.unrolled == 0, "unrolled divides k")
        loaded = 4 * self.per_slice
        evenly = self.m * self.k % loaded == 0 == self.n * self.k % loaded
        self._require(evenly, f"its {self.per_slice} invocations do not load {self.k} columns in fours evenly")

    @property
    def per_slice(self) -> int:
        """The invocations that share a slice of k."""
        return self.m * self.n // (self.rows * self.columns)

    @property
    def invocations(self) -> int:
        return self.per_slice * self.slices

    @property
    def workgroup_bytes(self) -> int:
        return 4 * max(self.slices * self.k * (self.m + self.n), self.invocations * self.columns)

    def variant(self, shape: ProductShape, guard: Dim) -> Variant:
        """Loads packed weights one run at a time if a tile's invocations can share them evenly. Loads others four at a time."""
        run = shape.run
        packed = bool(run) and self.k % run == 0 == self.n * self.k // run % self.per_slice
        return self._tiled(
            shape,
            guard,
            "",
            TILE_K=self.k,
            ROWS4=self.rows // 4,
            COLUMNS4=self.columns // 4,
            A_LOADS=self.m * self.k // 4 // self.per_slice,
            B_LOADS=self.n * self.k // (run if packed else 4) // self.per_slice,
            SLICES=self.slices,
            UNROLLED=self.unrolled,
            K_WHOLE=quotient(shape.k, self.k * self.slices) is not None,
            K_FOURS=shape.fours,
            PACKED=packed,
            RUN4=run // 4 if packed else 0,
            A_LANES=gcd(8, self.k // 4),
            A_BLOCK=gcd(8, self.m // 4),
            B_LANES=gcd(8, self.k // (run if packed else 4)),
            B_BLOCK=gcd(8, self.n // 4),
        )


@dataclass(frozen=True)
class DotTile(TiledProduct):
    """A tile of `m` x `n` results of rows rounded to 8 bits, by packed weights, from 32 columns of k at a time. An invocation
    computes `rows` x `columns` of it."""

    kernel: ClassVar[str] = "matmul_dots"
    group: ClassVar[int] = 32  # the block size of most weights
    others: ClassVar = ((128, 128, 8, 8), (128, 64, 8, 8), (32, 32, 4, 4))
    rows: int
    columns: int

    def __post_init__(self) -> None:
        super().__post_init__()
        fours = all(it % 4 == 0 for it in (self.m, self.n, self.rows, self.columns))
        self._require(fours, "m, n, rows and columns are multiples of 4")
        self._require(self.m % self.rows == 0 == self.n % self.columns, "rows divide m, and columns n")
        whole = self.invocations == self.lanes * self.m
        self._require(whole and self.lanes in (1, 2), "a tile has m or 2 m invocations")
        # 16 weights of 2 bits are a word.
        self._require(
            self.n * self.group // 16 % self.invocations == 0, "invocations load runs of 16 columns of k evenly"
        )

    @property
    def bounds(self) -> tuple[Bound, ...]:
        return (Bound("dots", self.group),)

    @property
    def lanes(self) -> int:
        """The invocations that share a row of a."""
        return self.invocations // self.m

    @property
    def invocations(self) -> int:
        return self.m * self.n // (self.rows * self.columns)

    @property
    def workgroup_bytes(self) -> int:
        tiles = (self.m + self.n) * (self.group // 4 + 1)
        return 4 * (max(tiles, self.invocations * self.columns) + self.invocations)

    @property
    def longest_run(self) -> int:
        return max(run for run in (16, 32) if self.n * self.group // run % self.invocations == 0)

    def variant(self, shape: ProductShape, guard: Dim) -> Variant:
        return self._tiled(
            shape,
            guard,
            self.kernel,
            GROUP=self.group,
            ROWS4=self.rows // 4,
            COLUMNS4=self.columns // 4,
            SLICES=1,
            RUN4=shape.run // 4,
            DOTS=8 // shape.bits,
            LANES=self.lanes,
            ROUNDED4=self.group // 4 // self.lanes,
            B_LANES=self.group // shape.run,
            B_LOADS=self.n * self.group // shape.run // self.invocations,
            A_BLOCK=gcd(8, self.m // 4),
            B_BLOCK=gcd(8, self.n // 4),
        )


@dataclass(frozen=True)
class FewRows(ProductForm):
    """A kernel for few rows, bound by reading the other operand. It can compute several products of one operand."""

    @property
    def product_bytes(self) -> tuple[int, int]:
        """The workgroup memory in bytes that the products share, and that of each product."""
        raise NotImplementedError

    @property
    def workgroup_bytes(self) -> int:
        return sum(self.product_bytes)


@dataclass(frozen=True)
class RowProduct(FewRows):
    """A product of at most `rows` rows. A workgroup of `threads` invocations accumulates 4 x `columns4` columns. Its invocations
    split k, and read `steps` rows of the other operand at a time."""

    kernel: ClassVar[str] = "matvec"
    others: ClassVar = ((1, 2, 1), (1, 16, 1, 1024), (1, 4, 1, 1024))
    rows: int
    columns4: int
    steps: int
    threads: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        # The first four invocations of a subgroup receive its sums of four columns.
        self._require(self.threads > 3 and self.threads.bit_count() == 1, "threads are a power of two from 4 on")
        halves = self.columns4 <= self.threads and self.columns4.bit_count() == 1
        self._require(halves, "columns4 is a power of two up to the threads")

    @property
    def bounds(self) -> tuple[Bound, ...]:
        return (Bound("m", None, self.rows),)

    @property
    def invocations(self) -> int:
        return self.threads

    @property
    def product_bytes(self) -> tuple[int, int]:
        return 16 * self.threads, max(16 * self.columns4, 4 * self.threads * (self.columns4 == 1)) * self.rows

    def variant(self, shape: ProductShape, guard: Dim) -> Variant:
        tiles_n = ceildiv(shape.n, 4 * self.columns4)
        chosen = constants(
            ROWS=self.rows,
            COLUMNS4=self.columns4,
            ALONE=shape.batch == 1,
            STEPS=self.steps,
            SHUFFLES=max(0, (_WIDEST_SUBGROUP // self.columns4).bit_length() - 1),
            K_WHOLE=quotient(shape.k, 4 * self.steps * (self.threads // self.columns4)) is not None,
            K_FOURS=shape.fours,
        )
        tiles = (("tiles_n", tiles_n),)
        return Variant(shape.batch * tiles_n, self.threads, guard, chosen, tiles, self.kernel, self.product_bytes)


@dataclass(frozen=True)
class PackedRows(FewRows):
    """A product by packed weights that are contiguous along k, with `rows` rows at a time and at most `tiles` times as many in
    all. An invocation accumulates four columns; `parts` invocations share them, and a workgroup has `columns` such groups. It
    unpacks at most `words` words of each column at a time, at `steps` positions. With `dots` 1 it rounds rows to 8 bits and
    multiplies bytes."""

    kernel: ClassVar[str] = "packed_rows"
    allowed: ClassVar = {"dots": (0, 1)}
    others: ClassVar = ((1, 64, 1, 2, 1), (1, 32, 2, 2, 1))
    rows: int
    parts: int
    columns: int
    steps: int
    words: int
    tiles: int = 1
    dots: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require(self.parts.bit_count() == 1, "parts are a power of two")
        self._require(self.parts > 3 or self.columns > 1, "one column of invocations has at least 4 parts")
        # Like the longest run with one scale, which contains them.
        self._require(self.words.bit_count() == 1, "words are a power of two")

    @property
    def bounds(self) -> tuple[Bound, ...]:
        dots = (Bound("dots", 1),) if self.dots else ()
        return (Bound("m", None, self.rows * self.tiles), Bound("packed", 1), *dots)

    @property
    def invocations(self) -> int:
        return self.parts * self.columns

    @property
    def product_bytes(self) -> tuple[int, int]:
        return 0, 16 * self.rows * self.invocations

    def run(self, shape: ProductShape) -> int:
        return min(shape.longest, self.words * 32 // shape.bits)

    def variant(self, shape: ProductShape, guard: Dim) -> Variant:
        tiles_m, tiles_n = ceildiv(shape.m, self.rows), ceildiv(shape.n, 4 * self.columns)
        chosen = constants(
            ROWS=self.rows,
            PARTS=self.parts,
            ALONE=self.tiles == 1 == shape.batch,  # see `bounds`
            STEPS=self.steps,
            RUN4=shape.run // 4,
            DOTS=self.dots * 8 // shape.bits,
            ROUNDED4=shape.run // 4,
            K_WHOLE=quotient(shape.k, self.parts * self.steps * shape.run) is not None,
            K_FOURS=shape.fours,
        )
        tiles = (("tiles_m", tiles_m), ("tiles_n", tiles_n))
        count = shape.batch * tiles_m * tiles_n
        return Variant(count, self.invocations, guard, chosen, tiles, self.kernel, self.product_bytes)


@dataclass(frozen=True)
class DirectProduct(ProductForm):
    """A product that reads its operands from memory directly, `rows` x 64 results per workgroup of 8; on software adapters."""

    kernel: ClassVar[str] = "matmul_direct"
    general: ClassVar[bool] = True
    rows: int

    @property
    def invocations(self) -> int:
        return 8

    def variant(self, shape: ProductShape, guard: Dim) -> Variant:
        tiles_n = ceildiv(shape.n, 64)
        count = shape.batch * ceildiv(shape.m, self.rows) * tiles_n
        return Variant(count, self.invocations, guard, constants(ROWS=self.rows), (("tiles_n", tiles_n),))


@dataclass(frozen=True)
class RegisterProduct(ProductForm):
    """A product that reads its operands from memory directly, one element at a time. Each of `lanes` invocations accumulates
    `rows` x `columns` results in variables; on SwiftShader."""

    kernel: ClassVar[str] = "matmul_registers"
    rows: int
    columns: int
    lanes: int

    @property
    def invocations(self) -> int:
        return self.lanes

    def variant(self, shape: ProductShape, guard: Dim) -> Variant:
        tiles_n = ceildiv(shape.n, self.lanes * self.columns)
        count = shape.batch * ceildiv(shape.m, self.rows) * tiles_n
        chosen = constants(ROWS=self.rows, COLUMNS=self.columns)
        return Variant(count, self.lanes, guard, chosen, (("tiles_n", tiles_n),), self.kernel)


@dataclass(frozen=True)
class SplitK(Parameters):
    """Splits k of a product into parts, which are added afterwards. All parts together have at most `tiles` tiles of 64 x 64
    results. Each part has at least `columns` columns. Requires that all sizes are known at compile time."""

    kernel: ClassVar[str] = "matmul_parts"
    about: ClassVar[Mapping[str, str]] = {
        **PRODUCT_SIZES,
        "discrete": "1 for a GPU with its own memory",
        "matrices": "1 for matrix units, 2 for those of bytes, else 0",
        "tiles": "of 64 x 64 results",
    }
    others: ClassVar = ((1, 256), (600, 256), (3000, 256))
    tiles: int
    columns: int

    def quantities(self, sizes: Mapping[str, Dim]) -> Mapping[str, Dim]:
        return {"tiles": sizes["batch"] * ceildiv(sizes["m"], 64) * ceildiv(sizes["n"], 64)}

    def splits(self, batch: int, m: int, n: int, k: int) -> int:
        """Returns the number of parts."""
        tiles = batch * -(-m // 64) * -(-n // 64)
        return max(1, min(self.tiles // tiles, k // self.columns, MOST_SPLITS)) if tiles else 1


PRODUCTS = tuple(kernel for kernel, it in KERNELS.items() if issubclass(it, ProductForm))
"""The templates of Calls that are matrix products."""
