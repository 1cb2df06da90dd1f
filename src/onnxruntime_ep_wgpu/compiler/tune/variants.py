"""The algorithm, tile and grid of each kernel by class of shapes. The choices of a Target come before the shipped ones of the
same kernel.

In: sizes, as dims, and a Target. Out: variants in the order in which they are tried. Invariants:

- Variants that exceed the target's limits are skipped.
- The same target always gives the same variants.
- A choice of a Target never replaces a kernel that is tried before its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from math import gcd
from typing import Any, NamedTuple, TypeVar

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
_recorder: ContextVar[set[str] | None] = ContextVar("noted", default=None)
_ORDER = {kernel: at for at, kernel in enumerate(dict.fromkeys(it.kernel for it in (*GPU, *SWIFTSHADER, *SOFTWARE)))}
"""The order in which kernels are tried: those for some shapes come before those for all shapes."""


class _Kernels(NamedTuple):
    """The kernels of a form for elements of a type, and what they depend on of a Target."""

    form: type[Parameters]
    dtype: str
    choices: Choices
    software: bool
    invocations: int
    workgroup_bytes: int


@lru_cache(256)
def _candidates(of: _Kernels) -> tuple[tuple[Choice, Parameters], ...]:
    """Returns the choices for these kernels that fit the workgroup limits.

    The choices of a Target come before the shipped ones of the same kernel.
    """
    found = [(it, parameters_of(it)) for it in (*of.choices, *(SOFTWARE if of.software else GPU))]
    return tuple(
        (choice, it)
        for choice, it in sorted(found, key=lambda both: _ORDER[both[0].kernel])
        if isinstance(it, of.form)
        and choice.dtype in ("", of.dtype)
        and it.invocations <= of.invocations
        and it.workgroup_bytes <= of.workgroup_bytes
    )


@contextmanager
def record_kernels() -> Iterator[set[str]]:
    """Yields the set of kernels for which a form is chosen during the `with`, on this thread."""
    found: set[str] = set()
    token = _recorder.set(found)
    try:
        yield found
    finally:
        _recorder.reset(token)


def _chosen(
    target: Target, sizes: Mapping[str, Dim], form: type[Form], dtype: DType | None = None
) -> tuple[tuple[Dim, Form], ...]:
    """Returns guards and parameters for kernels of this form, up to the first that always applies."""
    most = target.max_invocations, target.max_workgroup_storage
    of = _Kernels(form, dtype.label if dtype else "", target.tuning, target.software, *most)
    found = _guarded(of, tuple(sizes.items()))
    recorder = _recorder.get()
    if recorder is not None:
        recorder.update(it.kernel for _, it in found)
    return found


@lru_cache(512)
def _guarded(of: _Kernels, shape: tuple[tuple[str, Dim], ...]) -> tuple[tuple[Dim, Any], ...]:
    """`_chosen`, cached, since the layers of a network have equal shapes. Conditions on sizes that runs decide are as expensive
    as the rest of lowering a product."""
    sizes = dict(shape)
    found: list[tuple[Dim, Any]] = []
    for choice, parameters in _candidates(of):
        guard = _guard((*parameters.bounds, *choice.bounds), {**sizes, **parameters.quantities(sizes)})
        if guard == 0 or any(guard == earlier for earlier, _ in found):
            continue
        if guard == 1 and found and found[-1][1] == parameters:
            found.pop()  # used in any case
        found.append((guard, parameters))
        if guard == 1:
            break
    return tuple(found)


def _guard(bounds: tuple[Bound, ...], sizes: Mapping[str, Dim]) -> Dim:
    """Returns 1 if all bounds hold, else 0. A missing quantity, or an unknown one that must be known, gives 0."""
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
    """Returns whether maps load, calculate and store four elements at a time."""
    return any(it.width == 4 for _, it in _chosen(target, {}, Vectors))


def map_shapes(size: Dim, width: int, part: int, target: Target) -> tuple[MapShape, ...]:
    """Returns grids for `size` elements, with `width` elements per invocation and step. The last one serves all remaining sizes.

    The elements of a `part` of a tensor must be whole workgroups (`binding_ranges.PART_GRAIN`).
    """
    if part:
        return (MapShape(64),)
    return tuple(it.shape(width, guard) for guard, it in _chosen(target, {"size": size}, Grid))


def row_variants(rows: Dim, columns: Dim, target: Target) -> tuple[Variant, ...]:
    """Returns kernels for `rows` rows of `columns` elements."""
    return tuple(it.variant(rows, guard) for guard, it in _chosen(target, {"rows": rows, "columns": columns}, Rows))


def across_variants(rows: Dim, columns: Dim, target: Target) -> tuple[Variant, ...]:
    """Returns kernels for rows with columns that are not adjacent in memory, while neighbouring rows are."""
    return tuple(it.variant(rows, guard) for guard, it in _chosen(target, {"rows": rows, "columns": columns}, RowForm))


def column_splits(rows: Dim, columns: Dim, target: Target) -> int:
    """Returns the number of parts into which such rows are split, which are reduced first, to occupy a GPU.

    Returns 1 for unknown sizes. It also does for less than one element per invocation, where another dispatch costs more than it
    saves.
    """
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
    """Returns the template and variants of a matrix product: (batch, m, k) of type `dtype` by (batch, k, n) of type `other`.

    - `transposed`: the other operand is read as (batch, n, k), because neighbours in k are adjacent in memory.
    - `bits`: the bits of its elements. `longest` packed weights can be unpacked together.
    - `rounded`: rows may be rounded to 8 bits.
    - `of_bytes`: both operands are integers that are signed bytes in memory (`ir/signed_bytes.py`).

    RUN4 of the variants that unpack weights is a quarter of the weights they unpack together. It is the same for all of them.
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
    """Returns template and variants, cached for the layers of a network, which then share the same objects."""
    template, variants = "", list[Variant]()
    run = next((run for _, it in chosen if (run := it.run(shape))), 0)
    shape = replace(shape, run=min(run, *(it.longest_run for _, it in chosen)))
    for guard, it in chosen:
        variants.append(it.variant(shape, guard))
        template = it.call or it.kernel if it.general or not template else template
    return template, tuple(variants)


def k_splits(batch: Dim, m: Dim, n: Dim, k: Dim, target: Target, *, matrices: int = 0) -> int:
    """Returns the number of parts into which k is split to occupy a GPU, or 1 for unknown sizes. `matrices`: see `SplitK`."""
    if not (isinstance(batch, int) and isinstance(m, int) and isinstance(n, int) and isinstance(k, int)):
        return 1
    sizes: dict[str, Dim] = {"batch": batch, "m": m, "n": n, "k": k, "discrete": int(target.discrete)}
    sizes |= {"matrices": matrices}
    return next((it.splits(batch, m, n, k) for _, it in _chosen(target, sizes, SplitK)), 1)


def expert_rows(k: int, bits: int, longest: int, target: Target) -> tuple[int, int, int]:
    """For rows with separate weights, of `bits` bits each in memory. `longest` packed weights can be unpacked together, 0 for
    others.

    Returns how many weights an invocation processes at a time, the invocations that share four columns, and those of a workgroup.
    """
    sizes: dict[str, Dim] = {"m": 1, "k": k, "packed": max(1, longest * bits // 32), "words": -(-k * bits // 32)}
    for _, it in _chosen(target, sizes, PackedRows):
        return min(longest, it.words * 32 // bits) or 4, it.parts, it.invocations
    return 4, 1, 1  # every table has one


def channels_last(target: Target) -> int:
    """Returns which convolutions produce channels-last images; see `ChannelsLast`."""
    return next((it.convolutions for _, it in _chosen(target, {"discrete": int(target.discrete)}, ChannelsLast)), 0)


def direct_convolutions(pixels: Dim, target: Target) -> tuple[tuple[Dim, ConvolutionForm], ...]:
    """Returns guards and forms of a convolution that reads from the image, all of one kernel, or () if it does not."""
    forms = _chosen(target, {"pixels": pixels}, ConvolutionForm)
    return tuple((guard, it) for guard, it in forms if it.kernel == forms[0][1].kernel)


def depthwise(target: Target) -> Depthwise:
    """Returns the form of depthwise convolutions."""
    return next(it for _, it in _chosen(target, {}, Depthwise))  # every table has one


def depthwise_last(target: Target) -> DepthwiseLast:
    """Returns the form of depthwise convolutions of channels-last images."""
    return next(it for _, it in _chosen(target, {}, DepthwiseLast))  # every table has one


def grouped_last(target: Target) -> GroupedLast | None:
    """Returns the form of grouped convolutions of channels-last images, or None on software adapters, which have no such kernel."""
    return next((it for _, it in _chosen(target, {}, GroupedLast)), None)


def squeeze_excite(shape: ExcitationShape, image: Dim | None, target: Target) -> SqueezeExcite | None:
    """Returns the form of such a block, or None if it should be separate products. Conditions that only a run decides do not
    prevent it.

    Its rows are averages of `image` elements each. `image` is None if the averages have other readers.
    """
    sizes: dict[str, Dim] = {"rows": shape.rows, "weights": shape.weights}
    sizes |= {"storage": target.max_workgroup_storage - 4 * (shape.row(1) + shape.hidden + 3)}
    sizes |= {} if image is None else {"image": image}
    form = next((it for _, it in _chosen(target, sizes, SqueezeExcite)), None)
    return form if form is not None and form.fused else None


def scales_rows(batch: Dim, m: Dim, n: Dim, k: Dim, target: Target) -> bool:
    """Returns whether a product scales its rows on load. Conditions that only a run decides do not prevent it."""
    sizes: dict[str, Dim] = {"batch": batch, "m": m, "n": n, "k": k}
    return any(it.inlined for _, it in _chosen(target, sizes, GatedRows)[:1])


def reason_not_to_fuse(
    batch: Dim, rows: Dim, keys: Dim, size: Dim, value_size: Dim, target: Target, dtype: DType
) -> str | None:
    """Returns why attention should be products and a softmax, or None if it should be one kernel.

    It has `rows` queries for each of `batch` heads, with elements of type `dtype`. It is always one kernel if no buffer can hold
    the scores.
    """
    sizes: dict[str, Dim] = {"batch": batch, "rows": rows, "keys": keys, "size": size, "value_size": value_size}
    scores = 4 * batch * rows * keys
    if isinstance(scores, int) and scores > target.max_buffer_bytes:
        return None
    sizes["scores_per_binding"] = floordiv(target.max_binding_bytes, maximum(1, scores))
    # A condition that only a run decides is no reason to store scores.
    form = next((it for guard, it in _chosen(target, sizes, AttentionForm, dtype) if guard == 1), None)
    if form is not None and form.fused:
        return None
    return (
        f"products and a softmax are faster for heads of {size} elements, {rows} queries and {keys} keys, and their scores fit"
        " into memory (the choice 'attention')"
    )


def flash_splits(batch: Dim, rows: Dim, keys: Dim, size: int, value_size: int, target: Target) -> Dim:
    """Returns the number of parts into which the keys of `batch` heads are split, or 1 if no split is needed.

    The parts provide enough workgroups, and on a software adapter limit the length of loops.
    """
    if target.longest_loop is not None:
        sizes: dict[str, Dim] = {"batch": batch, "rows": rows, "splits": 1, "value_size": value_size}
        tiles = [it for _, it in _chosen(target, sizes, FlashTile)]
        tile_counts = ((target.longest_loop - it.iterations_at_end) // it.iterations(size) for it in tiles)
        # for any of them, since the run decides which is used
        most = min(max(1, tile_count) * it.tile_k for it, tile_count in zip(tiles, tile_counts, strict=True))
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
    """Returns the variants of `flash_attention` for `batch` heads of keys and `rows` rows, `steps` per head of queries. Never
    empty: the smallest tiles fit every adapter.

    Queries have `size` elements and results `value_size`, at most WIDEST_HEAD. Each of `splits` workgroups processes a part of
    the keys. `dtypes` are the types of queries, keys and values, where these matter.
    """
    per = floordiv(rows, steps) if steps != 0 else 1
    sizes: dict[str, Dim] = {"batch": batch, "rows": rows, "per": per, "keys": keys, "splits": splits}
    sizes |= {"size": size, "value_size": value_size, **units(target, *dtypes)}
    shape = FlashShape(batch, rows, size, value_size, splits, unrolled=not target.software)
    return _flash_variants(shape, _chosen(target, sizes, FlashForm, dtypes[0]))


@lru_cache(512)
def _flash_variants(shape: FlashShape, chosen: tuple[tuple[Dim, FlashForm], ...]) -> tuple[Variant, ...]:
    """Cached, like `_product_variants`."""
    return tuple(it.variant(shape, guard) for guard, it in chosen)
