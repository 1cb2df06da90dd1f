"""Pointwise, comparison and conversion operators; broadcasting of every kind."""

from __future__ import annotations

from .. import semantics, values
from ..builder import Graph
from ..values import Value
from .common import cast, operand, positive, recipe, scalar, some, some_float, tame

SMOOTH = ["Abs", "Neg", "Relu", "Sigmoid", "Tanh", "Softplus", "Softsign", "HardSwish", "HardSigmoid", "LeakyRelu", "Elu", "Celu",
          "Selu", "Mish", "Gelu", "Erf", "Sin", "Cos", "Atan", "Asinh", "Swish", "Identity"]  # fmt: skip
STEPS = ["Floor", "Ceil", "Round", "Sign", "ThresholdedRelu", "Shrink"]
BOUNDED = {"Exp": 3.0, "Sinh": 3.0, "Cosh": 3.0, "Tan": 1.0, "Asin": 0.8, "Acos": 0.8, "Atanh": 0.8}
POSITIVE = {"Log": 0.25, "Sqrt": 0.25, "Reciprocal": 0.25, "Acosh": 1.25}
ARITHMETIC = ["Add", "Sub", "Mul", "Min", "Max", "Sum", "Mean"]
COMPARE = ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"]


@recipe(4)
def unary(g: Graph) -> Value:
    op = g.dice.of(SMOOTH)
    dtypes = values.FLOATS if op not in ("Abs", "Neg", "Relu", "Identity") else values.CODES
    attributes = {"alpha": g.dice.of([0.25, 0.5, 1.5])} if op in ("LeakyRelu", "Elu", "Celu", "Swish") else {}
    if op == "Gelu":
        attributes = {"approximate": g.dice.of(["none", "tanh"])}
    return g.add(op, some(g, tuple(dtypes)), **attributes)


@recipe(1.5)
def limited_unary(g: Graph) -> Value:
    op = g.dice.of([*BOUNDED, *POSITIVE])
    x = some_float(g)
    return g.add(op, tame(g, x, BOUNDED[op]) if op in BOUNDED else positive(g, x, POSITIVE[op]))


@recipe(1)
def step(g: Graph) -> Value:
    op = g.dice.of(STEPS)
    x = some_float(g)
    if op in ("ThresholdedRelu",):
        return g.add(op, x, alpha=0.75)
    return g.add(op, x, **({"lambd": 0.75, "bias": 0.25} if op == "Shrink" else {}))


@recipe(5)
def arithmetic(g: Graph) -> Value:
    x = some(g, tuple(values.CODES)) if g.dice.chance(0.3) else some_float(g)
    op = g.dice.of(ARITHMETIC)
    others = [operand(g, x) for _ in range(1 if op in ("Add", "Sub", "Mul") else g.dice.between(1, 3))]
    return g.add(op, *g.dice.shuffled([x, *others]))


@recipe(1)
def one_operand_only(g: Graph) -> Value:
    return g.add(g.dice.of(["Sum", "Mean", "Min", "Max"]), some_float(g))


@recipe(1)
def itself(g: Graph) -> Value:
    """Both operands are one value."""
    x = some(g, (*values.FLOATS, "float64", "int32", "int64"))
    return g.add(g.dice.of(["Add", "Mul", "Sub", "Max"]), x, x)


@recipe(1)
def division(g: Graph) -> Value:
    x = some(g, (*values.FLOATS, "float64", *values.INTEGERS))
    if x.is_float:
        return g.add("Div", x, positive(g, operand(g, x, low=0.5, high=2.0)))
    divisor = g.constant(g.dice.of([2, 3, 5]), x.dtype)
    return g.add(g.dice.of(["Div", "Mod"]), x, divisor)


@recipe(0.7)
def power(g: Graph) -> Value:
    x = some_float(g)
    exponent = g.dice.of([0.5, 1.0, 2.0, 3.0, -1.0, 1.5])
    return g.add("Pow", positive(g, tame(g, x, 4.0)), scalar(g, x.dtype, exponent))


@recipe(0.5)
def prelu(g: Graph) -> Value:
    x = some_float(g, 1)
    shape = [(*[1] * (x.rank - 1), s[-1]) for s in x.shapes]
    return g.add("PRelu", x, g.tensor(x.dtype, shape))


@recipe(1)
def clip(g: Graph) -> Value:
    x = some(g, (*values.FLOATS, "int32", "int64", "int8", "uint8"))
    low = g.constant(0 if x.dtype.startswith("u") else -1, x.dtype) if g.dice.chance(0.8) else None
    high = g.constant(1, x.dtype) if g.dice.chance(0.8) or low is None else None
    return g.add("Clip", x, low, high)


@recipe(1.5)
def compare(g: Graph) -> Value:
    x = some(g, tuple(values.CODES))
    op = "Equal" if x.dtype == "bool" else g.dice.of(COMPARE)
    return g.add(op, *g.dice.shuffled([x, operand(g, x, whole=True)]), types=["bool"])


@recipe(1)
def logic(g: Graph) -> Value:
    x = some(g, ("bool",))
    op = g.dice.of(["And", "Or", "Xor", "Not"])
    return g.add(op, x) if op == "Not" else g.add(op, x, operand(g, x))


@recipe(1)
def bits(g: Graph) -> Value:
    x = some(g, values.INTEGERS)
    op = g.dice.of(["BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "BitShift"])
    if op == "BitwiseNot":
        return g.add(op, x)
    if op == "BitShift":
        return g.add(op, x, g.constant(g.dice.between(0, 3), x.dtype), direction=g.dice.of(["LEFT", "RIGHT"]))
    return g.add(op, x, operand(g, x))


@recipe(1.5)
def where(g: Graph) -> Value:
    x = some(g, tuple(values.CODES))
    y = operand(g, x)
    old = g.dice.chance(0.5)
    flags = g.pick(lambda v: v.dtype == "bool") if old else operand(g, g.tensor("bool", x.shapes))
    return g.add("Where", flags, x, y, types=[x.dtype])


@recipe(2)
def convert(g: Graph) -> Value:
    x = some(g, tuple(values.CODES))
    to = g.dice.of([d for d in values.CODES if d != x.dtype])
    if x.is_float and to not in values.UNIT:
        x = tame(g, x, 100.0)
        x = g.add("Abs", x) if to.startswith("u") else x
        if not x.exact and g.dice.chance(0.7):
            x = g.add("Round", x)
    return cast(g, x, to)


@recipe(1)
def back_to_floats(g: Graph) -> Value:
    x = g.pick(lambda v: not v.is_float and v.elements > 2)
    if x.largest > 64:
        x = g.add("Clip", x, g.constant(0, x.dtype), g.constant(7, x.dtype))
    return cast(g, x, "float32")


@recipe(0.3)
def predicates(g: Graph) -> Value:
    return g.add(g.dice.of(["IsNaN", "IsInf"]), some_float(g), types=["bool"])


@recipe(0.3)
def dropout(g: Graph) -> Value:
    """In inference: nothing happens."""
    return g.add("Dropout", some_float(g))


@recipe(0.3)
def cast_like(g: Graph) -> Value:
    x = some(g, ("float32", "int32", "int64", "bool"))
    like = g.pick(lambda v: v.is_float or v.dtype in ("int64", "bool"))
    return g.add("CastLike", x, like, types=[like.dtype])


assert set(SMOOTH) <= set(semantics.UNARY)
