"""Range, ConstantOfShape and Constant: tensors with elements that depend on no tensor's elements."""

from __future__ import annotations

import math

import numpy as np

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ...dims import Dim, floordiv, maximum
from ..builder import Builder, Operand
from ..operand import OnDeviceError
from .registry import FLOATS, INTEGERS, MICROSOFT, op
from .shape import extents


@op("Range", types=FLOATS | INTEGERS)
@op("Range", domain=MICROSOFT, types=FLOATS | INTEGERS)
def range_(b: Builder, start: Operand, limit: Operand, delta: Operand | None = None) -> Operand:
    """Returns start + k * delta. The delta is 1 if com.microsoft's operator omits it. The number of elements follows from
    shapes or numbers."""
    delta = b.constant(np.ones((), start.dtype.numpy)) if delta is None else delta
    if len({o.dtype for o in (start, limit, delta)}) > 1:
        raise UnsupportedError(f"bounds {start} and {limit} and a step {delta} have different types")
    first, last, by = (_bound(b, o) for o in (start, limit, delta))
    length: Dim
    if by == 0:
        raise UnsupportedError("the step of a range is 0")
    if isinstance(first, float) or isinstance(last, float) or isinstance(by, float):
        if not (isinstance(first, (int, float)) and isinstance(last, (int, float)) and isinstance(by, (int, float))):
            raise UnsupportedError("a range of fractions between bounds that depend on the input is not supported")
        length = max(0, math.ceil((last - first) / by))
    else:
        length = maximum(-floordiv(first - last, by), 0)
    kind = start.dtype.compute
    counter = DType.FLOAT32 if start.dtype.is_float else DType.INT32
    index = b.map("  return $out_t(k);", counter, (length,), ("k",), (1,), {}, cost=1)
    return b.pointwise(
        f"start + {kind}(k) * delta", {"start": start, "k": index, "delta": delta}, start.dtype, (length,), cost=2
    )


def _bound(b: Builder, x: Operand) -> Dim | float:
    """Returns a bound of a range: a dim for a whole number, else a float. It is constant, derived from shapes, or a number
    that kernels are specialised for."""
    x.check_one("a bound of the range")
    if x.has_host:
        return x.dims("a bound of the range")[0]
    if x.constant is None and not x.has_bits:
        raise OnDeviceError("a bound of the range is computed on the device, so the shape depends on data", x)
    (value,) = b.assumed_floats(x, "a bound of the range", lambda count: [1.0] * count)
    if not math.isfinite(value):
        raise UnsupportedError(f"a bound of the range is {value}, which is not finite")
    return int(value) if value == int(value) else value


@op("ConstantOfShape", types=INTEGERS)
def constant_of_shape(b: Builder, shape: Operand, *, value: object = None) -> Operand:
    array = np.zeros(1, np.float32) if value is None else np.asarray(value).reshape(1)
    return b.expand(b.constant(array), extents(b, shape.dims("the shape"), "the shape"))


@op("Constant")
def constant(
    b: Builder,
    *,
    value: object = None,
    value_float: float | None = None,
    value_int: int | None = None,
    value_floats: list[float] | None = None,
    value_ints: list[int] | None = None,
) -> Operand:
    if value is not None:
        return b.constant(np.asarray(value))
    if value_float is not None or value_floats is not None:
        return b.constant(np.asarray(value_float if value_floats is None else value_floats, np.float32))
    if value_int is not None or value_ints is not None:
        return b.constant(np.asarray(value_int if value_ints is None else value_ints, np.int64))
    raise UnsupportedError("constants of strings or sparse tensors cannot be stored on a device")
