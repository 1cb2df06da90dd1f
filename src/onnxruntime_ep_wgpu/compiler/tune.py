"""Which algorithm and tile a kernel uses, by shape class and adapter kind. Defaults; the numbers are measured."""

from __future__ import annotations

from dataclasses import dataclass

from ..program.target import Target
from .dims import Dim, ceildiv, less_equal, quotient, select
from .lowered import Constant, Variant


def _constants(**values: Constant) -> tuple[tuple[str, Constant], ...]:
    return tuple(values.items())


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


@dataclass(frozen=True)
class Tile:
    """A tile of `m` x `n` results from `k` columns at a time; an invocation computes `rows` x `columns` of it.

    `slices` groups of invocations split k between them, one where `rows` is more than 4. Taken from `workgroups`
    workgroups on.
    """

    m: int
    n: int
    k: int
    rows: int
    columns: int
    slices: int
    workgroups: int

    @property
    def invocations(self) -> int:
        return self.m * self.n // (self.rows * self.columns) * self.slices


# Largest first, each from as many workgroups on as keep the GPU busy; the smallest serves what is left. Measured with
# bench/kernels.py on an H200: 45 TFLOP/s for 4096 x 4096 x 4096, 24 for 1024, and for 48 x 1536 x 384 four times the
# speed of a 32 x 32 tile without slices.
TILES = (
    Tile(128, 128, 8, 8, 8, 1, 512),
    Tile(64, 64, 16, 4, 8, 1, 256),
    Tile(32, 64, 16, 4, 4, 2, 96),
    Tile(16, 64, 16, 4, 4, 4, 72),
    Tile(16, 32, 16, 4, 4, 8, 0),
)


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
    variants = []
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
                    SLICES=tile.slices,
                    K_WHOLE=quotient(k, 4) is not None,
                ),
                (("tiles_m", ceildiv(m, tile.m)), ("tiles_n", ceildiv(n, tile.n))),
            )
        )
    return "matmul", tuple(variants), {}
