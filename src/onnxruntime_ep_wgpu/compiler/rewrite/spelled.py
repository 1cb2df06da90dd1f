"""Normalisations and softmax that a graph spells out with reductions, as exporters do that lack the operator: one kernel.

    c / sqrt(mean(c * c) + epsilon), c being x or x - mean(x)        layer_norm
    exp(x - max(x)) / sum(exp(x - max(x)))                           softmax

over the last axes. Divisions may be products with the inverse. What follows, gain and bias above all, stays as maps, which fusion
puts where the kernel stores; types between are what they are, since everything is calculated in f32.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...program.dtypes import DType
from ...program.target import Target
from ..dims import Dim, product
from ..ir import Call, Factor, Map, Node, Read, Storage, Tensor, View, Write
from ..nodes import row_kernels
from .between import in_step, literal
from .rule import MatchResult, Replace, Rule

_CASTS = ("x", "f32(x)")
_ROOTS = ("sqrt(x)", "where(isinf(x) or x == 0, abs(x), sqrt(x))")  # Sqrt, and Pow with the exponent 0.5
_SUMS = {
    "x": "sum",
    "where(n == 0, 0, x)": "sum",
    "x / f32(n)": "mean",
    "where(n == 0, nan, x / f32(n))": "mean",
}


@dataclass(frozen=True)
class _RowReduction:
    """A reduction of the last axes of a tensor: rows of columns, each to one number."""

    kind: str  # sum, mean, max
    source: Tensor
    kept: int
    call: Call

    @property
    def rows(self) -> Dim:
        return product(self.call.operands["x"].view.shape[: self.kept])

    @property
    def columns(self) -> Dim:
        return product(self.call.operands["x"].view.shape[self.kept :])

    @property
    def result(self) -> Tensor:
        return self.call.results["y"].tensor


def _spread(view: View, rows: Dim, columns: Dim) -> list[Factor] | None:
    """How a number of each row is shown in all of its columns."""
    column = view.reshape((rows, 1))
    return None if column is None else column.expand((rows, columns)).factors


def _reduction(node: Node | None) -> _RowReduction | None:
    """The reduction that a call is, when it is one of whole rows by itself."""
    if not isinstance(node, Call) or node.template != "reduce":
        return None
    functions, read = node.functions, node.operands["x"]
    prepare, combine, finish = (functions[name].expression for name in ("prepare", "combine", "finish"))
    if not read.view.is_whole or read.view.dtype.compute != "f32":
        return None
    if node.parameters["count"] != node.parameters["columns"]:
        return None  # of parts
    kind = {("x", "x + y"): _SUMS.get(finish), ("rank(x)", "max(x, y)"): "max"}.get((prepare, combine))
    return _RowReduction(kind, read.view.tensor, read.groups[0], node) if kind else None


def _narrow(tensor: Tensor) -> Tensor:
    """A tensor before it was only converted to f32, which whoever loads it does."""
    node = tensor.producer
    while isinstance(node, Map) and node.expression in _CASTS:
        view = node.operands["x"].view
        if not in_step(node, view) or view.dtype.compute != "f32":
            break
        tensor, node = view.tensor, view.tensor.producer
    return tensor


def _binary(node: Node | None, *expressions: str) -> tuple[View, View] | None:
    """The operands of a map of one of these expressions of x and y."""
    if not isinstance(node, Map) or node.expression not in expressions:
        return None
    return node.operands["x"].view, node.operands["y"].view


def _less_row(tensor: Tensor, kind: str, kept: int) -> _RowReduction | None:
    """The reduction of x in x - reduction(x), when `tensor` is that."""
    found = _binary(tensor.producer, "x - y")
    if found is None or not isinstance(tensor.producer, Map) or not in_step(tensor.producer, found[0]):
        return None
    low = found[1].tensor.producer
    while isinstance(low, Map) and low.expression in _CASTS:
        low = low.operands["x"].view.tensor.producer
    rows = _reduction(low)
    same = rows is not None and rows.kind == kind and rows.kept == kept
    if rows is None or not same or _narrow(rows.source) is not _narrow(found[0].tensor):
        return None
    return rows if _spread(View.of(found[1].tensor), rows.rows, rows.columns) == found[1].factors else None


def _only_map(tensor: Tensor) -> Map | None:
    """The map that alone reads a tensor."""
    if tensor.is_stored or len(set(tensor.users)) != 1:
        return None
    (user,) = set(tensor.users)
    return user if isinstance(user, Map) and user.is_pointwise else None


def _same_result(shape: tuple[Dim, ...], target: Tensor, origin: tuple[str, ...]) -> tuple[Tensor, list[Node]]:
    """The f32 tensor that a call writes, and the map from it to a `target` of another type."""
    if target.dtype is DType.FLOAT32:
        return target, []
    wide = Tensor(DType.FLOAT32, shape)
    return wide, [Map(target, {"x": Read(View.of(wide), (len(shape),))}, expression="x", origin=origin)]


def _origin(nodes: tuple[Node, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for node in nodes for name in node.origin))


# ---- normalisation


def normalisation(call: Call, target: Target) -> MatchResult:
    """The `layer_norm` whose mean of squares a reduction is."""
    mean = _reduction(call)
    if mean is None or mean.kind != "mean":
        return None
    square = _narrow(mean.source).producer
    centre = _squared(square)
    if centre is None or not isinstance(square, Map):
        return None
    centred = _less_row(centre, "mean", mean.kept)
    end = _deviation(mean)
    if not isinstance(end, _Deviation):
        return end
    found = _scaled_by(end, mean)
    if found is None:
        return "the inverse deviation is not multiplied with rows"
    last, scaled = found
    if _narrow(scaled) is not _narrow(centre):
        return "what is divided by the deviation is not what it was taken of"
    nodes: tuple[Node, ...] = (square, call, *end.maps, last)
    x = centre
    if centred is not None:
        assert isinstance(centre.producer, Map)
        nodes, x = (centred.call, centre.producer, *nodes), centred.source
    x = _narrow(x)
    shape = last.output.shape
    one, zero = (Tensor(DType.FLOAT32, (1,), Storage.WEIGHT, data=np.array([v], np.float32)) for v in (1, 0))
    view = View.of(x).reshape(call.operands["x"].view.shape)
    if view is None or last.output.size != view.size:
        return "the rows have another order than what they are divided by"
    columns = view.shape[mean.kept :]
    result, after = _same_result(shape, last.output, last.origin)
    groups = _groups(shape, mean)
    if groups is None:
        return "the result has other axes than the rows"
    made = row_kernels.layer_norm(
        Read(view, call.operands["x"].groups, reuse=True),
        View.of(one).expand(columns),
        View.of(zero).expand(columns),
        {"y": Write(result, groups)},
        target,
        epsilon=end.epsilon,
        centred=centred is not None,
        origin=_origin(nodes),
    )
    return Replace(nodes, (made, *after))


def _squared(node: Node | None) -> Tensor | None:
    """t, when a map is t * t."""
    if not isinstance(node, Map):
        return None
    if node.expression == "x * x":
        view = node.operands["x"].view
        return view.tensor if in_step(node, view) else None
    found = _binary(node, "x * y")
    if found is None or found[0].tensor is not found[1].tensor or not all(in_step(node, it) for it in found):
        return None
    return found[0].tensor


@dataclass(frozen=True)
class _Deviation:
    """`result` is the root of a mean of squares plus epsilon, or with `inverse` one divided by that."""

    result: Tensor
    inverse: bool
    epsilon: float
    maps: tuple[Map, ...]


def _deviation(mean: _RowReduction) -> _Deviation | str | None:
    """The maps from a mean of squares to the last number of its row; None when it is no deviation."""
    tensor, epsilon, state = mean.result, 0.0, "mean"
    maps: list[Map] = []
    while True:
        node = _only_map(tensor)
        if node is None or node.output.size != tensor.size:
            break
        step = _step(node, tensor, state)
        if step is None:
            break
        state, added = step
        epsilon += added
        maps.append(node)
        tensor = node.output
    if state == "mean":
        return None
    if len(set(tensor.users)) != 1 or tensor.is_stored:
        return "the deviation has another reader"
    return _Deviation(tensor, state == "inverse", epsilon, tuple(maps))


def _step(node: Map, tensor: Tensor, state: str) -> tuple[str, float] | None:
    """What a map of row numbers makes of a mean, a root or an inverse, and the epsilon that it adds; None for anything else."""
    views = {name: read.view for name, read in node.operands.items()}
    if not all(in_step(node, view) for view in views.values() if view.tensor is tensor):
        return None
    numbers = {name: literal(view) for name, view in views.items()}
    other = next((number for name, number in numbers.items() if views[name].tensor is not tensor), None)
    if node.expression in _CASTS:
        return state, 0.0
    if state == "mean" and node.expression == "x + y" and other is not None:
        return state, other
    if state == "mean" and node.expression in _ROOTS:
        return "root", 0.0
    if state == "mean" and node.expression == "pow(x, f32(y))" and other == -0.5:
        return "inverse", 0.0
    if state == "root" and (node.expression == "1 / x" or (node.expression == "x / y" and numbers["x"] == 1)):
        return "inverse", 0.0
    return None


def _scaled_by(end: _Deviation, mean: _RowReduction) -> tuple[Map, Tensor] | None:
    """The map that scales rows by a deviation, and the tensor of the rows."""
    node = _only_map(end.result)
    found = _binary(node, "x * y" if end.inverse else "x / y")
    if node is None or found is None:
        return None
    if found[1].tensor is not end.result and not end.inverse:
        return None
    rows, number = found if found[1].tensor is end.result else found[::-1]
    spread = _spread(View.of(number.tensor), mean.rows, mean.columns) == number.factors
    return (node, rows.tensor) if spread and in_step(node, rows) else None


def _groups(shape: tuple[Dim, ...], rows: _RowReduction) -> tuple[int, int] | None:
    """How the axes of a result are those of rows and columns."""
    for kept in range(len(shape) + 1):
        if product(shape[:kept]) == rows.rows and product(shape[kept:]) == rows.columns:
            return kept, len(shape) - kept
    return None


# ---- softmax


def softmax(call: Call, target: Target) -> MatchResult:
    """The softmax whose sum of exponentials a reduction is."""
    total = _reduction(call)
    if total is None or total.kind != "sum":
        return None
    powers = _narrow(total.source).producer
    if not isinstance(powers, Map) or powers.expression != "exp(x)" or not in_step(powers, powers.operands["x"].view):
        return None
    shifted = powers.operands["x"].view.tensor
    highest = _less_row(shifted, "max", total.kept)
    if highest is None:
        return None
    result = total.result
    last = _only_map(result)
    while last is not None and last.expression in _CASTS and in_step(last, last.operands["x"].view):
        result, last = last.output, _only_map(last.output)
    found = _binary(last, "x / y")
    if last is None or found is None or found[1].tensor is not result or not in_step(last, found[0]):
        return "the sum has another reader than a division"
    if (
        _narrow(found[0].tensor) is not powers.output
        or _spread(View.of(result), total.rows, total.columns) != found[1].factors
    ):
        return "what is divided by the sum is not what was summed"
    assert isinstance(shifted.producer, Map)
    nodes: tuple[Node, ...] = (highest.call, shifted.producer, powers, call, last)
    written, after = _same_result(last.output.shape, last.output, last.origin)
    view = View.of(_narrow(highest.source)).reshape(call.operands["x"].view.shape)
    groups = _groups(last.output.shape, total)
    if view is None or groups is None:
        return "the result has other axes than the rows"
    x = Read(view, call.operands["x"].groups, reuse=True)
    made = row_kernels.softmax(x, Write(written, groups), target, origin=_origin(nodes))
    return Replace(nodes, (made, *after))


NORMALISATION = Rule("normalisation", "reduce", normalisation)
SOFTMAX = Rule("softmax", "reduce", softmax)
