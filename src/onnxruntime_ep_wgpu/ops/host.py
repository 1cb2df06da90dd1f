"""Operators on small integers known before anything runs: shape arithmetic, slice bounds, lengths.

Values are numpy arrays of dims (ints or symbolic expressions), so Shape, Gather, Concat and the arithmetic between them
vanish at compile time into expressions that a plan evaluates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .. import dims
from ..builder import LARGEST_HOST_VALUE, Operand
from ..dims import Dim
from ..dtypes import DType

Array = Any
Rule = Callable[..., Any]

_RULES: dict[str, Rule] = {}
# What also works on whole numbers that were cast to floats, such as the bounds of a Range.
_MOVES = frozenset({"Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape"})


class _Unknown(Exception):
    """The rule does not apply to these values; the operator then runs on the device."""


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def add(function: Rule) -> Rule:
        for name in names:
            _RULES[name] = function
        return function

    return add


def evaluate(
    op_type: str,
    domain: str,
    operands: list[Operand | None],
    attributes: Mapping[str, Any],
    opset: int,
) -> list[Operand] | None:
    """Host values of a node's results, or None when they are not small integers or no rule knows the operator.

    When every operand is known, so are the results; otherwise they are evaluated when a shape asks for them.
    """
    if domain == "" and op_type in ("Shape", "Size") and operands[0] is not None:
        return _shape(op_type, operands[0], attributes)
    given = [o for o in operands if o is not None]
    if domain or op_type not in _RULES or not given or not all(o.has_host for o in given):
        return None
    if op_type not in _MOVES and any(o.dtype.is_float for o in given):
        return None
    rule = _RULES[op_type]

    def compute() -> list[Array]:
        result = rule([o.host if o is not None else None for o in operands], dict(attributes), opset)
        return list(result) if isinstance(result, (list, tuple)) else [result]

    try:
        arrays = compute()  # symbols of inputs are only named here; they are used when a shape needs them
    except (_Unknown, ValueError, IndexError, TypeError, ZeroDivisionError, KeyError):
        return None
    if any(a.size > LARGEST_HOST_VALUE for a in arrays):
        return None
    dtype = _result_type(op_type, operands, attributes)
    if dtype is None:
        return None
    known = all(o.known for o in given)
    return [Operand(dtype, a.shape, host=_constant(a), known=known) for a in arrays]


def _constant(array: Array) -> Callable[[], Array]:
    return lambda: array


def _shape(op_type: str, x: Operand, attributes: Mapping[str, Any]) -> list[Operand]:
    if op_type == "Size":
        return [Operand(DType.INT64, (), host=_constant(_array(x.size)), known=True)]
    start, end = attributes.get("start", 0), attributes.get("end", x.rank)
    shape = _array(list(x.shape)[slice(start, end)])
    return [Operand(DType.INT64, shape.shape, host=_constant(shape), known=True)]


def _result_type(op_type: str, operands: list[Operand | None], attributes: Mapping[str, Any]) -> DType | None:
    if op_type == "Cast":
        dtype = DType.of(attributes["to"]) if attributes["to"] in {t.code for t in DType} else None
        return dtype if dtype is not None and (dtype.is_integer or dtype in (DType.BOOL, DType.FLOAT32)) else None
    if op_type in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Not"):
        return DType.BOOL
    if op_type == "ConstantOfShape":
        value = attributes.get("value")
        dtype = DType.of_numpy(value.dtype) if value is not None else DType.FLOAT32
        return dtype if dtype.is_integer or dtype is DType.BOOL else None
    which = operands[1] if op_type == "Where" else operands[0]
    return which.dtype if which is not None else None


def _array(value: Any) -> Array:
    out = np.empty(np.shape(value), object)
    out[...] = value
    return out


def _elementwise(function: Callable[..., Dim], *arrays: Array) -> Array:
    return _array(np.frompyfunc(function, len(arrays), 1)(*arrays))


def _ints(array: Array) -> list[int]:
    values = array.reshape(-1).tolist()
    if not all(isinstance(v, (int, np.integer)) for v in values):
        raise _Unknown
    return [int(v) for v in values]


def _axes(inputs: list[Array], attributes: dict[str, Any], position: int = 1) -> list[int] | None:
    if len(inputs) > position and inputs[position] is not None:
        return _ints(inputs[position])
    return attributes.get("axes")


for _names, _function in {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": dims.truncdiv,
    "Mod": dims.mod,
    "Equal": dims.equal,
    "Less": dims.less,
    "LessOrEqual": dims.less_equal,
    "Greater": lambda a, b: dims.less(b, a),
    "GreaterOrEqual": lambda a, b: dims.less_equal(b, a),
    "And": lambda a, b: a * b,
    "Or": lambda a, b: dims.maximum(a, b),
}.items():
    _rule(_names)(lambda inputs, attributes, opset, f=_function: _elementwise(f, inputs[0], inputs[1]))


def _fold(function: Callable[[Dim, Dim], Dim]) -> Rule:
    def rule(inputs: list[Array], attributes: dict[str, Any], opset: int) -> Array:
        result = inputs[0]
        for other in inputs[1:]:
            result = _elementwise(function, result, other)
        return _array(result)

    return rule


_RULES["Min"] = _fold(dims.minimum)
_RULES["Max"] = _fold(dims.maximum)
_RULES["Neg"] = lambda inputs, attributes, opset: _elementwise(lambda a: -a, inputs[0])
_RULES["Abs"] = lambda inputs, attributes, opset: _elementwise(lambda a: dims.maximum(a, -a), inputs[0])
_RULES["Not"] = lambda inputs, attributes, opset: _elementwise(lambda a: dims.equal(a, 0), inputs[0])
_RULES["Identity"] = lambda inputs, attributes, opset: inputs[0]


@_rule("Cast")
def _cast(inputs: list[Array], attributes: dict[str, Any], opset: int) -> Array:
    if DType.of(attributes["to"]) is DType.BOOL:
        return _elementwise(lambda a: 1 - dims.equal(a, 0), inputs[0])
    return _elementwise(lambda a: int(a) if isinstance(a, (bool, np.bool_)) else a, inputs[0])


@_rule("Where")
def _where(inputs: list[Array], attributes: dict[str, Any], opset: int) -> Array:
    return _elementwise(dims.select, *inputs)


@_rule("Gather")
def _gather(inputs: list[Array], attributes: dict[str, Any], opset: int) -> Array:
    indices = np.array(_ints(inputs[1]), np.int64).reshape(inputs[1].shape)
    return _array(np.take(inputs[0], indices, axis=attributes.get("axis", 0)))


@_rule("Concat")
def _concat(inputs: list[Array], attributes: dict[str, Any], opset: int) -> Array:
    return np.concatenate(inputs, axis=attributes.get("axis", 0))


@_rule("Unsqueeze")
def _unsqueeze(inputs: list[Array], attributes: dict[str, Any], opset: int) -> Array:
    axes = _axes(inputs, attributes)
    if axes is None:
        raise _Unknown
    return np.expand_dims(inputs[0], tuple(axes))


@_rule("Squeeze")
def _squeeze(inputs: list[Array], attributes: dict[str, Any], opset: int) -> Array:
    axes = _axes(inputs, attributes)
    return np.squeeze(inputs[0], None if axes is None else tuple(axes))


@_rule("Reshape")
def _reshape(inputs: list[Array], attributes: dict[str, Any], opset: int) -> Array:
    return inputs[0].reshape(_ints(inputs[1]))


@_rule("Transpose")
def _transpose(inputs: list[Array], attributes: dict[str, Any], opset: int) -> Array:
    return np.transpose(inputs[0], attributes.get("perm"))


@_rule("Slice")
def _slice(inputs: list[Array], attributes: dict[str, Any], opset: int) -> Array:
    x = inputs[0]
    starts = _ints(inputs[1]) if len(inputs) > 1 else attributes["starts"]
    ends = _ints(inputs[2]) if len(inputs) > 2 else attributes["ends"]
    axes = _axes(inputs, attributes, 3) or list(range(len(starts)))
    steps = _ints(inputs[4]) if len(inputs) > 4 and inputs[4] is not None else [1] * len(starts)
    parts: list[slice] = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        parts[axis] = slice(start, None if step < 0 and end < -x.shape[axis] else end, step)
    return x[tuple(parts)]


@_rule("Split")
def _split(inputs: list[Array], attributes: dict[str, Any], opset: int) -> list[Array]:
    sizes = _axes(inputs, {"axes": attributes.get("split")})
    axis = attributes.get("axis", 0)
    if sizes is None:
        raise _Unknown
    return np.split(inputs[0], np.cumsum(sizes)[:-1], axis)


@_rule("Range")
def _range(inputs: list[Array], attributes: dict[str, Any], opset: int) -> Array:
    start, limit, delta = (_ints(i)[0] for i in inputs)
    return _array(list(range(start, limit, delta)))


@_rule("ConstantOfShape")
def _constant_of_shape(inputs: list[Array], attributes: dict[str, Any], opset: int) -> Array:
    shape = _ints(inputs[0])
    if int(np.prod(shape)) > LARGEST_HOST_VALUE:
        raise _Unknown
    out = np.empty(shape, object)
    out[...] = attributes["value"].reshape(-1)[0].item() if "value" in attributes else 0
    return out


@_rule("Expand")
def _expand(inputs: list[Array], attributes: dict[str, Any], opset: int) -> Array:
    shape = np.broadcast_shapes(inputs[0].shape, tuple(_ints(inputs[1])))
    if int(np.prod(shape)) > LARGEST_HOST_VALUE:
        raise _Unknown
    return np.broadcast_to(inputs[0], shape)


def _reduction(function: Callable[[Dim, Dim], Dim], empty: int | None) -> Rule:
    def rule(inputs: list[Array], attributes: dict[str, Any], opset: int) -> Array:
        axes = _axes(inputs, attributes)
        if axes is not None and len(axes) == 0:
            axes = None
        x = inputs[0]
        if x.ndim != 1 or axes not in (None, [0], [-1]) or (x.size == 0 and empty is None):
            raise _Unknown
        result: Dim = empty if empty is not None else x[0]
        for value in x if empty is not None else x[1:]:
            result = function(result, value)
        return _array([result] if attributes.get("keepdims", 1) == 1 else result)

    return rule


_RULES["ReduceProd"] = _reduction(lambda a, b: a * b, 1)
_RULES["ReduceSum"] = _reduction(lambda a, b: a + b, 0)
_RULES["ReduceMax"] = _reduction(dims.maximum, None)
_RULES["ReduceMin"] = _reduction(dims.minimum, None)
