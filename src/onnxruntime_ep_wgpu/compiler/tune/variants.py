"""Which algorithm, tile and grid a kernel has, by class of shapes: of each kernel the choices of a Target before those that are
shipped.

In: sizes, dims as they are known, and a Target. Out: variants, first to last. Invariants: what does not fit into the target is
passed over; the same target always gives the same variants; a choice of a Target takes no shape from a kernel that is tried
before its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from math import gcd
from typing import TypeVar

from ...program.dtypes import DType
from ...program.target import INTEGER_DOTS, Target
from ...program.tuning import Bound, Choice, Choices
from ..dims import Dim, ceildiv, floordiv, less_equal, maximum, minimum, select
from ..ir import Variant
from .attention import AttentionForm, FlashForm, FlashShape, FlashTile, SplitKeys
from .base import Parameters, parameters_of
from .convolutions import ChannelsLast, ConvolutionForm, Depthwise, DepthwiseLast, GroupedLast
from .maps import Grid, MapShape, Vectors
from .matrices import units
from .products import PackedRows, ProductForm, ProductShape, SplitK
from .rows import ColumnSplits, RowForm, Rows
from .shipped import GPU, SOFTWARE, SWIFTSHADER
from .squeeze import ExcitationShape, GatedRows, SqueezeExcite

WIDEST_HEAD = max(it.widest for it in map(parameters_of, GPU) if isinstance(it, FlashTile))
Form = TypeVar("Form", bound=Parameters)
_noted: ContextVar[set[str] | None] = ContextVar("noted", default=None)
_ORDER = {kernel: at for at, kernel in enumerate(dict.fromkeys(it.kernel for it in (*GPU, *SWIFTSHADER, *SOFTWARE)))}
"""Of kernels, in which they are tried: what is only for some shapes is before what is for every one."""


@lru_cache(256)
def _tried(
    choices: Choices, software: bool, invocations: int, workgroup_bytes: int, form: type[Form], dtype: str
) -> tuple[tuple[Choice, Form], ...]:
    """What there is for kernels of this form and elements of this type, and takes no more of a workgroup: the choices of a
    Target before what is shipped for the same kernel."""
    found = [(it, parameters_of(it)) for it in (*choices, *(SOFTWARE if software else GPU))]
    return tuple(
        (choice, it)
        for choice, it in sorted(found, key=lambda both: _ORDER[both[0].kernel])
        if isinstance(it, form)
        and choice.dtype in ("", dtype)
        and it.invocations <= invocations
        and it.workgroup_bytes <= workgroup_bytes
    )


@contextmanager
def noting_kernels() -> Iterator[set[str]]:
    """The kernels of which a form is chosen during the `with`, on this thread."""
    found: set[str] = set()
    token = _noted.set(found)
    try:
        yield found
    finally:
        _noted.reset(token)


def _chosen(
    target: Target, sizes: Mapping[str, Dim], form: type[Form], dtype: DType | None = None
) -> tuple[tuple[Dim, Form], ...]:
    """The guards and parameters of what can be taken for kernels of this form, up to the first that always is."""
    most = target.max_invocations, target.max_workgroup_storage
    label, shape = dtype.label if dtype else "", tuple(sizes.items())
    found = _guarded(target.tuning, target.software, *most, form, label, shape)  # type: ignore[arg-type]  # types are hashable
    noted = _noted.get()
    if noted is not None:
        noted.update(it.kernel for _, it in found)
    return found


@lru_cache(512)
def _guarded(
    choices: Choices,
    software: bool,
    invocations: int,
    workgroup_bytes: int,
    form: type[Form],
    dtype: str,
    shape: tuple[tuple[str, Dim], ...],
) -> tuple[tuple[Dim, Form], ...]:
    """`_chosen`, once for the layers of a network, whose shapes are the same: conditions of sizes that runs decide cost as much as
    all else that lowers a product."""
    sizes = dict(shape)
    found: list[tuple[Dim, Form]] = []
    tried = _tried(choices, software, invocations, workgroup_bytes, form, dtype)  # type: ignore[arg-type]  # as above
    for choice, parameters in tried:
        guard = _guard((*parameters.bounds, *choice.bounds), {**sizes, **parameters.quantities(sizes)})
        if guard == 0 or any(guard == earlier for earlier, _ in found):
            continue
        if guard == 1 and found and found[-1][1] == parameters:
            found.pop()  # taken in any case
        found.append((guard, parameters))
        if guard == 1:
            break
    return tuple(found)


def _guard(bounds: tuple[Bound, ...], sizes: Mapping[str, Dim]) -> Dim:
    """1 where all bounds hold, else 0; 0 for a quantity that is not there, or has to be known and is not."""
    open_bounds: list[tuple[Bound, Dim]] = []
    for bound in bounds:
        size = sizes.get(bound.quantity)
        if isinstance(size, int):
            if not bound.holds(size):
                return 0
        elif size is None or bound.known:
            return 0
        else:
            open_bounds.append((bound, size))
    guard: Dim = 1
    for bound, size in open_bounds:
        for holds in (
            less_equal(bound.least, size) if bound.least is not None else 1,
            less_equal(size, bound.most) if bound.most is not None else 1,
        ):
            guard = holds if guard == 1 else minimum(guard, holds)
    return guard


def maps_in_fours(target: Target) -> bool:
    """Whether maps load, calculate and store four elements at a time."""
    return any(it.width == 4 for _, it in _chosen(target, {}, Vectors))


def map_shapes(size: Dim, width: int, part: int, target: Target) -> tuple[MapShape, ...]:
    """Of `size` elements, of which an invocation makes `width` in a step; the last one serves every size that is left.

    The elements of a `part` of a tensor must be whole workgroups (`binding_ranges.PART_GRAIN`).
    """
    if part:
        return (MapShape(64),)
    return tuple(it.shape(width, guard) for guard, it in _chosen(target, {"size": size}, Grid))


def row_variants(rows: Dim, columns: Dim, target: Target) -> tuple[Variant, ...]:
    """Kernels that treat `rows` rows of `columns` elements."""
    return tuple(it.variant(rows, guard) for guard, it in _chosen(target, {"rows": rows, "columns": columns}, Rows))


def across_variants(rows: Dim, columns: Dim, target: Target) -> tuple[Variant, ...]:
    """Kernels for rows whose neighbours, not whose columns, are neighbours in memory."""
    return tuple(it.variant(rows, guard) for guard, it in _chosen(target, {"rows": rows, "columns": columns}, RowForm))


def column_splits(rows: Dim, columns: Dim, target: Target) -> int:
    """Into how many parts such rows are cut, which are reduced by themselves first, so that a GPU is busy. 1 for sizes that
    are not known, and for less than every invocation has one element of, where another dispatch costs more than it saves."""
    if not isinstance(rows, int) or not isinstance(columns, int):
        return 1
    sizes: dict[str, Dim] = {"elements": rows * columns, "columns": columns}
    return next((it.splits(rows, columns) for _, it in _chosen(target, sizes, ColumnSplits)), 1)


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
    rounded: bool = False,
    other: DType | None = None,
    of_bytes: bool = False,
) -> tuple[str, tuple[Variant, ...]]:
    """Template and variants of a matrix product: (batch, m, k) by (batch, k, n), of elements of type `dtype`, those of the other
    operand of type `other`.

    `transposed`: the other operand is read as (batch, n, k), because neighbours in k are neighbours in memory. Its elements
    take `bits` there; of packed weights so many as `longest` can be unpacked together. RUN4 of the variants that do is a
    quarter of how many they ask for, and the same for all of them. With `rounded`, rows may be rounded to 8 bits. `of_bytes`: both
    operands are integers that are signed bytes in memory (`ir/signed_bytes.py`).
    """
    sizes: dict[str, Dim] = {"batch": batch, "m": m, "n": n, "k": k, "transposed": int(transposed), "bits": bits}
    sizes |= {"packed": longest * bits // 32, "dots": 0, **units(target, dtype, other, of_bytes=of_bytes)}
    if isinstance(k, int):
        sizes |= {"words": -(-k * bits // 32)}
        sizes |= {"dots": gcd(longest, k)} if longest and rounded and INTEGER_DOTS in target.features else {}
    return _product_variants(ProductShape(batch, m, n, k, bits, longest), _chosen(target, sizes, ProductForm, dtype))


@lru_cache(512)
def _product_variants(
    shape: ProductShape, chosen: tuple[tuple[Dim, ProductForm], ...]
) -> tuple[str, tuple[Variant, ...]]:
    """Template and variants, once for the layers of a network: they are the same objects too."""
    template, variants = "", list[Variant]()
    run = next((run for _, it in chosen if (run := it.run(shape))), 0)
    shape = replace(shape, run=min(run, *(it.longest_run for _, it in chosen)))
    for guard, it in chosen:
        variants.append(it.variant(shape, guard))
        template = it.call or it.kernel if it.general or not template else template
    return template, tuple(variants)


def k_splits(batch: Dim, m: Dim, n: Dim, k: Dim, target: Target, *, matrices: int = 0) -> int:
    """Into how many parts k is cut, so that a GPU is busy; 1 for sizes that are not known. `matrices`: as `SplitK` has it."""
    if not (isinstance(batch, int) and isinstance(m, int) and isinstance(n, int) and isinstance(k, int)):
        return 1
    sizes: dict[str, Dim] = {"batch": batch, "m": m, "n": n, "k": k, "discrete": int(target.discrete)}
    sizes |= {"matrices": matrices}
    return next((it.splits(batch, m, n, k) for _, it in _chosen(target, sizes, SplitK)), 1)


def expert_rows(k: int, bits: int, longest: int, target: Target) -> tuple[int, int, int]:
    """For rows with weights of their own, of `bits` each in memory: how many an invocation takes at a time, the invocations that
    share four columns, and those of a workgroup. Of packed weights `longest` can be unpacked together, 0 for others."""
    sizes: dict[str, Dim] = {"m": 1, "k": k, "packed": max(1, longest * bits // 32), "words": -(-k * bits // 32)}
    for _, it in _chosen(target, sizes, PackedRows):
        return min(longest, it.words * 32 // bits) or 4, it.parts, it.invocations
    return 4, 1, 1  # a table always has one


def channels_last(target: Target) -> int:
    """Which convolutions make images whose channels are last in memory, as `ChannelsLast` says."""
    return next((it.convolutions for _, it in _chosen(target, {"discrete": int(target.discrete)}, ChannelsLast)), 0)


def direct_convolutions(pixels: Dim, target: Target) -> tuple[tuple[Dim, ConvolutionForm], ...]:
    """Guards and forms of a convolution that is read from the image, all of one kernel; () where it is not."""
    forms = _chosen(target, {"pixels": pixels}, ConvolutionForm)
    return tuple((guard, it) for guard, it in forms if it.kernel == forms[0][1].kernel)


def depthwise(target: Target) -> Depthwise:
    """How depthwise convolutions run."""
    return next(it for _, it in _chosen(target, {}, Depthwise))  # a table always has one


def depthwise_last(target: Target) -> DepthwiseLast:
    """How those of images whose channels are last in memory run."""
    return next(it for _, it in _chosen(target, {}, DepthwiseLast))  # a table always has one


def grouped_last(target: Target) -> GroupedLast | None:
    """How convolutions in groups of images whose channels are last run; None on software adapters, which have no such kernel."""
    return next((it for _, it in _chosen(target, {}, GroupedLast)), None)


def squeeze_excite(shape: ExcitationShape, image: Dim | None, target: Target) -> SqueezeExcite | None:
    """How such a block runs, whose rows are averages of `image` elements each, None where others read them; None where it is
    products. What only a run decides is no reason against it."""
    sizes: dict[str, Dim] = {"rows": shape.rows, "weights": shape.weights}
    sizes |= {"storage": target.max_workgroup_storage - 4 * (shape.row(1) + shape.hidden + 3)}
    sizes |= {} if image is None else {"image": image}
    form = next((it for _, it in _chosen(target, sizes, SqueezeExcite)), None)
    return form if form is not None and form.fused else None


def scales_rows(batch: Dim, m: Dim, n: Dim, k: Dim, target: Target) -> bool:
    """Whether a product scales its rows as it loads them. What only a run decides is no reason against it."""
    sizes: dict[str, Dim] = {"batch": batch, "m": m, "n": n, "k": k}
    return any(it.inlined for _, it in _chosen(target, sizes, GatedRows)[:1])


def written_out(
    batch: Dim, rows: Dim, keys: Dim, size: Dim, value_size: Dim, target: Target, dtype: DType
) -> str | None:
    """Why attention of `rows` queries of each of `batch` heads, of elements of type `dtype`, is products and a softmax, or None
    where it is one kernel, as it is wherever a buffer does not hold the scores."""
    sizes: dict[str, Dim] = {"batch": batch, "rows": rows, "keys": keys, "size": size, "value_size": value_size}
    scores = 4 * batch * rows * keys
    if isinstance(scores, int) and scores > target.max_buffer_bytes:
        return None
    sizes["scores_per_binding"] = floordiv(target.max_binding_bytes, maximum(1, scores))
    # What only a run decides is no reason to have scores in memory.
    form = next((it for guard, it in _chosen(target, sizes, AttentionForm, dtype) if guard == 1), None)
    if form is not None and form.fused:
        return None
    return (
        f"products and a softmax are faster for heads of {size} elements, {rows} queries and {keys} keys, and their scores fit"
        " into memory (the choice 'attention')"
    )


def flash_splits(batch: Dim, rows: Dim, keys: Dim, size: int, value_size: int, target: Target) -> Dim:
    """Into how many parts the keys of `batch` heads are cut, so that there are workgroups enough, or on a software adapter so that
    no loop is too long. 1 where that needs none."""
    if target.longest_loop is not None:
        sizes: dict[str, Dim] = {"batch": batch, "rows": rows, "splits": 1, "value_size": value_size}
        tiles = [it for _, it in _chosen(target, sizes, FlashTile)]
        turns = ((target.longest_loop - it.iterations_at_end) // it.iterations(size) for it in tiles)
        most = min(max(1, turn) * it.tile_k for it, turn in zip(tiles, turns, strict=True))  # whichever a run has
        return ceildiv(keys, most)
    splits: Dim = 1
    for guard, it in reversed(_chosen(target, {"batch": batch, "rows": rows, "keys": keys}, SplitKeys)):
        splits = select(guard, it.splits(batch, rows, keys), splits)
    return splits


def flash_variants(
    batch: Dim,
    rows: Dim,
    steps: Dim,
    keys: Dim,
    size: int,
    value_size: int,
    splits: Dim,
    target: Target,
    dtypes: tuple[DType | None, ...] = (None,),
) -> tuple[Variant, ...]:
    """Variants of `flash_attention` for `batch` heads of keys and `rows` rows, `steps` for each head of queries, with `size`
    elements of a query and `value_size` of a result, at most WIDEST_HEAD; each of `splits` workgroups takes a part of the keys.
    Queries, keys and values have these `dtypes`, where it matters. Never empty: the smallest tiles fit into every adapter."""
    per = floordiv(rows, steps) if steps != 0 else 1
    sizes: dict[str, Dim] = {"batch": batch, "rows": rows, "per": per, "keys": keys, "splits": splits}
    sizes |= {"size": size, "value_size": value_size, **units(target, *dtypes)}
    shape = FlashShape(batch, rows, size, value_size, splits, unrolled=not target.software)
    return _flash_variants(shape, _chosen(target, sizes, FlashForm, dtypes[0]))


@lru_cache(512)
def _flash_variants(shape: FlashShape, chosen: tuple[tuple[Dim, FlashForm], ...]) -> tuple[Variant, ...]:
    """Like `_product_variants`."""
    return tuple(it.variant(shape, guard) for guard, it in chosen)
