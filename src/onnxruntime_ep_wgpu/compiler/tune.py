"""Which algorithm and tile a kernel uses, by shape class and adapter kind. Defaults; the numbers are measured."""

from __future__ import annotations

from dataclasses import dataclass

from ..program.target import Target
from .dims import Dim, ceildiv, less_equal, minimum, quotient, select
from .lowered import Constant, Variant


def _constants(**values: Constant) -> tuple[tuple[str, Constant], ...]:
    return tuple(values.items())


@dataclass(frozen=True)
class MapShape:
    """How a kernel of maps is cut: `workgroup` invocations, each of which does its work in `steps` steps of a workgroup."""

    workgroup: int
    steps: int = 1
    guard: Dim = 1


def maps_in_fours(target: Target) -> bool:
    """Whether maps load, calculate and store four elements at a time. A software adapter makes vectors of its own, of
    neighbouring invocations."""
    return not target.software


def map_shapes(size: Dim, width: int, part: int, target: Target) -> tuple[MapShape, ...]:
    """Of `size` elements, of which an invocation makes `width` in a step; the last one serves every size that is left.

    GPUs are bound by launching workgroups when these do little: an H200 makes 8192 x 8192 f32 at 0.79 TB/s with 64 elements
    in each, 2.97 with 1024, 3.85 with 2048 in two steps. Small tensors rather need every workgroup that they can get. The
    elements of a `part` of a tensor must be whole workgroups (`windows.PART_GRAIN`).
    """
    if target.software or part:
        return (MapShape(64),)
    large, middle = 1 << 22, 1 << 18
    shapes = (
        MapShape(256, max(2, 8 // width), less_equal(large, size)),
        MapShape(256, 1, less_equal(middle, size)),
        MapShape(64),
    )
    if isinstance(size, int):
        return (next(MapShape(s.workgroup, s.steps) for s in shapes if s.guard == 1),)
    return (shapes[0], shapes[2])


INVOCATIONS = 1 << 18  # that keep a large GPU busy: an H200 runs 270,000 at once


def row_variants(rows: Dim, columns: Dim, target: Target) -> tuple[Variant, ...]:
    """Kernels that treat `rows` rows of `columns` elements: one invocation per short row, a workgroup per long one.

    On a software adapter an invocation per row is fastest as soon as there are enough rows for both cores' lanes.
    """
    narrow = Variant(ceildiv(rows, 64), 64, less_equal(columns, 32), _constants(LANES=1, ROWS=64))
    wide = Variant(rows, 64, 1, _constants(LANES=64, ROWS=1))
    if target.software:
        short = less_equal(columns, 4096)
        many = Variant(ceildiv(rows, 16), 16, select(short, less_equal(32, rows), 0), _constants(LANES=1, ROWS=16))
        most = target.max_invocations
        longest = Variant(rows, most, less_equal(1 << 20, columns), _constants(LANES=most, ROWS=1))
        widest = Variant(rows, 256, less_equal(65536, columns), _constants(LANES=256, ROWS=1))
        return (many, longest, widest, wide) if most > 256 else (many, widest, wide)
    widest = Variant(rows, 256, less_equal(2048, columns), _constants(LANES=256, ROWS=1))
    return (narrow, widest, wide) if target.max_invocations >= 256 else (narrow, wide)


def across_variants(rows: Dim, columns: Dim, target: Target) -> tuple[Variant, ...]:
    """Kernels for rows whose neighbours, not whose columns, are neighbours in memory: with an invocation per row those of a
    workgroup load together. An H200 sums 8192 x 8192 f32 over the first axis in 1.57 ms with a workgroup per row, which loads
    a line of memory for each element."""
    if target.software:
        return row_variants(rows, columns, target)
    together = Variant(ceildiv(rows, 256), 256, less_equal(1 << 13, rows), _constants(LANES=1, ROWS=256))
    return (together, *row_variants(rows, columns, target))


def across_parts(rows: Dim, columns: Dim, target: Target) -> int:
    """Into how many parts such rows are cut, which are reduced by themselves first, so that a GPU is busy. 1 for sizes that
    are not known, and for less than every invocation has one element of, where another dispatch costs more than it saves."""
    if target.software or not isinstance(rows, int) or not isinstance(columns, int) or rows * columns < INVOCATIONS:
        return 1
    most = min(INVOCATIONS // rows, columns // 64)
    return max((p for p in range(1, most + 1) if columns % p == 0), default=1)


@dataclass(frozen=True)
class Tile:
    """A tile of `m` x `n` results from `k` columns at a time; an invocation computes `rows` x `columns` of it.

    `slices` groups of invocations split k between them; `unrolled` steps of k are written out. Taken from `workgroups`
    workgroups on.
    """

    m: int
    n: int
    k: int
    rows: int
    columns: int
    slices: int
    workgroups: int
    unrolled: int = 4

    @property
    def per_slice(self) -> int:
        """Invocations that share a slice of k."""
        return self.m * self.n // (self.rows * self.columns)

    @property
    def invocations(self) -> int:
        return self.per_slice * self.slices


# Largest first, each from as many workgroups on as keep the GPU busy; the smallest serves what is left. Measured with
# bench/kernels.py on an H200, in TFLOP/s: 44 for 4096 x 4096 x 4096, 30 for 1024 (22 with tiles of 64 x 64), 36 for 1576 x 768
# x 3072 (27), and for 48 x 1536 x 384 four times the speed of a 32 x 32 tile without slices.
TILES = (
    Tile(128, 128, 8, 8, 8, 1, 512, unrolled=8),
    Tile(64, 128, 8, 8, 8, 1, 120, unrolled=8),
    Tile(32, 64, 16, 4, 4, 2, 96),
    Tile(16, 64, 16, 4, 4, 4, 72),
    Tile(16, 32, 16, 4, 4, 8, 0),
)


# Of a product that is bound by reading the other operand. With bench/rows.py on an H200, one row by 4096 x 11008 took 70 us
# (f32; 49 where the weights are transposed) and 45 us (f16), tiles 152 and 140; from 8 rows on tiles are as fast or faster.
MOST_ROWS = 4
LEAST_COLUMNS = 256  # of the rows: with fewer most parts of a workgroup would idle


def few_rows(m: Dim, k: Dim, target: Target) -> bool:
    """Whether a product is known to have so few rows that reading the other operand is all that takes time."""
    known = isinstance(m, int) and isinstance(k, int)
    return (
        known
        and not target.software
        and _fits_rows(target)
        and less_equal(m, MOST_ROWS) == 1 == less_equal(LEAST_COLUMNS, k)
    )


def _fits_rows(target: Target) -> bool:
    return target.max_invocations >= 256


def row_products(batch: Dim, m: Dim, n: Dim, k: Dim, target: Target, transposed: bool = False) -> list[Variant]:
    """The variants of a product for few rows, each for as many as it keeps sums of."""
    if target.software or not _fits_rows(target):
        return []
    columns4 = 16 if isinstance(n, int) and n >= 8192 and not transposed else 8
    tiles_n = ceildiv(n, 4 * columns4)
    variants: list[Variant] = []
    for rows in (1, 2, 4, 8, 16, 32) if isinstance(m, int) else (1, MOST_ROWS):
        if rows > MOST_ROWS:
            break
        guard = minimum(less_equal(m, rows), less_equal(LEAST_COLUMNS, k))
        if guard != 0:
            constants = _constants(
                ROWS=rows,
                COLUMNS4=columns4,
                STEPS=2 if rows <= 4 else 1,
                K_WHOLE=quotient(k, 4) is not None,
            )
            variants.append(Variant(batch * tiles_n, 256, guard, constants, (("tiles_n", tiles_n),), "matvec"))
        if guard == 1:
            break
    return variants


def matmul_variants(
    batch: Dim, m: Dim, n: Dim, k: Dim, target: Target
) -> tuple[str, tuple[Variant, ...], dict[str, Dim]]:
    """Template, variants and extra parameters of a matrix product: (batch, m, k) by (batch, k, n).

    On lavapipe loads cost more than arithmetic and workgroup memory is no faster than the cache, so operands are read
    directly: 16 GFLOP/s on two cores where the best tile in workgroup memory gave 7 (45 x 384 x 1536, Mesa 22.3).
    """
    if target.software:
        tiles_m, tiles_n = ceildiv(m, 8), ceildiv(n, 64)
        few = Variant(batch * ceildiv(m, 4) * tiles_n, 8, less_equal(m, 4), _constants(ROWS=4))
        return (
            "matmul_direct",
            (few, Variant(batch * tiles_m * tiles_n, 8, 1, _constants(ROWS=8))),
            {"tiles_n": tiles_n},
        )
    variants = row_products(batch, m, n, k, target)
    if variants and variants[-1].guard == 1:
        return "matvec", tuple(variants), {}
    for tile in TILES:
        workgroups = batch * ceildiv(m, tile.m) * ceildiv(n, tile.n)
        guard: Dim = less_equal(tile.workgroups, workgroups) if tile is not TILES[-1] else 1
        variants.append(
            Variant(
                workgroups,
                tile.invocations,
                guard,
                _constants(
                    TILE_M=tile.m,
                    TILE_N=tile.n,
                    TILE_K=tile.k,
                    ROWS4=tile.rows // 4,
                    COLUMNS4=tile.columns // 4,
                    A_LOADS=tile.m * tile.k // 4 // tile.per_slice,
                    B_LOADS=tile.n * tile.k // 4 // tile.per_slice,
                    SLICES=tile.slices,
                    UNROLLED=tile.unrolled,
                    K_WHOLE=quotient(k, 4) is not None,
                ),
                (("tiles_m", ceildiv(m, tile.m)), ("tiles_n", ceildiv(n, tile.n))),
            )
        )
    return "matmul", tuple(variants), {}


@dataclass(frozen=True)
class FlashTile:
    """A workgroup of `flash_attention`: `threads_x` x `threads_y` invocations in each of `slices` groups, which sum
    4 `rows4` queries by 4 `columns4` keys, and `values4` times 4 elements of results.

    `depth` elements of queries and keys are in workgroup memory at a time, and `keys` rows of values. For heads of up to
    `widest` elements, from `workgroups` workgroups on.
    """

    threads_x: int
    threads_y: int
    rows4: int
    columns4: int
    values4: int
    slices: int
    depth: int
    keys: int
    workgroups: int

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
    def workgroup_storage(self) -> int:
        """Bytes of workgroup memory."""
        operands = max((self.queries + self.tile_k) * self.depth, self.keys * self.widest)
        scores = max(self.tile_k, 4 * self.threads_x) * self.queries
        return 4 * (self.slices * (operands + scores + self.queries) + 2 * self.invocations)


# Per width of a head, those that need more workgroups first; the last serves what is left. Wider heads keep fewer queries.
FLASH_TILES = (
    (FlashTile(8, 16, 2, 1, 1, 1, 16, 32, 256), FlashTile(8, 8, 1, 1, 1, 2, 8, 16, 96), FlashTile(8, 2, 1, 1, 1, 4, 16, 32, 0)),
    (FlashTile(16, 8, 2, 1, 1, 1, 16, 32, 256), FlashTile(16, 8, 1, 1, 1, 1, 8, 16, 96), FlashTile(16, 2, 1, 1, 1, 4, 16, 16, 0)),
    (FlashTile(8, 16, 2, 1, 3, 1, 16, 16, 256), FlashTile(8, 8, 1, 1, 3, 2, 8, 8, 96), FlashTile(8, 2, 1, 1, 3, 4, 16, 8, 0)),
    (FlashTile(16, 8, 2, 1, 2, 1, 16, 16, 256), FlashTile(16, 8, 1, 1, 2, 1, 8, 8, 96), FlashTile(16, 2, 1, 1, 2, 4, 16, 8, 0)),
    (FlashTile(16, 8, 2, 1, 3, 1, 16, 8, 256), FlashTile(16, 8, 1, 1, 3, 1, 8, 8, 96), FlashTile(16, 2, 1, 1, 3, 4, 16, 4, 0)),
    (FlashTile(16, 16, 1, 1, 4, 1, 16, 8, 256), FlashTile(16, 8, 1, 1, 4, 1, 8, 4, 96), FlashTile(16, 2, 1, 1, 4, 4, 16, 4, 0)),
)  # fmt: skip
WIDEST_HEAD = FLASH_TILES[-1][0].widest


def flash_variants(batch: Dim, queries: Dim, size: Dim, value_size: int, target: Target) -> tuple[Variant, ...]:
    """Variants of `flash_attention` for `batch` heads of `queries` queries, `size` elements of a query and `value_size` of
    a result, which is at most WIDEST_HEAD. Never empty: the smallest tiles fit into every adapter."""
    tiles = next(them for them in FLASH_TILES if value_size <= them[0].widest)
    fitting = [
        t
        for t in tiles
        if t.workgroup_storage <= target.max_workgroup_storage and t.invocations <= target.max_invocations
    ]
    variants = []
    for tile in fitting:
        tiles_q = ceildiv(queries, tile.queries)
        guard: Dim = less_equal(tile.workgroups, batch * tiles_q) if tile is not fitting[-1] else 1
        constants = _constants(
            TILE_Q=tile.queries,
            THREADS_X=tile.threads_x,
            ROWS4=tile.rows4,
            COLUMNS4=tile.columns4,
            VALUES4=tile.values4,
            SLICES=tile.slices,
            DEPTH=tile.depth,
            KEYS=tile.keys,
            SIZE_WHOLE=quotient(size, 4) is not None,
        )
        variants.append(Variant(batch * tiles_q, tile.invocations, guard, constants, (("tiles_q", tiles_q),)))
    return tuple(variants)
