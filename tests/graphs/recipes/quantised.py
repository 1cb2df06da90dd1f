"""Quantised models: quantise, calculate with integers, dequantise."""

from __future__ import annotations

import numpy as np

from ..builder import Graph
from ..rounding import Reject
from ..values import Value
from .common import of_rank, of_size, recipe, some, tame


def _scale(g: Graph, number: float) -> Value:
    return g.constant(np.float32(number), "float32")


def quantised(g: Graph, x: Value) -> tuple[Value, Value, Value | None]:
    """x in eight bits, with its scale and zero point. Elements are first put in the middle of their steps."""
    dtype = g.dice.of(["uint8", "int8"])
    zero = g.constant(g.dice.between(0, 5), dtype) if dtype == "int8" or g.dice.chance(0.6) else None
    scale = _scale(g, 0.5)
    if not x.exact:
        x = g.add("Round", tame(g, x, 20))
    return g.add("QuantizeLinear", x, scale, zero, types=[dtype]), scale, zero


@recipe(1)
def there_and_back(g: Graph) -> Value:
    q, scale, zero = quantised(g, some(g, ("float32",)))
    return g.add("DequantizeLinear", q, scale, zero, types=["float32"])


@recipe(0.7)
def dequantise(g: Graph) -> Value:
    x = g.pick(lambda v: v.dtype in ("uint8", "int8"))
    if x.rank > 1 and len(set(x.dim(1))) == 1 and x.dim(1)[0] and g.dice.chance(0.4):
        scales = g.constant(0.25 * (1 + np.arange(x.dim(1)[0]) % 3), "float32")
        return g.add("DequantizeLinear", x, scales, types=["float32"], axis=1)
    return g.add("DequantizeLinear", x, _scale(g, 0.25), types=["float32"])


@recipe(0.8)
def product_of_integers(g: Graph) -> Value:
    x = g.pick(lambda v: v.dtype in ("uint8", "int8") and v.rank >= 2) if g.dice.chance(0.3) else quantised(
        g, of_size(g, some(g, ("float32",), 2, 4), 200))[0]  # fmt: skip
    other = g.tensor(g.dice.of(["uint8", "int8"]), [(s[-1], 3) for s in x.shapes], constant=0.8)
    zeros = [g.constant(g.dice.between(0, 4), v.dtype) if g.dice.chance(0.6) else None for v in (x, other)]
    return g.add("MatMulInteger", x, other, *zeros, types=["int32"])


@recipe(0.7)
def quantised_layer(g: Graph) -> Value:
    """A product between dequantising and quantising, as exporters write it."""
    q, scale, zero = quantised(g, of_size(g, of_rank(g, some(g, ("float32",), 2, 4), 2), 200))
    x = g.add("DequantizeLinear", q, scale, zero, types=["float32"])
    w = g.tensor("int8", [(s[-1], 4) for s in x.shapes], constant=1.0)
    w = g.add("DequantizeLinear", w, _scale(g, 0.25), types=["float32"])
    y = g.add("MatMul", x, w)
    if g.dice.chance(0.5):
        y = g.add("Relu", y)
    return g.add("QuantizeLinear", y, _scale(g, 2.0), g.constant(3, "uint8"), types=["uint8"])


@recipe(0.3)
def dynamic(g: Graph) -> list[Value]:
    x = some(g, ("float32",))
    if any(0 in s for s in x.shapes):
        raise Reject("no range")
    return list(g.add("DynamicQuantizeLinear", x, outputs=3, types=["uint8", "float32", "uint8"]))


@recipe(0.6)
def operators_on_integers(g: Graph) -> Value:
    """A product or a convolution from eight bits to eight bits, or to 32."""
    op = g.dice.of(["ConvInteger", "QLinearConv", "QLinearMatMul"])
    x, _, zero = quantised(
        g, of_size(g, of_rank(g, some(g, ("float32",), 2, 4), 2 if op == "QLinearMatMul" else 4), 200)
    )
    if any(0 in s for s in x.shapes):
        raise Reject("an empty image")
    shapes = [(s[-1], 3) if op == "QLinearMatMul" else (2, s[1], 1, 2) for s in x.shapes]
    w = g.tensor(x.dtype if op == "QLinearMatMul" else "int8", shapes, constant=1.0)
    w_zero = g.constant(0, w.dtype)
    if op == "ConvInteger":
        return g.add(op, x, w, zero, w_zero, types=["int32"], pads=[0, 0, 0, 1])
    how = {} if op == "QLinearMatMul" else {"pads": [0, 1, 0, 0]}
    steps = [_scale(g, number) for number in (0.5, 0.25, 2.0)]
    zero = zero or g.constant(0, x.dtype)
    return g.add(op, x, steps[0], zero, w, steps[1], w_zero, steps[2], zero, types=[x.dtype], **how)
