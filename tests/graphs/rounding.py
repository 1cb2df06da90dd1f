"""How a node's samples follow from those of its inputs: where errors arise, and which results are exact.

Moving elements is exact. A pointwise operator adds a relative error. An operator that mixes elements adds an error of the size
of the largest of them, because they may cancel. Whole numbers and short fractions of moderate size are calculated without error
by operators that add, multiply or compare. What jumps (rounding, comparisons, places of the largest) is calculated for inputs
with 16 times their error as well, added and taken away, and must come out the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import semantics
from .case import Node
from .values import LOOSEST, SAMPLES, UNIT, Samples, deviation


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


MOVES = _names("""
    Reshape Flatten Squeeze Unsqueeze Transpose Expand Slice Split Concat Tile DepthToSpace SpaceToDepth Pad Gather
    GatherElements GatherND Identity Trilu ReverseSequence OneHot Where Neg Abs Relu Max Min ReduceMax ReduceMin
    GlobalMaxPool MaxPool Shape Size Compress ConstantOfShape EyeLike MaxUnpool Constant Range TensorScatter Clip
""")  # fmt: skip
EXACT = MOVES | _names("""
    Add Sub Mul Sum MatMul Gemm Conv ConvTranspose ReduceSum ReduceL1 ReduceSumSquare CumSum Einsum Floor Ceil Round
    Sign Equal Less LessOrEqual Greater GreaterOrEqual ArgMax ArgMin TopK Cast CastLike ScatterElements ScatterND Not
    And Or Xor IsNaN IsInf ThresholdedRelu Shrink PRelu Mod Hardmax Col2Im
""")  # fmt: skip
POINTWISE = frozenset([*semantics.UNARY, *semantics.BINARY, "Clip", "Cast", "CastLike", "Where",
                       "DequantizeLinear", "QuantizeLinear", "Dropout"])  # fmt: skip
JUMPS = _names("""
    Floor Ceil Round Sign Equal Less LessOrEqual Greater GreaterOrEqual ArgMax ArgMin TopK Cast CastLike
    ThresholdedRelu Shrink Mod Hardmax QuantizeLinear DynamicQuantizeLinear IsNaN IsInf MaxPool MaxUnpool QLinearConv
    QLinearMatMul GridSample RoiAlign Resize
""")  # fmt: skip
CANCELS = frozenset({"Gelu", "Mish"})
"""Products with a difference that vanishes for large negative elements: their error is a part of the element's size."""
SETTINGS = frozenset({"Resize", "Upsample"})
"""Operators whose further inputs are no data."""
OWN_STEPS = frozenset({"DynamicQuantizeLinear"})
"""Operators that round by a scale of their own, which f32 does not have: short elements can lie at a tie, too."""
AMPLIFIED = 16.0
LEAST = {"float16": 2.0**-25}
"""Half of the smallest number above zero, where values are stored that a fused kernel keeps in f32."""


class Reject(Exception):
    """This node would not be a fair test: invalid, too large, too imprecise, or at a jump."""


def samples_of(node: Node, inputs: Sequence[Samples | None], opset: int, key: tuple[int, ...]) -> list[Samples]:
    """The samples of a node's outputs for one run; `key` seeds the errors. Raises Reject."""
    result_types = node.types
    given = [i for i in inputs if i is not None]
    exact_inputs = all(len(i) == 1 for i in given)

    def compute(arrays: list[Any]) -> list[np.ndarray]:
        try:
            with np.errstate(all="ignore"):
                return _compute(node, arrays, result_types, opset)
        except Reject:
            raise
        except Exception as error:
            raise Reject(f"{node.op}: {type(error).__name__}: {error}") from error

    firsts = compute([None if i is None else i[0] for i in inputs])
    floats = [t in UNIT for t in result_types]
    if exact_inputs and (not any(floats) or node.op in MOVES):
        if node.op in JUMPS and not all(_short(i[0]) for i in given):
            _same_nearby(node, inputs, firsts, compute, key)
        return [(first,) for first in firsts]
    if (
        exact_inputs
        and node.op in EXACT
        and all(map(_short, firsts))
        and _sums_fit(given)
        and _fit(firsts, result_types)
    ):
        return [(first,) for first in firsts]
    units = [UNIT.get(t, 0.0) for t in result_types]
    dice = np.random.default_rng([*key, zlib.crc32(node.outputs[0].encode())])
    others = []
    for k in range(1, SAMPLES + 1):
        arrays = [None if i is None else i[min(k, len(i) - 1)] for i in inputs]
        if node.op not in MOVES and node.op not in POINTWISE:
            arrays = [a if k and node.op in SETTINGS else _disturbed(a, dice) for k, a in enumerate(arrays)]
        results = compute(arrays)
        if node.op not in MOVES or node.op == "Clip":
            results = [
                _rounded(r, u, dice, LEAST.get(t, 0)) for r, u, t in zip(results, units, result_types, strict=True)
            ]
        if node.op in CANCELS:
            results[0] = results[0] + units[0] / 4 * arrays[0] * dice.uniform(-1, 1, arrays[0].shape)
        others.append(results)
    if node.op in JUMPS:
        _same_nearby(node, inputs, firsts, compute, key)
    out = []
    for k, first in enumerate(firsts):
        samples = (first, *(results[k] for results in others))
        if any(s.shape != first.shape for s in samples):
            raise Reject(f"{node.op}: a shape at a jump")
        if floats[k]:
            out.append(samples)
        elif all(np.array_equal(s, first) for s in samples):
            out.append((first,))
        else:
            raise Reject(f"{node.op}: an integer at a jump")
    return out


def _compute(node: Node, arrays: list[Any], result_types: Sequence[str], opset: int) -> list[np.ndarray]:
    if node.op in ("Cast", "CastLike"):
        return [np.asarray(semantics.cast(arrays[0], result_types[0]))]
    results = semantics.compute(node.op, arrays, dict(node.attributes), opset, len(node.outputs))
    return [
        r.astype(np.float64) if t in UNIT else r.astype(np.dtype(t)) for r, t in zip(results, result_types, strict=True)
    ]


def _short(array: np.ndarray) -> bool:
    """Whether the elements are whole numbers or short fractions of moderate size."""
    if array.dtype.kind != "f":
        return True
    return bool(
        np.isfinite(array).all() and (np.abs(array) <= 2**17).all() and (array * 16 == np.rint(array * 16)).all()
    )


def _sums_fit(inputs: Sequence[Samples]) -> bool:
    """Whether every sum of products of these elements is calculated without rounding in f32, in any order."""
    floats = [i[0] for i in inputs if i[0].dtype.kind == "f"]
    if not all(_short(a) for a in floats):
        return False
    largest = np.prod([max(float(np.abs(a).max(initial=0)), 1.0) for a in floats])
    most = max((a.size for a in floats), default=1)
    return bool(largest**2 * most < 2**19)


def _fit(results: Sequence[np.ndarray], types: Sequence[str]) -> bool:
    bits = {"float16": 10, "bfloat16": 7}
    for result, dtype in zip(results, types, strict=True):
        if dtype in bits and result.size:
            mantissa, _ = np.frexp(result)
            if (mantissa * 2 ** (bits[dtype] + 1) != np.rint(mantissa * 2 ** (bits[dtype] + 1))).any():
                return False
    return True


def _disturbed(array: Any, dice: np.random.Generator) -> Any:
    if array is None or array.dtype.kind != "f" or not array.size:
        return array
    return array + UNIT["float32"] * np.abs(array).max() * dice.uniform(-1, 1, array.shape)


def _rounded(array: np.ndarray, unit: float, dice: np.random.Generator, least: float = 0.0) -> np.ndarray:
    """With errors of `unit` times an element, and of `least` of what is not zero: it may become zero, or stay as it is."""
    if not unit:
        return array
    rounded = array * (1 + unit * dice.uniform(-1, 1, array.shape))
    return rounded + least * dice.uniform(-1, 1, array.shape) * (array != 0) if least else rounded


def _same_nearby(
    node: Node, inputs: Sequence[Samples | None], firsts: list[np.ndarray], compute: Any, key: tuple[int, ...]
) -> None:
    """Raises Reject when errors 16 times as large would jump.

    An error is taken away as well as added: of two elements that should be equal, one or the other is the larger then.
    """
    # No error makes numbers equal that are near each other; it changes their order.
    if node.op == "Equal" and all(i is not None and i[0].dtype.kind == "f" for i in inputs):
        firsts, compute = _order([None if i is None else i[0] for i in inputs]), _order
    dice = np.random.default_rng([*key, 77])
    for k in range(1, SAMPLES + 1):
        errors: list[Any] = []
        for i in inputs:
            if i is None or i[0].dtype.kind != "f":
                errors.append(None)
            else:
                fixed = len(i) == 1 and _short(i[0]) and node.op not in OWN_STEPS
                further = 0 if fixed else _rounded(i[0], 2**-21, dice) - i[0]
                errors.append(AMPLIFIED * (i[min(k, len(i) - 1)] - i[0] + further))
        for sign in (1, -1):
            _same(node, compute(_with(inputs, errors, sign)), firsts)


def _order(arrays: Sequence[Any]) -> list[np.ndarray]:
    return [np.sign(np.subtract(*arrays))]


def _with(inputs: Sequence[Samples | None], errors: Sequence[Any], sign: int) -> list[Any]:
    firsts = (None if i is None else i[0] for i in inputs)
    return [it if error is None else it + sign * error for it, error in zip(firsts, errors, strict=True)]


def _same(node: Node, results: Sequence[np.ndarray], firsts: Sequence[np.ndarray]) -> None:
    """Raises Reject when results are beyond a jump from the `firsts`."""
    for got, first in zip(results, firsts, strict=True):
        if got.shape != first.shape:
            raise Reject(f"{node.op}: a shape at a jump")
        if first.dtype.kind != "f":
            if not np.array_equal(got, first):
                raise Reject(f"{node.op}: at a jump")
        elif got.size and np.abs(got - first).max() > 2e-2 * max(float(np.abs(first).max()), 1e-3):
            raise Reject(f"{node.op}: at a jump")


def check_precision(name: str, dtype: str, samples: Samples) -> None:
    """Raises Reject when a value is so imprecise that a wrong element could pass."""
    first = samples[0]
    if len(samples) > 1 and first.size:
        scale = float(np.sqrt(np.mean(first**2)))
        if float(deviation(samples).max()) > LOOSEST[dtype] * max(scale, 1e-4):
            raise Reject(f"{name}: imprecise")
