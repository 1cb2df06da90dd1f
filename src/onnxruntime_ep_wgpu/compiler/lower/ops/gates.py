"""Gates of models with a fixed-size state and of hyper-connections, as ONNX Runtime fuses them.

Each consists of sums, normalisations and maps. Intermediate values are in float32.
"""

from __future__ import annotations

from typing import Annotated, Literal

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ...dims import Dim, equal, floordiv
from ..builder import Builder, Operand
from .activations import ACTIVATIONS
from .choices import Spelled
from .normalise import normalised
from .reduction import reduce_axes
from .registry import FLOATS, MICROSOFT, at_least, op

GateActivation = Annotated[Literal["silu", "sigmoid"], Spelled(also={"swish": "silu"})]
_GATES = {"silu": "Silu", "sigmoid": "Sigmoid"}
_LEAST_DOT = 1e-6


def _require_shape(b: Builder, name: str, x: Operand, shape: tuple[Dim, ...]) -> None:
    """Requires that an operand has a shape."""
    if x.rank != len(shape):
        raise UnsupportedError(f"{name} {x}: a shape of {len(shape)} axes is needed")
    for have, want in zip(x.shape, shape, strict=True):
        b.require(equal(have, want), f"{name} {{}} does not have the shape {{}}", x, shape)


@op("GatedAdd", domain=MICROSOFT, types=FLOATS, ranks={"x": at_least(1)})
def gated_add(b: Builder, x: Operand, y: Operand, gate: Operand, weight: Operand | None = None) -> Operand:
    """Returns x + y * gate, for x and y (..., C) and a gate (..., 1)."""
    if weight is not None:
        raise UnsupportedError("gate_weight, which is for bfloat16 on CUDA alone, is not supported")
    _require_shape(b, "Y", y, x.shape)
    _require_shape(b, "gate", gate, (*x.shape[:-1], 1))
    scaled = b.pointwise("y * g", {"y": y, "g": gate}, x.dtype, x.shape)
    return b.pointwise("x + y", {"x": x, "y": scaled}, x.dtype, x.shape)


@op("GatedRMSNorm", domain=MICROSOFT, types=FLOATS, ranks={"x": at_least(1), "scale": 1})
def gated_rms_norm(
    b: Builder,
    x: Operand,
    scale: Operand,
    gate: Operand,
    *,
    activation: GateActivation = "silu",
    epsilon: float = 1e-5,
) -> Operand:
    """Returns rms_norm(x) * scale * activation(gate), for x and the gate (..., H * C). Each group of C elements is normalised
    separately."""
    columns = scale.shape[0]
    if columns == 0:
        raise UnsupportedError(f"scale {scale} is empty: a group without elements has no mean")
    _require_shape(b, "gate", gate, x.shape)
    count = floordiv(x.shape[-1], columns)
    b.require(equal(count * columns, x.shape[-1]), "{} columns do not divide into groups of {}", x.shape[-1], columns)
    (y,) = normalised(b, b.reshape(x, (*x.shape[:-1], count, columns)), 1, epsilon, gain=scale, centred=False)
    it = ACTIVATIONS[_GATES[activation]]
    operands = {"y": b.reshape(y, x.shape), "x": gate}
    return b.pointwise(f"y * {it.expression}", operands, x.dtype, x.shape, cost=it.cost + 1)


@op("LinearAttentionGate", domain=MICROSOFT, types=FLOATS, ranks={"a": at_least(1), "bias": 1, "scale": 1})
def linear_attention_gate(
    b: Builder, a: Operand, bias: Operand, scale: Operand, rate: Operand | None = None, *, outputs: int = 1
) -> list[Operand]:
    """Returns scale * softplus(a + bias), for a (batch, sequence, heads) and one bias and scale per head; and sigmoid(rate),
    of the same shape."""
    for name, parameter in (("dt_bias", bias), ("decay_scale", scale)):
        _require_shape(b, name, parameter, a.shape[-1:])
    decay = b.pointwise("s * softplus(a + d)", {"a": a, "d": bias, "s": scale}, a.dtype, a.shape, cost=14)
    if outputs < 2:
        return [decay]
    if rate is None:
        raise UnsupportedError("the output beta needs the input b, which is missing")
    _require_shape(b, "b", rate, a.shape)
    return [decay, b.pointwise("sigmoid(x)", {"x": rate}, a.dtype, a.shape, cost=6)]


@op(
    "EngramGate",
    domain=MICROSOFT,
    types=FLOATS,
    ranks={"key": 4, "query": 4, "value": 3, "key_scale": 2, "query_scale": 2, "convolution_scale": 2},
)
def engram_gate(
    b: Builder,
    key: Operand,
    query: Operand,
    value: Operand,
    key_scale: Operand,
    query_scale: Operand,
    convolution_scale: Operand | None = None,
    *,
    epsilon: float = 1e-5,
    outputs: int = 1,
) -> list[Operand]:
    """Returns gate * value (batch, sequence, connections, size), and the same normalised to a mean square of 1 per row, times
    `convolution_scale`. Keys and queries have that shape too; the value is (batch, sequence, size), scales are (connections,
    size).

    The gate is sigmoid(sign(d) * sqrt(max(|d|, 1e-6))), d = sum(rms_norm(key) * rms_norm(query)) / sqrt(size).
    """
    shape = key.shape
    _require_shape(b, "query", query, shape)
    _require_shape(b, "value", value, (*shape[:2], shape[3]))
    scales = {"key_norm_scale": key_scale, "query_norm_scale": query_scale}
    for name, scale in (scales | ({"conv_norm_scale": convolution_scale} if convolution_scale else {})).items():
        _require_shape(b, name, scale, shape[2:])
    (keys,), (queries,) = (normalised(b, it, 1, epsilon, centred=False) for it in (key, query))
    parts = {"k": keys, "q": queries, "ks": key_scale, "qs": query_scale}
    products = b.pointwise("k * ks * (q * qs)", parts, DType.FLOAT32, shape, cost=3)
    dots = reduce_axes(b, "ReduceSum", products, [3], keepdims=True)
    d = b.pointwise("x / sqrt(f32(size))", {"x": dots}, DType.FLOAT32, cost=4, parameters={"size": shape[3]})
    gate = b.pointwise(
        "sigmoid(sign(x) * sqrt(max(abs(x), least)))", {"x": d}, DType.FLOAT32, cost=12, least=_LEAST_DOT
    )
    values = b.reshape(value, (*shape[:2], 1, shape[3]))
    gated = b.pointwise("g * v", {"g": gate, "v": values}, DType.FLOAT32, shape)
    results = [b.cast(gated, key.dtype)]
    if outputs > 1:
        if convolution_scale is None:
            raise UnsupportedError("the output gated_value_normed needs the input conv_norm_scale, which is missing")
        (rows,) = normalised(b, gated, 1, epsilon, centred=False)
        results.append(b.pointwise("x * s", {"x": rows, "s": convolution_scale}, key.dtype, shape))
    return results
