"""Which algorithm, tile and grid a kernel has, by class of shapes: the choices of a Target before those that are shipped.

In: sizes, dims as they are known, and a Target. Out: variants, first to last. Invariants: what does not fit into the target is
passed over; the same target always gives the same variants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...program.dtypes import DType
from ...program.target import Target
from ...program.tuning import Bound
from ..dims import Dim, ceildiv, floordiv, less_equal, maximum, minimum, quotient, select
from ..ir import Variant
from .attention import AttentionForm, FlashParts, FlashRows, FlashTile
from .base import Parameters, constants
from .parameters import (
    Depthwise,
    DirectConvolution,
    Grid,
    Parts,
    RegisterConvolution,
    Rows,
    RowsAcross,
    Vectors,
    parameters_of,
)
from .products import (
    DirectProduct,
    PackedRows,
    ProductForm,
    ProductParts,
    ProductShape,
    RegisterProduct,
    RowProduct,
    Tile,
)
from .shipped import GPU, SOFTWARE

MOST_PARTS = 16  # of a product: each is one more operand of the map that adds them
WIDEST_HEAD = max(it.widest for it in map(parameters_of, GPU) if isinstance(it, FlashTile))


def _chosen(
    target: Target, sizes: Mapping[str, Dim], *classes: type[Parameters], dtype: DType | None = None
) -> list[tuple[Dim, Parameters]]:
    """The guards and parameters of what can be taken for kernels of these classes, up to the first that always is."""
    kernels = {it.kernel for it in classes}
    found: list[tuple[Dim, Parameters]] = []
    for choice in (*target.tuning, *(SOFTWARE if target.software else GPU)):
        if choice.kernel not in kernels or (choice.dtype and (dtype is None or choice.dtype != dtype.label)):
            continue
        parameters = parameters_of(choice)
        if parameters.invocations > target.max_invocations or parameters.workgroup_bytes > target.max_workgroup_storage:
            continue
        guard = _guard((*parameters.bounds, *choice.bounds), {**sizes, **parameters.quantities(sizes)})
        if guard == 0 or any(guard == earlier for earlier, _ in found):
            continue
        if guard == 1 and found and found[-1][1] == parameters:
            found.pop()  # taken in any case
        found.append((guard, parameters))
        if guard == 1:
            break
    return found


def _guard(bounds: tuple[Bound, ...], sizes: Mapping[str, Dim]) -> Dim:
    """1 where all bounds hold, else 0; 0 for a quantity that is not there, or has to be known and is not."""
    guard: Dim = 1
    for bound in bounds:
        size = sizes.get(bound.quantity)
        if size is None or (bound.known and not isinstance(size, int)):
            return 0
        for holds in (
            less_equal(bound.least, size) if bound.least is not None else 1,
            less_equal(size, bound.most) if bound.most is not None else 1,
        ):
            guard = holds if guard == 1 else minimum(guard, holds)
    return guard


@dataclass(frozen=True)
class MapShape:
    """How a kernel of maps is cut: `workgroup` invocations, each of which does its work in `steps` steps of a workgroup."""

    workgroup: int
    steps: int = 1
    guard: Dim = 1


def maps_in_fours(target: Target) -> bool:
    """Whether maps load, calculate and store four elements at a time."""
    return any(it.width == 4 for _, it in _chosen(target, {}, Vectors) if isinstance(it, Vectors))


def map_shapes(size: Dim, width: int, part: int, target: Target) -> tuple[MapShape, ...]:
    """Of `size` elements, of which an invocation makes `width` in a step; the last one serves every size that is left.

    The elements of a `part` of a tensor must be whole workgroups (`windows.PART_GRAIN`).
    """
    if part:
        return (MapShape(64),)
    return tuple(
        MapShape(it.workgroup, max(it.steps, it.elements // width), guard)
        for guard, it in _chosen(target, {"size": size}, Grid)
        if isinstance(it, Grid)
    )


def row_variants(rows: Dim, columns: Dim, target: Target) -> tuple[Variant, ...]:
    """Kernels that treat `rows` rows of `columns` elements."""
    return _by_rows(rows, columns, target, Rows)


def across_variants(rows: Dim, columns: Dim, target: Target) -> tuple[Variant, ...]:
    """Kernels for rows whose neighbours, not whose columns, are neighbours in memory."""
    return _by_rows(rows, columns, target, RowsAcross, Rows)


def _by_rows(rows: Dim, columns: Dim, target: Target, *classes: type[Rows]) -> tuple[Variant, ...]:
    return tuple(
        Variant(ceildiv(rows, it.rows), it.invocations, guard, constants(LANES=it.lanes, ROWS=it.rows))
        for guard, it in _chosen(target, {"rows": rows, "columns": columns}, *classes)
        if isinstance(it, Rows)
    )


def across_parts(rows: Dim, columns: Dim, target: Target) -> int:
    """Into how many parts such rows are cut, which are reduced by themselves first, so that a GPU is busy. 1 for sizes that
    are not known, and for less than every invocation has one element of, where another dispatch costs more than it saves."""
    if not isinstance(rows, int) or not isinstance(columns, int):
        return 1
    for _, it in _chosen(target, {"elements": rows * columns}, Parts):
        assert isinstance(it, Parts)
        most = min(it.busy // rows, columns // it.columns) if rows else 1
        return max((p for p in range(1, most + 1) if columns % p == 0), default=1)
    return 1


def matmul_variants(
    batch: Dim,
    m: Dim,
    n: Dim,
    k: Dim,
    target: Target,
    dtype: DType | None = None,
    *,
    transposed: bool = False,
    bits: int = 32,
    longest: int = 0,
) -> tuple[str, tuple[Variant, ...]]:
    """Template and variants of a matrix product: (batch, m, k) by (batch, k, n), of elements of type `dtype`.

    `transposed`: the other operand is read as (batch, n, k), because neighbours in k are neighbours in memory. Its elements
    take `bits` there; of packed weights so many as `longest` can be unpacked together. RUN4 of the variants that do is a
    quarter of how many they ask for, and the same for all of them.
    """
    sizes: dict[str, Dim] = {"batch": batch, "m": m, "n": n, "k": k, "transposed": int(transposed), "bits": bits}
    sizes |= {"packed": longest * bits // 32}
    sizes |= {"words": -(-k * bits // 32)} if isinstance(k, int) else {}
    shape = ProductShape(batch, m, n, k, bits, longest)
    template, variants = "", list[Variant]()
    for guard, it in _chosen(target, sizes, Tile, RowProduct, PackedRows, DirectProduct, RegisterProduct, dtype=dtype):
        assert isinstance(it, ProductForm)
        shape = shape if shape.run else replace(shape, run=it.run(shape))
        variants.append(it.variant(shape, guard))
        template = it.kernel if it.general or not template else template
    return template, tuple(variants)


def product_parts(batch: Dim, m: Dim, n: Dim, k: Dim, target: Target) -> int:
    """Into how many parts k is cut, so that a GPU is busy; 1 for sizes that are not known."""
    if not (isinstance(batch, int) and isinstance(m, int) and isinstance(n, int) and isinstance(k, int)):
        return 1
    sizes: dict[str, Dim] = {"batch": batch, "m": m, "n": n, "k": k, "discrete": int(target.discrete)}
    for _, it in _chosen(target, sizes, ProductParts):
        assert isinstance(it, ProductParts)
        tiles = batch * -(-m // 64) * -(-n // 64)
        return max(1, min(it.tiles // tiles, k // it.columns, MOST_PARTS)) if tiles else 1
    return 1


def expert_rows(k: int, bits: int, longest: int, target: Target) -> tuple[int, int, int]:
    """For rows with weights of their own, of `bits` each in memory: how many an invocation takes at a time, the invocations that
    share four columns, and those of a workgroup. Of packed weights `longest` can be unpacked together, 0 for others."""
    sizes: dict[str, Dim] = {"m": 1, "k": k, "packed": max(1, longest * bits // 32), "words": -(-k * bits // 32)}
    for _, it in _chosen(target, sizes, PackedRows):
        assert isinstance(it, PackedRows)
        return min(longest, it.words * 32 // bits) or 4, it.parts, it.invocations
    return 4, 1, 1  # a table always has one


def direct_convolutions(pixels: Dim, target: Target) -> tuple[tuple[Dim, DirectConvolution | RegisterConvolution], ...]:
    """Guards and forms of a convolution that is read from the image, all of one kernel; () where it is not."""
    found = _chosen(target, {"pixels": pixels}, DirectConvolution, RegisterConvolution)
    forms = [(guard, it) for guard, it in found if isinstance(it, DirectConvolution | RegisterConvolution)]
    return tuple((guard, it) for guard, it in forms if it.kernel == forms[0][1].kernel)


def depthwise(target: Target) -> Depthwise:
    """How depthwise convolutions run."""
    ((_, it),) = _chosen(target, {}, Depthwise)
    assert isinstance(it, Depthwise)
    return it


def written_out(
    batch: Dim, rows: Dim, keys: Dim, size: Dim, value_size: Dim, target: Target, dtype: DType
) -> str | None:
    """Why attention of `rows` queries of each of `batch` heads, of elements of type `dtype`, is products and a softmax, or None
    where it is one kernel, as it is wherever a buffer does not hold the scores."""
    sizes: dict[str, Dim] = {"batch": batch, "rows": rows, "keys": keys, "size": size, "value_size": value_size}
    scores = 4 * batch * rows * keys
    if isinstance(scores, int) and scores > target.max_buffer_bytes:
        return None
    sizes["fits"] = floordiv(target.max_binding_bytes, maximum(1, scores))
    # What only a run decides is no reason to have scores in memory.
    form = next((it for guard, it in _chosen(target, sizes, AttentionForm, dtype=dtype) if guard == 1), None)
    if isinstance(form, AttentionForm) and form.fused:
        return None
    return (
        f"products and a softmax are faster for heads of {size} elements, {rows} queries and {keys} keys, and their scores fit"
        " into memory (the choice 'attention')"
    )


def flash_splits(batch: Dim, rows: Dim, keys: Dim, size: int, value_size: int, target: Target) -> Dim:
    """Into how many parts the keys of `batch` heads are cut, so that there are workgroups enough, or on a software adapter so that
    no loop is too long. 1 where that needs none."""
    if target.longest_loop is not None:
        ((_, tile),) = _chosen(target, {"batch": batch, "rows": rows, "splits": 1, "value_size": value_size}, FlashTile)
        assert isinstance(tile, FlashTile)
        turns = max(1, (target.longest_loop - tile.iterations_at_end) // tile.iterations(size))
        return ceildiv(keys, turns * tile.tile_k)
    splits: Dim = 1
    for guard, it in reversed(_chosen(target, {"batch": batch, "rows": rows, "keys": keys}, FlashParts)):
        assert isinstance(it, FlashParts)
        workgroups = maximum(1, batch * ceildiv(rows, it.rows))
        parts = minimum(floordiv(it.workgroups, workgroups), ceildiv(keys, it.keys))
        splits = select(guard, maximum(1, parts), splits)
    return splits


def flash_variants(
    batch: Dim, rows: Dim, steps: Dim, keys: Dim, size: int, value_size: int, splits: Dim, target: Target
) -> tuple[Variant, ...]:
    """Variants of `flash_attention` for `batch` heads of keys and `rows` rows, `steps` for each head of queries, with `size`
    elements of a query and `value_size` of a result, at most WIDEST_HEAD; each of `splits` workgroups takes a part of the keys.
    Never empty: the smallest tiles fit into every adapter."""
    per = floordiv(rows, steps) if steps != 0 else 1
    sizes: dict[str, Dim] = {"batch": batch, "rows": rows, "per": per, "keys": keys, "splits": splits}
    sizes |= {"size": size, "value_size": value_size}
    whole = quotient(size, 4) is not None
    variants = []
    for guard, it in _chosen(target, sizes, FlashRows, FlashTile):
        if isinstance(it, FlashRows):
            template, tiles_q = "flash_rows", ceildiv(rows, it.rows)
            chosen = constants(ROWS=it.rows, KEYS=it.keys, SIZE_WHOLE=whole)
        else:
            assert isinstance(it, FlashTile)
            template, tiles_q = "", ceildiv(rows, it.queries)
            chosen = constants(
                TILE_Q=it.queries,
                THREADS_X=it.threads_x,
                ROWS4=it.rows4,
                COLUMNS4=it.columns4,
                VALUES4=it.values4,
                SLICES=it.slices,
                DEPTH=it.depth,
                UNROLLED=1 if target.software else it.unrolled,
                KEYS=it.keys,
                SIZE_WHOLE=whole,
            )
        workgroups = batch * tiles_q * splits
        variants.append(Variant(workgroups, it.invocations, guard, chosen, (("tiles_q", tiles_q),), template))
    return tuple(variants)
