"""Which algorithm and tile a kernel uses, by shape class and adapter kind. Defaults; the numbers are measured."""

from __future__ import annotations

from .dims import Dim, ceildiv, less_equal
from .lowered import Constant, Variant
from .target import Target


def _constants(**values: Constant) -> tuple[tuple[str, Constant], ...]:
    return tuple(values.items())


def row_variants(rows: Dim, columns: Dim, target: Target) -> tuple[Variant, ...]:
    """Kernels that treat `rows` rows of `columns` elements: one invocation per short row, a workgroup per long one.

    On a software adapter an invocation per row is fastest as soon as there are enough rows for both cores' lanes.
    """
    narrow = Variant(ceildiv(rows, 64), 64, less_equal(columns, 32), _constants(LANES=1, ROWS=64))
    wide = Variant(rows, 64, 1, _constants(LANES=64, ROWS=1))
    if target.software:
        many = Variant(ceildiv(rows, 16), 16, less_equal(32, rows), _constants(LANES=1, ROWS=16))
        return (many, wide)
    widest = Variant(rows, 256, less_equal(2048, columns), _constants(LANES=256, ROWS=1))
    return (narrow, widest, wide) if target.max_invocations >= 256 else (narrow, wide)


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
    rows = 4
    tile_m = rows * 4
    tiles_m, tiles_n = ceildiv(m, tile_m), ceildiv(n, 64)
    variant = Variant(batch * tiles_m * tiles_n, 64, 1, _constants(TILE_M=tile_m, TILE_K=16, ROWS=rows))
    return "matmul", (variant,), {"tiles_m": tiles_m, "tiles_n": tiles_n}
