"""Operators on small integers that are known before a run: shape arithmetic, slice bounds, lengths.

Values are numpy arrays of dims (ints or symbolic expressions). Shape, Gather, Concat and the arithmetic between them thus
become expressions at compile time, which a plan evaluates.

Invariant: a value equals ONNX Runtime's value of the same type.

* Integers wrap, except results of reductions, which saturate at the limits of their type.
* Floats are whole numbers that f32 represents exactly.
* An expression that may exceed a type of 8 or 16 bits contains the wrapping.
* An expression that may exceed a wider type stays unchanged, because shapes are compared by their expressions. It is not
  `known`: data is computed on the device, and a shape that depends on it requires that it fits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ....program.dtypes import DType
from ... import dims
from ...dims import Dim
from ..operand import LARGEST_HOST_VALUE, Conditions, Operand
from .parts import slice_bounds

Array = Any
Rule = Callable[..., Any]

_RULES: dict[str, Rule] = {}
MOST_CONDITIONS = 64  # of one value; a value with more is dropped
WHOLE_FLOATS = 2**24  # up to here f32 represents every whole number
_BOUNDED = frozenset({"ReduceSum", "ReduceProd"})  # reductions that do not wrap
# Also applies to whole numbers that were cast to floats, such as the bounds of a Range.
_MOVES = frozenset({"Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape"})


class _NotApplicable(Exception):
    """Raised if a rule does not apply to these values. The operator then runs on the device."""


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def add(function: Rule) -> Rule:
        for name in names:
            _RULES[name] = function
        return function

    return add


def reads_shape_alone(op_type: str, domain: str) -> bool:
    """Whether an operator reads no element of its operand."""
    return domain in ("", "ai.onnx") and op_type in ("Shape", "Size")


def makes_shapes(op_type: str, domain: str) -> bool:
    """Whether an operator is one that computes shapes from shapes."""
    return domain in ("", "ai.onnx") and op_type in _RULES


def evaluate(
    op_type: str, domain: str, operands: list[Operand | None], attributes: Mapping[str, Any]
) -> list[Operand] | None:
    """Returns host values of a node's results. Returns None if they are not small integers, or if there is no rule for the
    operator.

    If every operand is known and no condition on runs is added, the results are known too. Otherwise they are evaluated when
    a shape needs them.
    """
    if reads_shape_alone(op_type, domain) and operands[0] is not None:
        return _shape(op_type, operands[0], attributes)
    given = [o for o in operands if o is not None]
    if domain or op_type not in _RULES or not given or not all(o.has_host for o in given):
        return None
    if op_type not in _MOVES and any(o.dtype.is_float for o in given):
        return None
    dtype = _result_type(op_type, operands, attributes)
    if dtype is None:
        return None
    conditions: Conditions = {}
    for o in given:
        conditions |= o.conditions
    try:
        if op_type in ("Div", "Mod"):
            _require_divisors(given[1].host, conditions)
        # Symbols of inputs are only named here. They are evaluated if a shape needs them.
        result = _RULES[op_type]([o.host if o is not None else None for o in operands], dict(attributes))
        arrays = list(result) if isinstance(result, (list, tuple)) else [result]
        if any(a.size > LARGEST_HOST_VALUE for a in arrays):
            return None
        if op_type in _BOUNDED:
            arrays = [_elementwise(lambda value: _saturated(value, dtype), a) for a in arrays]
        wraps = not any(o.dtype.is_float for o in given)
        arrays = [_represented(a, dtype, wraps, conditions) for a in arrays]
    except (_NotApplicable, ValueError, IndexError):
        # numpy raises for the operands that ONNX rejects for these operators. The device operator then reports the fault.
        return None
    if len(conditions) > MOST_CONDITIONS:
        return None
    known = all(o.known for o in given) and not conditions
    return [Operand(dtype, a.shape, host=_constant(a), known=known, conditions=conditions) for a in arrays]


def _require_divisors(divisors: Array, conditions: Conditions) -> None:
    """Division by a constant 0 is left to the provider that runs the node. For a divisor that may be 0, requires that it is
    not."""
    for divisor in divisors.reshape(-1):
        if dims.may_be(divisor, 0):
            if isinstance(divisor, int):
                raise _NotApplicable
            conditions[1 - dims.equal(divisor, 0)] = f"a division by {divisor}, which is 0"


def _represented(array: Array, dtype: DType, wraps: bool, conditions: Conditions) -> Array:
    """Returns the elements as represented in `dtype`. Adds the conditions for that to `conditions`.

    Without `wraps` the elements come from a float: a value that does not fit is undefined, and for a constant raises
    _NotApplicable.
    """

    def held(value: Any) -> Dim:
        if isinstance(value, (int, np.integer, np.bool_)):
            return _rounded(int(value), dtype, wraps)
        low, high = (-WHOLE_FLOATS, WHOLE_FLOATS) if dtype.is_float else dtype.limits
        least, most = dims.limits(value)
        if (least < low or most > high) and wraps and dtype.bits < 32:
            value = dims.mod(value - low, high - low + 1) + low
            least, most = low, high
        for inside, beyond in ((dims.less_equal(low, value), least < low), (dims.less_equal(value, high), most > high)):
            if beyond and inside != 1:
                conditions[inside] = f"{value} is more than {dtype.label} holds exactly"
        fixed: Dim = value
        return fixed

    return _elementwise(held, array)


def _rounded(value: int, dtype: DType, wraps: bool) -> int:
    if dtype.is_float:
        return int(np.float64(value) if dtype is DType.FLOAT64 else np.float32(value))
    low, high = dtype.limits
    if not wraps and not low <= value <= high:
        raise _NotApplicable
    return (value - low) % (high - low + 1) + low


def _saturated(value: Dim, dtype: DType) -> Dim:
    low, high = dtype.limits
    return min(max(value, low), high) if isinstance(value, int) else value


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
    """Applies a function of dims to the elements. Elements of type bool become 0 and 1. Otherwise, since True equals 1, a
    cached result for it would be returned for a dim."""
    _check_small(np.broadcast_shapes(*(it.shape for it in arrays)))

    def of_dims(*values: Any) -> Dim:
        return function(*(int(it) if isinstance(it, (bool, np.bool_)) else it for it in values))

    return _array(np.frompyfunc(of_dims, len(arrays), 1)(*arrays))


def _check_small(shape: Sequence[int]) -> None:
    """Raises _NotApplicable for a result that is not small, before it is created: two small operands can have a large result."""
    if math.prod(shape) > LARGEST_HOST_VALUE:
        raise _NotApplicable


def _ints(array: Array) -> list[int]:
    values = array.reshape(-1).tolist()
    if not all(isinstance(v, (int, np.integer)) for v in values):
        raise _NotApplicable
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
    "Equal": dims.equal,
    "Less": dims.less,
    "LessOrEqual": dims.less_equal,
    "Greater": lambda a, b: dims.less(b, a),
    "GreaterOrEqual": lambda a, b: dims.less_equal(b, a),
    "And": lambda a, b: a * b,
    "Or": lambda a, b: dims.maximum(a, b),
}.items():
    _rule(_names)(lambda inputs, attributes, f=_function: _elementwise(f, inputs[0], inputs[1]))


def _minimum(x: Dim, y: Dim) -> Dim:
    """The minimum, simplified where the intervals decide: ONNX models cap with the largest number of a type."""
    if dims.limits(x)[1] <= dims.limits(y)[0]:
        return x
    return y if dims.limits(y)[1] <= dims.limits(x)[0] else dims.minimum(x, y)


def _maximum(x: Dim, y: Dim) -> Dim:
    if dims.limits(x)[0] >= dims.limits(y)[1]:
        return x
    return y if dims.limits(y)[0] >= dims.limits(x)[1] else dims.maximum(x, y)


def _extreme(function: Callable[[Dim, Dim], Dim]) -> Rule:
    def rule(inputs: list[Array], attributes: dict[str, Any]) -> Array:
        if any(it is None for it in inputs):
            raise _NotApplicable
        result = inputs[0]
        for other in inputs[1:]:
            result = _elementwise(lambda x, y: function(x, y), result, other)
        return _array(result)

    return rule


_RULES["Min"] = _extreme(_minimum)
_RULES["Max"] = _extreme(_maximum)
_RULES["Neg"] = lambda inputs, attributes: _elementwise(lambda a: -a, inputs[0])
_RULES["Abs"] = lambda inputs, attributes: _elementwise(lambda a: dims.maximum(a, -a), inputs[0])
_RULES["Not"] = lambda inputs, attributes: _elementwise(lambda a: dims.equal(a, 0), inputs[0])
_RULES["Identity"] = lambda inputs, attributes: inputs[0]


@_rule("Mod")
def _mod(inputs: list[Array], attributes: dict[str, Any]) -> Array:
    """The remainder has the sign of the divisor, or with `fmod` that of the dividend."""
    if attributes.get("fmod", 0):
        return _elementwise(lambda x, y: x - dims.truncdiv(x, y) * y, *inputs)
    return _elementwise(dims.mod, *inputs)


@_rule("Cast")
def _cast(inputs: list[Array], attributes: dict[str, Any]) -> Array:
    if DType.of(attributes["to"]) is DType.BOOL:
        return _elementwise(lambda a: 1 - dims.equal(a, 0), inputs[0])
    return inputs[0]


@_rule("Where")
def _where(inputs: list[Array], attributes: dict[str, Any]) -> Array:
    return _elementwise(dims.select, *inputs)


@_rule("Gather")
def _gather(inputs: list[Array], attributes: dict[str, Any]) -> Array:
    indices = np.array(_ints(inputs[1]), np.int64).reshape(inputs[1].shape)
    _check_small((inputs[0].size // max(1, inputs[0].shape[attributes.get("axis", 0)]), indices.size))
    return _array(np.take(inputs[0], indices, axis=attributes.get("axis", 0)))


@_rule("Concat")
def _concat(inputs: list[Array], attributes: dict[str, Any]) -> Array:
    return np.concatenate(inputs, axis=attributes.get("axis", 0))


@_rule("Unsqueeze")
def _unsqueeze(inputs: list[Array], attributes: dict[str, Any]) -> Array:
    axes = _axes(inputs, attributes)
    if axes is None:
        raise _NotApplicable
    return np.expand_dims(inputs[0], tuple(axes))


@_rule("Squeeze")
def _squeeze(inputs: list[Array], attributes: dict[str, Any]) -> Array:
    axes = _axes(inputs, attributes)
    return np.squeeze(inputs[0], None if axes is None else tuple(axes))


@_rule("Reshape")
def _reshape(inputs: list[Array], attributes: dict[str, Any]) -> Array:
    shape = _ints(inputs[1])
    if not attributes.get("allowzero", 0):
        shape = [inputs[0].shape[k] if d == 0 else d for k, d in enumerate(shape)]
    return inputs[0].reshape(shape)


@_rule("Transpose")
def _transpose(inputs: list[Array], attributes: dict[str, Any]) -> Array:
    return np.transpose(inputs[0], attributes.get("perm"))


@_rule("Slice")
def _slice(inputs: list[Array], attributes: dict[str, Any]) -> Array:
    x = inputs[0]
    starts = _ints(inputs[1]) if len(inputs) > 1 else attributes["starts"]
    ends = _ints(inputs[2]) if len(inputs) > 2 else attributes["ends"]
    axes = _axes(inputs, attributes, 3) or list(range(len(starts)))
    steps = _ints(inputs[4]) if len(inputs) > 4 and inputs[4] is not None else [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        first, length = slice_bounds(start, end, step, x.shape[axis])
        assert isinstance(first, int) and isinstance(length, int)
        x = np.take(x, [first + k * step for k in range(length)], axis)
    return x


@_rule("Split")
def _split(inputs: list[Array], attributes: dict[str, Any]) -> list[Array]:
    sizes = _axes(inputs, {"axes": attributes.get("split")})
    axis = attributes.get("axis", 0)
    if sizes is None or min(sizes, default=0) < 0 or sum(sizes) != inputs[0].shape[axis]:
        raise _NotApplicable
    return np.split(inputs[0], np.cumsum(sizes)[:-1], axis)


@_rule("Range")
def _range(inputs: list[Array], attributes: dict[str, Any]) -> Array:
    start, limit, delta = (_ints(i)[0] for i in inputs)
    values = range(start, limit, delta)
    if len(values[: LARGEST_HOST_VALUE + 1]) > LARGEST_HOST_VALUE:
        raise _NotApplicable
    return _array(list(values))


@_rule("ConstantOfShape")
def _constant_of_shape(inputs: list[Array], attributes: dict[str, Any]) -> Array:
    shape = _ints(inputs[0])
    _check_small(shape)
    out = np.empty(shape, object)
    out[...] = attributes["value"].reshape(-1)[0].item() if "value" in attributes else 0
    return out


@_rule("Expand")
def _expand(inputs: list[Array], attributes: dict[str, Any]) -> Array:
    shape = np.broadcast_shapes(inputs[0].shape, tuple(_ints(inputs[1])))
    _check_small(shape)
    return np.broadcast_to(inputs[0], shape)


def _reduction(function: Callable[[Dim, Dim], Dim], empty: int | None) -> Rule:
    def rule(inputs: list[Array], attributes: dict[str, Any]) -> Array:
        axes = _axes(inputs, attributes) or None
        x = inputs[0]
        if axes is None and attributes.get("noop_with_empty_axes", 0):
            return x
        if x.ndim != 1 or axes not in (None, [0], [-1]) or (x.size == 0 and empty is None):
            raise _NotApplicable
        result: Dim = empty if empty is not None else x[0]
        for value in x if empty is not None else x[1:]:
            result = function(result, value)
        return _array([result] if attributes.get("keepdims", 1) == 1 else result)

    return rule


_RULES["ReduceProd"] = _reduction(lambda a, b: a * b, 1)
_RULES["ReduceSum"] = _reduction(lambda a, b: a + b, 0)
_RULES["ReduceMax"] = _reduction(dims.maximum, None)
_RULES["ReduceMin"] = _reduction(dims.minimum, None)
