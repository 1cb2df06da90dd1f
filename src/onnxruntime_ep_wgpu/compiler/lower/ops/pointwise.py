"""Pointwise, comparison and logical operators: one expression each, for every element type that it supports."""

from __future__ import annotations

import builtins
import inspect
from typing import Any, Literal

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ...ir import Bits, broadcast_shapes
from ...ir.floats import rounded
from ..builder import Builder, Operand
from ..structures import Structure
from .activations import ACTIVATIONS, activated
from .choices import Flag
from .registry import ANY, BOOLS, DOUBLES, FLOATS, INTEGERS, NUMBERS, REALS, op

SIGNED = frozenset({DType.INT8, DType.INT16, DType.INT32, DType.INT64})


def unary(
    name: str,
    expression: str,
    types: frozenset[DType] = FLOATS,
    cost: int = 1,
    to: DType | None = None,
    **defaults: float,
) -> None:
    """Declares output = expression(x). Attributes are names in the expression. `to` is the output type if it differs from the
    input's."""

    def lower(b: Builder, x: Operand, **attributes: float) -> Operand:
        values: dict[str, Any] = {**defaults, **attributes}
        return b.pointwise(expression, {"x": x}, to or x.dtype, cost=cost, **values)

    # The registry reads a function's signature to find its attributes.
    parameters = list(inspect.signature(lower).parameters.values())[:2]
    parameters += [inspect.Parameter(k, inspect.Parameter.KEYWORD_ONLY, default=v) for k, v in defaults.items()]
    lower.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    op(name, types=types, elementwise=True)(lower)


unary("Abs", "abs(x)", NUMBERS)
unary("Neg", "-x", NUMBERS)
unary("Sign", "sign(x)", NUMBERS)
unary("Sqrt", "sqrt(x)", REALS)
unary("Exp", "exp(x)", REALS, cost=4)
unary("Log", "log(x)", REALS, cost=4)
unary("Reciprocal", "1 / x", REALS)
unary("Floor", "floor(x)", REALS)
unary("Ceil", "ceil(x)", REALS)
unary("Round", "round(x)", REALS)
unary("Sin", "sin(x)", REALS, cost=4)
unary("Cos", "cos(x)", REALS, cost=4)
unary("Tan", "tan(x)", REALS, cost=8)
unary("Asin", "asin(x)", cost=8)
unary("Acos", "acos(x)", cost=8)
unary("Atan", "atan(x)", cost=8)
unary("Sinh", "sinh(x)", cost=12)
unary("Cosh", "cosh(x)", cost=8)
unary("Asinh", "asinh(x)", cost=16)
unary("Acosh", "acosh(x)", cost=16)
unary("Atanh", "atanh(x)", cost=16)
unary("Erf", "erf(x)", cost=20)
unary("IsNaN", "isnan(x)", REALS, to=DType.BOOL)
unary("Not", "not x", BOOLS)
unary("BitwiseNot", "~x", INTEGERS)
unary("Shrink", "where(x < -lambd, x + bias, where(x > lambd, x - bias, 0))", REALS, bias=0.0, lambd=0.5, cost=4)

for name in (
    *(
        "Relu",
        "LeakyRelu",
        "ThresholdedRelu",
        "Elu",
        "Celu",
        "Selu",
        "Tanh",
        "Sigmoid",
        "HardSigmoid",
        "HardSwish",
        "Mish",
    ),
    *("Softplus", "Softsign"),
):
    it = ACTIVATIONS[name]
    types = (
        FLOATS | DOUBLES | SIGNED if name == "Relu" else REALS if name in ("LeakyRelu", "Sigmoid", "Tanh") else FLOATS
    )
    unary(name, it.expression, types, it.cost, None, **it.parameters)


@op("IsInf", types=REALS, elementwise=True)
def is_inf(b: Builder, x: Operand, *, detect_negative: Flag = 1, detect_positive: Flag = 1) -> Operand:
    wanted = {
        (1, 1): "isinf(x)",
        (1, 0): "isinf(x) and x < 0",
        (0, 1): "isinf(x) and x > 0",
        (0, 0): "isinf(x) and isnan(x)",
    }
    return b.pointwise(wanted[int(bool(detect_negative)), int(bool(detect_positive))], {"x": x}, DType.BOOL)


Approximation = Literal["none", "tanh"]
Rounding = Literal["up", "down", "nearest"]
ShiftDirection = Literal["LEFT", "RIGHT"]


@op("Gelu", types=FLOATS, elementwise=True)
def gelu(b: Builder, x: Operand, *, approximate: Approximation = "none") -> Operand:
    """Returns x * Phi(x), exact through erf, or by the tanh approximation (Hendrycks and Gimpel, 2016)."""
    return activated(b, x, "GeluTanh" if approximate == "tanh" else "Gelu")


@op("Swish", types=REALS, elementwise=True)
def swish(b: Builder, x: Operand, *, alpha: float = 1.0) -> Operand:
    """Returns x * sigmoid(alpha * x)."""
    return activated(b, x, "Silu") if alpha == 1.0 else activated(b, x, "Swish", [alpha])


def binary(name: str, expression: str, types: frozenset[DType], to: DType | None = None, cost: int = 1) -> None:
    @op(name, types=types, elementwise=True)
    def lower(b: Builder, x: Operand, y: Operand) -> Operand:
        return b.pointwise(expression, {"x": x, "y": y}, to or x.dtype, cost=cost)


binary("Add", "x + y", NUMBERS)
binary("Sub", "x - y", NUMBERS)
binary("Mul", "x * y", NUMBERS)
binary("Div", "x / y", NUMBERS)
binary("Equal", "x == y", ANY, DType.BOOL)
binary("Less", "x < y", NUMBERS, DType.BOOL)
binary("LessOrEqual", "x <= y", NUMBERS, DType.BOOL)
binary("Greater", "x > y", NUMBERS, DType.BOOL)
binary("GreaterOrEqual", "x >= y", NUMBERS, DType.BOOL)
binary("And", "x and y", BOOLS, DType.BOOL)
binary("Or", "x or y", BOOLS, DType.BOOL)
binary("Xor", "x != y", BOOLS, DType.BOOL)
binary("BitwiseAnd", "x & y", INTEGERS)
binary("BitwiseOr", "x | y", INTEGERS)
binary("BitwiseXor", "x ^ y", INTEGERS)
binary("PRelu", "where(x < 0, x * y, x)", NUMBERS, cost=2)


@op("BitShift", types=INTEGERS, elementwise=True)
def bit_shift(b: Builder, x: Operand, y: Operand, *, direction: ShiftDirection) -> Operand:
    return b.pointwise("shl(x, y)" if direction == "LEFT" else "shr(x, y)", {"x": x, "y": y}, x.dtype)


@op("Pow", types=NUMBERS, elementwise=True)
def power(b: Builder, x: Operand, y: Operand) -> Operand:
    """Returns x to the power y. Integers use repeated squaring, also with a float exponent if it is whole and the result fits."""
    kind = x.dtype.compute
    exponent = y.constant
    if (
        exponent is not None
        and exponent.size == 1
        and x.dtype.is_float
        and float(exponent.reshape(-1)[0]) in (0.5, 1.0, 2.0, 3.0)
    ):
        simple = {0.5: "where(isinf(x) or x == 0, abs(x), sqrt(x))", 1.0: "x", 2.0: "x * x", 3.0: "x * x * x"}[
            float(exponent.reshape(-1)[0])
        ]
        return b.pointwise(simple, {"x": x}, x.dtype, broadcast_shapes(x.shape, y.shape), cost=2)
    if y.dtype == DType.FLOAT64 != x.dtype:
        wide = "pow(f64(x), y)" if x.dtype.is_float else "where(y == floor(y), round(pow(f64(x), y)), pow(f64(x), y))"
        return b.pointwise(f"{kind}({wide})", {"x": x, "y": y}, x.dtype, cost=64)
    if y.dtype.is_float and not x.dtype.is_float:
        largest = 2.0 ** {"i32": 31, "u32": 32, "i64": 63, "u64": 64}[str(kind)]
        rounded = f"{kind}(where(y == floor(y), round(pow(f32(x), y)), pow(f32(x), y)))"
        whole = f"y >= 0 and y == floor(y) and abs(pow(f32(x), y)) <= {largest}"
        return b.pointwise(f"where({whole}, pow(x, {kind}(y)), {rounded})", {"x": x, "y": y}, x.dtype, cost=32)
    return b.pointwise(f"pow(x, {kind}(y))", {"x": x, "y": y}, x.dtype, cost=16)


@op("Mod", types=NUMBERS, elementwise=True)
def modulo(b: Builder, x: Operand, y: Operand, *, fmod: Flag = 0) -> Operand:
    return b.pointwise("x % y" if fmod else "floormod(x, y)", {"x": x, "y": y}, x.dtype, cost=4)


def variadic(name: str, first: str, following: str, types: frozenset[DType], last: str = "") -> None:
    """Declares a fold over any number of operands. `last` is applied to the result; `n` in it is the number of operands."""

    @op(name, types=types, elementwise=True)
    def lower(b: Builder, *xs: Operand) -> Operand:
        result = xs[0]
        for x in xs[1:]:
            result = b.pointwise(following, {"x": result, "y": x}, xs[0].dtype)
        if len(xs) == 1 and not last:
            return b.pointwise(first, {"x": result}, xs[0].dtype)
        return b.pointwise(last, {"x": result}, xs[0].dtype, n=len(xs)) if last else result


variadic("Sum", "x", "x + y", NUMBERS)
variadic("Mean", "x", "x + y", REALS, last="x / n")
variadic("Min", "x", "min(x, y)", NUMBERS)
variadic("Max", "x", "max(x, y)", NUMBERS)


@op("Where", types=ANY, condition=BOOLS, elementwise=True)
def where(b: Builder, condition: Operand, x: Operand, y: Operand) -> Operand:
    return b.pointwise("where(condition, x, y)", {"condition": condition, "x": x, "y": y}, x.dtype)


@op("Clip", types=NUMBERS, elementwise=True)
def clip(
    b: Builder,
    x: Operand,
    low: Operand | None = None,
    high: Operand | None = None,
    *,
    min: float = -3.4028234663852886e38,
    max: float = 3.4028234663852886e38,
) -> Operand:
    """Limits are attributes before version 11, and inputs since. Without a limit, floats are clamped to the finite ones."""
    operands = {"x": x}
    lower, upper = ("", "")
    if x.dtype.is_float:
        largest = x.dtype.largest
        low32, high32 = -DType.FLOAT32.largest, DType.FLOAT32.largest
        lower = repr(-largest if min <= low32 else builtins.max(min, -largest))
        upper = repr(largest if max >= high32 else builtins.min(max, largest))
    if low is not None:
        operands["low"], lower = low, "low"
    if high is not None:
        operands["high"], upper = high, "high"
    expression = f"max({lower}, x)" if lower else "x"
    expression = f"min({upper}, {expression})" if upper else expression
    return b.pointwise(expression, operands, x.dtype, x.shape, cost=2)


@op("Cast", types=ANY, elementwise=True, converts=True)
def cast(b: Builder, x: Operand, *, to: int, saturate: Flag = 1, round_mode: Rounding = "up") -> Operand:
    return _cast(b, x, type_of(to), bool(saturate))


@op("CastLike", types=ANY, elementwise=True, converts=True)
def cast_like(b: Builder, x: Operand, like: Operand, *, saturate: Flag = 1, round_mode: Rounding = "up") -> Operand:
    return _cast(b, x, like.dtype, bool(saturate))


def type_of(code: int) -> DType:
    """Returns the element type of an ONNX code; raises UnsupportedError for a type without kernels."""
    try:
        return DType.of(code)
    except KeyError:
        raise UnsupportedError(f"no kernel for ONNX element type {code}") from None


def _cast(b: Builder, x: Operand, to: DType, saturate: bool) -> Operand:
    if to.compute is None:
        raise UnsupportedError(f"no kernel for results of type {to.label}")
    if to is x.dtype:
        return x
    if x.dtype.is_float and to.compute == "u32" and to.bits < 32:
        # A value that does not fit a signed 32-bit integer becomes 0, as on the CPU provider.
        return b.pointwise("u32(i32(x))", {"x": x}, to)
    # A fused chain computes halves in f32; a cast is where a model requests the rounding.
    return b.pointwise(rounded(f"{to.compute}(x)", to, saturate), {"x": x}, to)


@op("BitCast", types=ANY)
def bit_cast(b: Builder, x: Operand, *, to: int) -> Operand:
    """Returns the same bits as another type of the same size."""
    dtype = type_of(to)
    if dtype.bits != x.dtype.bits or dtype.compute is None:
        raise UnsupportedError(f"the bits of {x.dtype.label} cannot be reinterpreted as {dtype.label}")
    bits = x.dtype.bits
    operands = {"x": (x, (x.rank,))}
    if bits < 32:
        body = "let v = x_at(at); let bits = $BITS; return $RESULT;"
        functions = {"BITS": Bits("v", x.dtype, True), "RESULT": Bits("bits", dtype, False)}
        return b.map(body, dtype, x.shape, ("at",), (x.rank,), operands, cost=2, functions=functions)
    if bits == 32:
        steps = "bitcast<u32>(v)", "bitcast<$out_t>(bits)"
    else:
        native = b.target.int64 == "native"
        steps = (
            "words_of_u64(bitcast<u64>(v))" if native and x.dtype.is_integer else "v",
            "bitcast<$out_t>(u64_of_words(bits))" if native and dtype.is_integer else "bits",
        )
    body = "let v = x_at(at); let bits = #(BITS); return #(RESULT);"
    return b.map(body, dtype, x.shape, ("at",), (x.rank,), operands, cost=2, BITS=steps[0], RESULT=steps[1])


@op("Identity", types=ANY, elementwise=True)
def identity(b: Builder, x: Operand | Structure) -> Operand | Structure:
    return x


@op("Dropout", types=REALS, elementwise=True)
def dropout_7(b: Builder, x: Operand, *, ratio: float = 0.5) -> tuple[Operand, Operand]:
    """The identity, before version 12. No version defines the content of the mask. The CPU provider returns zeros, here in
    x's type."""
    return x, b.pointwise("none", {}, x.dtype, x.shape, none=0.0)


@op("Dropout", since=10, types=REALS, elementwise=True)
def dropout_10(b: Builder, x: Operand, *, ratio: float = 0.5) -> tuple[Operand, Operand]:
    """As before, with a mask of type bool."""
    return x, b.pointwise("none", {}, DType.BOOL, x.shape, none=False)
