"""Matrix products: of matrices by numpy's rules, and the general product that convolution uses too."""

from __future__ import annotations

from dataclasses import replace

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ....program.target import Target
from ....records import dataclass
from ...dims import Dim, equal, product
from ...ir import Map, Read, Shape, Tensor, View, broadcast_shapes, packed_run
from ...ir.signed_bytes import are_bytes
from ...nodes.divide import BindingsError, least_reach
from ...tune import matmul_variants
from ..builder import Builder, Operand
from .reduction import reduce_axes

Groups = tuple[int, int, int]


def longest_sum(target: Target) -> int | None:
    """The number of products that one invocation of a software adapter accumulates; None for no limit. One iteration of a
    loop has four. lavapipe unrolls it only if the loads of the operands are simple; otherwise it counted six iterations."""
    return None if target.longest_loop is None else max(1, target.longest_loop // 2)


@dataclass(frozen=True)
class _Product:
    """result[batch, m, n] = sum over k of x[batch, m, k] * y[batch, k, n], with the roles of the axes."""

    x: Operand
    x_groups: Groups
    y: Operand
    y_groups: Groups
    shape: Shape
    groups: Groups
    dtype: DType
    rounded: bool = False

    @property
    def sizes(self) -> tuple[Dim, Dim, Dim, Dim]:
        """m, n, k, and k in y."""
        (_, m, k), (_, also_k, n) = _sizes(self.x.shape, self.x_groups), _sizes(self.y.shape, self.y_groups)
        return m, n, k, also_k


def _sizes(extents: Shape, parts: Groups) -> tuple[Dim, Dim, Dim]:
    first, second, _ = parts
    return product(extents[:first]), product(extents[first : first + second]), product(extents[first + second :])


def matrix_product(
    b: Builder,
    x: Operand,
    x_groups: Groups,
    y: Operand,
    y_groups: Groups,
    shape: Shape,
    groups: Groups,
    dtype: DType,
    *,
    rounded: bool = False,
) -> Operand:
    """result[batch, m, n] = sum over k of x[batch, m, k] * y[batch, k, n], accumulated in f32 or i32.

    The groups assign the axes of the operands and of `shape` to batch, m, n and k. The batches have equal sizes. `rounded`:
    runs of x may be rounded to 8 bits, if y is integers minus a zero point that are bytes.
    """
    return _lower_product(b, _Product(x, x_groups, y, y_groups, shape, groups, dtype, rounded))


def _lower_product(b: Builder, it: _Product) -> Operand:
    """Returns the product, by as many kernels as it needs."""
    _, _, k, also_k = it.sizes
    b.require(equal(k, also_k), "cannot multiply {} by {}", it.x, it.y)
    if it.dtype.bits == 64:
        return b.reshape(_summed_products(b, it.x, it.x_groups, it.y, it.y_groups), it.shape)
    longest = longest_sum(b.target)
    if longest is not None and isinstance(k, int) and k > longest:
        return _sum_over_parts(b, it, k, longest)
    b.bound_loop(2 * k, "a matrix product over {} columns", k)
    mark = b.mark()
    try:
        return _by_one_kernel(b, it)
    except BindingsError:
        b.undo(mark)
        return _divided(b, it)


def _by_one_kernel(b: Builder, it: _Product) -> Operand:
    """Returns the product by one kernel. Raises BindingsError."""
    (m, n, k, _), x, y = it.sizes, it.x, it.y
    batch = product(it.shape[: it.groups[0]])
    right = Read(y.view, it.y_groups, reuse=True, vector=True)
    along_k = _contiguous_along_k(right)
    longest = packed_run(along_k) if along_k is not None else 0
    template, variants = matmul_variants(
        batch,
        m,
        n,
        k,
        b.target,
        x.dtype,
        transposed=along_k is not None,
        bits=_stored_bits(y.view.tensor),
        longest=longest,
        rounded=it.rounded,
        other=_type_of_scales(y.view.tensor) if longest else y.dtype,
        of_bytes=are_bytes(x.view.tensor) and are_bytes(y.view.tensor),
    )
    # A kernel that loads single elements binds tensors as arrays of elements.
    in_fours = template != "matmul_registers"
    if not in_fours:
        along_k, right = None, replace(right, vector=False)
    run = 4 * max((int(value) for it in variants for name, value in it.constants if name == "RUN4"), default=0)
    right = replace(along_k, run=run) if along_k is not None else right
    puts_fours = not b.target.software
    (result,) = b.call(
        template,
        {"a": Read(x.view, it.x_groups, reuse=True, vector=in_fours), "b": right},
        {"y": (it.dtype.accumulated, it.shape, it.groups)},
        variants,
        parameters={"m": m, "n": n, "k": k},
        flops=2 * product(it.shape) * k,
        vectors=puts_fours,
        note="activations of 8 bits" if any(dict(it.constants).get("DOTS") for it in variants) else "",
        ALONG=Read(x.view, it.x_groups).loads_vectors,
        TRANSPOSED=along_k is not None,
        FOURS=puts_fours,
    )
    return b.cast(result, it.dtype)


def _type_of_scales(weights: Tensor) -> DType | None:
    """The type of the scales that packed weights are dequantised with; None for several types."""
    assert weights.producer is not None
    types = {v.dtype for v in weights.producer.reads if not v.tensor.is_literal and not v.dtype.is_integer}
    return types.pop() if len(types) == 1 else None


def _stored_bits(tensor: Tensor) -> int:
    """The bits of an element in memory, for narrow integers that are converted when they are loaded."""
    node = tensor.producer
    if isinstance(node, Map) and node.inline and node.is_pointwise:
        return max(
            (v.dtype.bits for v in node.reads if v.is_whole and not v.tensor.is_literal), default=tensor.dtype.bits
        )
    return tensor.dtype.bits


def _contiguous_along_k(right: Read) -> Read | None:
    """Returns the right operand as (batch, n, k) if it is contiguous along k, as transposed weights are; else None."""
    batch, k, n = right.groups
    order = [*range(batch), *range(batch + k, batch + k + n), *range(batch, batch + k)]
    along_k = Read(right.view.permute(order), (batch, n, k), right.reuse, right.vector)
    return along_k if along_k.loads_vectors and not right.loads_vectors else None


def _divided(b: Builder, it: _Product) -> Operand:
    """Splits the product of operands that need too many bindings into two, along the axis that leaves the smallest ranges to
    bind."""
    x, y, shape = it.x, it.y, it.shape
    if it.x_groups[2] == it.y_groups[1] == 1:  # both sides use the known extent of k
        at, where = x.rank - 1, it.y_groups[0]
        known = next((d for d in (x.shape[at], y.shape[where]) if isinstance(d, int)), None)
        if known is not None:
            x, y = (b.slice(o, axis, 0, 1, known) for o, axis in ((x, at), (y, where)))
    ends = [(sum(g[:k]), sum(g[: k + 1])) for g in (it.x_groups, it.y_groups, it.groups) for k in range(3)]
    # The axes of the batch, m, n and k in x, in y and in the result.
    places = [(ends[0], ends[3], ends[6]), (ends[1], None, ends[7]), (None, ends[5], ends[8]), (ends[2], ends[4], None)]
    result = View.of(Tensor(it.dtype.accumulated, shape))
    views = (x.view, y.view, result)
    options = [
        [(view, _first_axis(view.shape, span)) for view, span in zip(views, spans, strict=True)] for spans in places
    ]
    chosen = least_reach(options)
    if chosen is None:
        raise BindingsError(
            f"the product of {x} and {y} needs more bindings than the adapter has, even if it is divided"
        )
    left, right, out = (axis for _, axis in options[chosen])
    extent = next(view.shape[axis] for view, axis in options[chosen] if axis is not None)
    assert isinstance(extent, int)

    def part(start: int, count: int) -> Operand:
        these = [o if axis is None else b.slice(o, axis, start, 1, count) for o, axis in ((x, left), (y, right))]
        part_shape = shape if out is None else (*shape[:out], count, *shape[out + 1 :])
        return _lower_product(b, replace(it, x=these[0], y=these[1], shape=part_shape, dtype=it.dtype.accumulated))

    half = -(-extent // 2)
    parts = [part(0, half), part(half, extent - half)]
    if out is None:
        return b.pointwise("x + y", {"x": parts[0], "y": parts[1]}, it.dtype)
    return b.cast(b.joined(parts, out), it.dtype)


def _first_axis(shape: Shape, span: tuple[int, int] | None) -> int | None:
    """The first axis with more than one element in a span of axes; the first axis if there is none."""
    if span is None or span[0] == span[1]:
        return None
    return next((k for k in range(*span) if shape[k] != 1), span[0])


def _sum_over_parts(b: Builder, it: _Product, k: int, most: int) -> Operand:
    """Sums products over parts of k. Each part adds the sum of the previous ones."""
    at, where = it.x.rank - it.x_groups[2], it.y_groups[0]
    x = b.reshape(it.x, (*it.x.shape[:at], k))
    y = b.reshape(it.y, (*it.y.shape[:where], k, *it.y.shape[where + it.y_groups[1] :]))
    flat = replace(it, x_groups=(*it.x_groups[:2], 1), y_groups=(where, 1, it.y_groups[2]), dtype=it.dtype.accumulated)
    total: Operand | None = None
    for start in range(0, k, most):
        length = min(most, k - start)
        left, right = b.slice(x, at, start, 1, length), b.slice(y, where, start, 1, length)
        part = _lower_product(b, replace(flat, x=left, y=right))
        total = part if total is None else b.pointwise("x + y", {"x": part, "y": total}, part.dtype)
    assert total is not None
    return b.cast(total, it.dtype)


def _summed_products(b: Builder, x: Operand, x_groups: Groups, y: Operand, y_groups: Groups) -> Operand:
    """The product without a special kernel, for elements of 64 bits, which are rare in products of models."""
    at, where = x_groups[0], x_groups[0] + x_groups[1]
    inner, columns = y_groups[1], y_groups[2]
    left = b.reshape(x, (*x.shape[:where], *(1,) * columns, *x.shape[where:]))
    right = b.permute(y, [*range(at), *range(at + inner, y.rank), *range(at, at + inner)])
    right = b.reshape(right, (*right.shape[:at], *(1,) * x_groups[1], *right.shape[at:]))
    products = b.pointwise("x * y", {"x": left, "y": right}, x.dtype)
    axes = list(range(where + columns, products.rank))
    return reduce_axes(b, "ReduceSum", products, axes, keepdims=False, wraps=True)


def product_of_matrices(b: Builder, x: Operand, y: Operand, *, rounded: bool = False) -> Operand:
    """Returns the matrix product by numpy's rules, in the type of x. For `rounded` see `matrix_product`."""
    if x.rank == 0 or y.rank == 0:
        raise UnsupportedError("a matrix product of scalars is not supported")
    left = b.reshape(x, (1, *x.shape)) if x.rank == 1 else x
    right = b.reshape(y, (*y.shape, 1)) if y.rank == 1 else y
    if right.rank == 2 or all(d == 1 for d in right.shape[:-2]):
        # One matrix on the right: the batch of the left counts as rows.
        right = b.reshape(right, right.shape[-2:])
        shape = (*left.shape[:-1], right.shape[-1])
        if right.rank < y.rank and y.rank > left.rank:
            left = b.reshape(left, (*(1,) * (y.rank - left.rank), *left.shape))
            shape = (*left.shape[:-1], right.shape[-1])
        rows = (0, left.rank - 1, 1)
        result = matrix_product(b, left, rows, right, (0, 1, 1), shape, rows, x.dtype, rounded=rounded)
    else:
        batch = broadcast_shapes(left.shape[:-2], right.shape[:-2])
        left, right = b.expand(left, (*batch, *left.shape[-2:])), b.expand(right, (*batch, *right.shape[-2:]))
        groups = (len(batch), 1, 1)
        result = matrix_product(
            b, left, groups, right, groups, (*batch, left.shape[-2], right.shape[-1]), groups, x.dtype
        )
    kept = list(result.shape)
    if y.rank == 1:
        del kept[-1]
    if x.rank == 1:
        del kept[-1 if y.rank == 1 else -2]
    return b.reshape(result, kept)
