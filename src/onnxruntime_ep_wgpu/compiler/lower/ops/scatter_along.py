"""Updates along an axis: each element finds its updates, in the order in which they are given.

* For few updates of a line, each element compares all of them.
* For many updates that replace elements, atomic maxima, one per update, compute the number of each element's last update.
* Many updates that are combined with elements are first sorted by position, with a stable order (`sorting.py`). An element
  then finds its first update by binary search. Elements and updates thus each cost a logarithm, instead of elements times
  updates.

The additional memory is the order of the updates and one number per element. One invocation combines all updates of an
element, because another order of a sum would have another result.
"""

from __future__ import annotations

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ....program.target import elements_per_word
from ...dims import Dim, ceildiv, maximum, product
from ...ir import Function, Read, Variant
from ...nodes.coordinates import named
from ..builder import Builder, Operand
from .indexing import shared_coordinates
from .sorting import sorted_places

FEW = 64  # updates of a line: comparing all of them is not slower than sorting


def along_lines(b: Builder, indices: Operand, axis: int) -> Operand:
    """Returns indices with an extent of 1 on axes along which they repeat, as in an expanded vector."""
    if indices.has_host:
        return indices  # known indices are all checked
    for k, factors in enumerate(indices.view.axes):
        if k != axis and factors and all(factor.stride == 0 for factor in factors):
            indices = b.slice(indices, k, 0, 1, 1)
    return indices


def wrapped(b: Builder, indices: Operand, extent: Dim) -> Operand:
    """Returns i32 indices with negative ones counted from the end. Those out of range match no element."""
    source = {"indices": (indices, (indices.rank,))}
    body = "let k = indices_at(n); return select(k, k + i32($extent), k < 0);"
    return b.map(body, DType.INT32, indices.shape, ("n",), (indices.rank,), source, parameters={"extent": extent})


def scattered_along(b: Builder, x: Operand, keys: Operand, updates: Operand, axis: int, reduction: str) -> Operand:
    """Returns x after updates along an axis, at the positions `keys`. Other axes of `keys` may have an extent of 1 for all
    lines. Raises BindingsError."""
    count = updates.shape[axis]
    groups, at, limited = shared_coordinates(b, x, updates, axis)
    parameters = {"extent": x.shape[axis], "count": count} | {f"limit{k}": updates.shape[k] for k in limited}
    operands = {"x": (x, groups), "updates": (updates, groups)}
    shape_of_all = tuple(of if extent == 1 else extent for extent, of in zip(keys.shape, updates.shape, strict=True))
    longest, together = b.target.longest_loop, elements_per_word(x.dtype, b.target)
    few = isinstance(count, int) and count <= FEW and (longest is None or count * together <= longest)
    last = reduction == "none"
    if not few:
        shape = (*shape_of_all[:axis], x.shape[axis], *shape_of_all[axis + 1 :])
        if last:
            operands["last"] = (b.expand(last_updates(b, keys, axis, x.shape[axis]), shape), groups)
        else:
            order = _update_order(b, keys, axis)
            operands["first"] = (b.expand(_first_updates(b, keys, order, axis, x.shape[axis]), shape), groups)
            operands["order"] = (b.expand(order, shape_of_all), groups)
    if few or not last:
        operands["keys"] = (b.expand(keys, shape_of_all), groups)
    return b.map(
        "scatter_along",
        x.dtype,
        x.shape,
        named("at", groups),
        groups,
        operands,
        parameters=parameters,
        functions={} if last else {"COMBINE": _combine_function(x.dtype, reduction)},
        cost=16,
        reuse=True,
        iterations=count if few or not last else 0,
        RANK=len(groups),
        AXIS=at,
        FEW=few,
        COMBINED=not last,
        **{f"LIMITED{k}": k in limited for k in range(len(groups))},
    )


def _combine_function(dtype: DType, reduction: str) -> Function:
    """Returns the expression that combines `total` with the update `u`."""
    kind = dtype.compute or ""
    if kind == "bool":
        raise UnsupportedError(f"scattering booleans with reduction {reduction!r} is not supported")
    expressions = {"add": "total + u", "mul": "total * u", "min": "min(total, u)", "max": "max(total, u)"}
    if reduction not in expressions:
        raise UnsupportedError(f"reduction={reduction!r} is not supported")
    return Function((("total", kind), ("u", kind)), expressions[reduction], kind)


def _update_order(b: Builder, keys: Operand, axis: int) -> Operand:
    """Returns i32 of the shape of the keys: the numbers of the updates, ordered by their elements."""
    axes = [*(k for k in range(keys.rank) if k != axis), axis]
    order = sorted_places(b, b.permute(keys, axes), "x < y", keys.shape[axis])
    return b.permute(order, [axes.index(k) for k in range(keys.rank)])


def last_updates(b: Builder, keys: Operand, axis: int, extent: Dim) -> Operand:
    """Returns i32 per element of the lines: the number of its last update, -1 if there is none."""
    groups = (axis, 1, keys.rank - axis - 1)
    shape = (*keys.shape[:axis], extent, *keys.shape[axis + 1 :])
    none = b.map("  return -1i;", DType.INT32, shape, ("before", "along", "after"), groups, {}, cost=1)
    size = min(256, b.target.max_invocations)
    (last,) = b.call(
        "scatter_last",
        {"keys": Read(keys.view, groups)},
        {"y": (DType.INT32, shape, groups)},
        (Variant(ceildiv(keys.size, size), size),),
        parameters={
            "updates": keys.size,
            "count": maximum(1, keys.shape[axis]),  # they are divisors
            "after": maximum(1, product(keys.shape[axis + 1 :])),
            "extent": extent,
        },
        onto={"y": none},
        largest=frozenset({"y"}),
    )
    return last


def _first_updates(b: Builder, keys: Operand, order: Operand, axis: int, extent: Dim) -> Operand:
    """Returns i32 per element of the lines: the position in the order where its updates begin; the number of all updates if
    it has none."""
    groups = (axis, 1, keys.rank - axis - 1)
    return b.map(
        "first_update",
        DType.INT32,
        (*keys.shape[:axis], extent, *keys.shape[axis + 1 :]),
        ("before", "along", "after"),
        groups,
        {"keys": (keys, groups), "order": (order, groups)},
        parameters={"count": keys.shape[axis]},
        cost=16,
        reuse=True,
        iterations=32,
    )
