"""Mixtures of experts: each token is processed by the few experts that a router selects for it, and their results are added
with weights.

A row of a product is a token at one of its experts. It reads only that expert's weights. So for few tokens, the cost is that
of loading their experts' weights. Quantised weights stay packed, as in `blocks`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ....records import dataclass
from ...dims import Dim, ceildiv, equal, product
from ...ir import Read, Variant, packed_run
from ...tune import expert_rows
from ..builder import Builder, Operand
from ..operand import fixed
from .activations import activated
from .blocks import PACKED, UNSIGNED, check_block, packed_zeros, per_block, unpacked
from .choices import Flag
from .index import index32
from .indexing import gather_along
from .reduction import reduce_axes
from .registry import FLOATS, MICROSOFT, op
from .selection import top_k
from .softmax import softmax_rows

_ACTIVATIONS = {name.lower(): name for name in ("Relu", "Gelu", "Silu", "Identity")}


@dataclass(frozen=True)
class ExpertWeights:
    """Weights (experts, n, k) as real numbers (experts * n, columns), stored with `bits` each, and a bias (experts, n) or
    None."""

    real: Operand
    experts: int
    n: int
    k: int
    bits: int
    bias: Operand | None


def _layer(b: Builder, name: str, weights: Operand, bias: Operand | None) -> ExpertWeights:
    experts, n, k = _sizes(name, weights)
    real = b.reshape(weights, (experts * n, k))
    return ExpertWeights(real, experts, n, k, weights.dtype.bits, _bias(b, name, bias, experts, n))


def _bias(b: Builder, name: str, bias: Operand | None, experts: int, n: int) -> Operand | None:
    if bias is None:
        return None
    b.require(equal(bias.size, experts * n), f"{name}_experts_bias {{}} for {experts} experts of {n} columns", bias)
    return b.reshape(bias, (experts, n))


def _sizes(name: str, weights: Operand) -> tuple[int, int, int]:
    experts, columns, inputs = fixed(f"the sizes of {name}_experts_weights", *weights.shape)
    return experts, columns, inputs


def _packed_layer(
    b: Builder,
    name: str,
    weights: Operand,
    scales: Operand | None,
    zeros: Operand | None,
    bias: Operand | None,
    bits: int,
    block: int,
) -> ExpertWeights:
    if bits not in UNSIGNED:
        raise UnsupportedError(f"expert_weight_bits {bits} of {name}: 2, 4 and 8 are supported")
    if scales is None:
        raise UnsupportedError(f"{name}_scales are missing")
    experts, n, width = _sizes(name, weights)
    k = width * 8 // bits
    if block and k % block:
        raise UnsupportedError(f"block_size {block} does not divide the {k} inputs of {name}")
    blocks, rows = (k // block if block else 1), experts * n
    wanted = f"the {rows * blocks} numbers of shape [{experts}, {n}, {blocks}]"
    b.require(equal(scales.size, rows * blocks), f"{name}_scales {{}} does not have {wanted}", scales)
    q = unpacked(b, weights, bits, (rows, k))
    operands = {"x": q, "s": per_block(b, scales, rows, blocks, k // blocks)}
    kind = scales.dtype.accumulated
    if zeros is None:
        real = b.pointwise(
            "(f32(x) - zero) * s", operands, kind, q.shape, cost=3, inline=True, zero=float(1 << bits - 1)
        )
    else:
        bytes_of_row = -(-(blocks if block else n) * bits // 8)
        count = rows * bytes_of_row if block else experts * bytes_of_row
        b.require(equal(zeros.size, count), f"{name}_zero_points {{}} does not have {count} bytes", zeros)
        zero = packed_zeros(b, zeros, bits, rows, blocks) if block else packed_zeros(b, zeros, bits, experts, n)
        operands["zero"] = per_block(b, b.reshape(zero, (rows, blocks)), rows, blocks, k // blocks)
        real = b.pointwise("(f32(x) - f32(zero)) * s", operands, kind, q.shape, cost=3, inline=True)
    return ExpertWeights(real, experts, n, k, bits, _bias(b, name, bias, experts, n))


def _product(b: Builder, x: Operand, chosen: Operand, layer: ExpertWeights, share: int) -> Operand:
    """Returns x (rows / share, k) times the weights of the expert `chosen` for each row: float32 (rows, n)."""
    rows = chosen.shape[0]
    right = Read(layer.real.view, (1, 1), reuse=True, vector=True)
    run, parts, workgroup = expert_rows(layer.k, layer.bits, packed_run(right), b.target)
    bias = layer.bias if layer.bias is not None else b.constant(np.zeros((1, 1), np.float32))
    tiles_n = ceildiv(layer.n, 4 * (workgroup // parts))
    b.bound_loop(3 * layer.k // 4, "a product with an expert over {} columns", layer.k)
    (y,) = b.call(
        "experts",
        {
            "a": Read(x.view, (1, 1), reuse=True, vector=True),
            "b": Read(layer.real.view, (1, 1), reuse=True, vector=True, run=run),
            "expert": Read(chosen.view, (1,)),
            "bias": Read(b.expand(bias, (layer.experts, layer.n)).view, (1, 1)),
        },
        {"y": (DType.FLOAT32, (rows, layer.n), (1, 1))},
        (Variant(rows * tiles_n, workgroup),),
        parameters={"n": layer.n, "k": layer.k, "experts": layer.experts, "tiles_n": tiles_n},
        flops=2 * product((rows, layer.n, layer.k)),
        RUN4=run // 4,
        PARTS=parts,
        SHARE=share,
        K_WHOLE=layer.k % run == 0,
        K_FOURS=layer.k % 4 == 0,
    )
    return y


ActivationType = Literal["relu", "gelu", "silu", "identity", "swiglu"]
QuantType = Literal["int"]
_OF_CUDA = {"swiglu_limit_after_activation": 0}  # onnxruntime has a different kernel for it on CUDA only


class MixtureAttributes(TypedDict, total=False):
    """Attributes of both operators."""

    k: int
    activation_type: ActivationType
    activation_alpha: float
    activation_beta: float
    swiglu_limit: float | None
    swiglu_fusion: int
    normalize_routing_weights: Flag
    use_sparse_mixer: Flag


@dataclass(frozen=True)
class Mixture:
    """The attributes of both operators, with their defaults."""

    k: int = 1
    activation_type: ActivationType = "relu"
    activation_alpha: float = 1.0
    activation_beta: float = 0.0
    swiglu_limit: float | None = None
    swiglu_fusion: int = 0
    normalize_routing_weights: Flag = 0
    use_sparse_mixer: Flag = 0

    def check_attributes(self, experts: int) -> None:
        if self.use_sparse_mixer:
            raise UnsupportedError(f"use_sparse_mixer {self.use_sparse_mixer} is not supported")
        if self.swiglu_fusion not in (0, 1, 2):
            raise UnsupportedError(f"swiglu_fusion {self.swiglu_fusion}: 0, 1 and 2 are supported")
        if not 0 < self.k <= experts:
            raise UnsupportedError(f"k {self.k} must be from 1 to the number of experts, {experts}")


def _mixed(
    b: Builder,
    x: Operand,
    router: Operand,
    weights: Operand | None,
    first: ExpertWeights,
    second: ExpertWeights,
    gate: ExpertWeights | None,
    options: Mixture,
) -> Operand:
    tokens = product(x.shape[:-1])
    rows = b.reshape(x, (tokens, x.shape[-1]))
    b.require(equal(x.shape[-1], first.k), f"input {{}} does not have the {first.k} columns of the first weights", x)
    b.require(
        equal(router.size, tokens * first.experts), f"router_probs {{}} for {first.experts} experts of {{}}", router, x
    )
    router = b.reshape(router, (tokens, first.experts))
    _, places = top_k(b, router, axis=-1, k=options.k)
    chosen = b.reshape(index32(b, places), (tokens * options.k,))
    mixing = gather_along(b, _weights(b, router, weights), places, 1)
    if options.normalize_routing_weights:
        total = reduce_axes(b, "ReduceSum", mixing, [1], keepdims=True)
        mixing = b.pointwise("x / total", {"x": mixing, "total": total}, DType.FLOAT32, cost=2)
    hidden = _activated(b, _product(b, rows, chosen, first, options.k), options)
    if gate is not None:
        other = _product(b, rows, chosen, gate, options.k)
        hidden = b.pointwise("x * y", {"x": hidden, "y": other}, DType.FLOAT32)
    b.require(
        equal(hidden.shape[1], second.k), f"{{}} columns for the {second.k} of the second weights", hidden.shape[1]
    )
    y = b.reshape(_product(b, hidden, chosen, second, 1), (tokens, options.k, second.n))
    weighed = b.pointwise("x * w", {"x": y, "w": b.reshape(mixing, (tokens, options.k, 1))}, DType.FLOAT32)
    total = reduce_axes(b, "ReduceSum", weighed, [1], keepdims=False)
    shape: tuple[Dim, ...] = (*x.shape[:-1], second.n)
    return b.reshape(b.pointwise("x", {"x": total}, x.dtype), shape)


def _weights(b: Builder, router: Operand, weights: Operand | None) -> Operand:
    """Returns the weights of results, per token and expert in float32: the softmax of the router, or the separate input."""
    if weights is not None:
        return b.pointwise("x", {"x": b.reshape(weights, router.shape)}, DType.FLOAT32)
    return softmax_rows(b, b.pointwise("x", {"x": router}, DType.FLOAT32), 1)


def _activated(b: Builder, x: Operand, options: Mixture) -> Operand:
    if options.activation_type != "swiglu":
        return activated(b, x, _ACTIVATIONS[options.activation_type], to=DType.FLOAT32)
    if options.swiglu_fusion == 0:
        raise UnsupportedError("swiglu with swiglu_fusion 0 is not supported: both halves must be in one product")
    rows, width = x.shape
    half = int(width) // 2 if isinstance(width, int) else 0
    if not half or width != 2 * half:
        raise UnsupportedError(f"swiglu of {width} columns: a known, even number is needed")
    shape, axis = ((rows, half, 2), 2) if options.swiglu_fusion == 1 else ((rows, 2, half), 1)
    parts = [b.reshape(b.slice(b.reshape(x, shape), axis, k, 1, 1), (rows, half)) for k in range(2)]
    limits: dict[str, Any] = {"alpha": options.activation_alpha, "beta": options.activation_beta}
    gate, linear = "g", "l"
    if options.swiglu_limit is not None:
        gate, linear = "min(g, limit)", "max(min(l, limit), low)"
        limits |= {"limit": options.swiglu_limit, "low": -options.swiglu_limit}
    expression = f"swish({gate}, alpha) * ({linear} + beta)"
    return b.pointwise(expression, {"g": parts[0], "l": parts[1]}, DType.FLOAT32, cost=20, **limits)


@op("MoE", domain=MICROSOFT, types=FLOATS, fixed=_OF_CUDA, ranks={"x": (2, 3), "fc1": 3, "fc2": 3, "fc3": 3})
def mixture(
    b: Builder,
    x: Operand,
    router_probs: Operand,
    fc1: Operand,
    fc1_bias: Operand | None,
    fc2: Operand,
    fc2_bias: Operand | None = None,
    fc3: Operand | None = None,
    fc3_bias: Operand | None = None,
    **attributes: Unpack[MixtureAttributes],
) -> Operand:
    """Returns fc2(activation(fc1(x)) * fc3(x)) of the k best experts of each token, weighted by the softmax of the router."""
    options = Mixture(**attributes)
    first, second = _layer(b, "fc1", fc1, fc1_bias), _layer(b, "fc2", fc2, fc2_bias)
    options.check_attributes(first.experts)
    gate = None if fc3 is None else _layer(b, "fc3", fc3, fc3_bias)
    return _mixed(b, x, router_probs, None, first, second, gate, options)


@op(
    "QMoE",
    domain=MICROSOFT,
    types=FLOATS,
    fixed=_OF_CUDA,
    fc1=PACKED,
    fc2=PACKED,
    fc3=PACKED,
    fc1_zeros=PACKED,
    fc2_zeros=PACKED,
    fc3_zeros=PACKED,
    ranks={"x": (2, 3), "fc1": 3, "fc2": 3, "fc3": 3},
)
def quantised_mixture(
    b: Builder,
    x: Operand,
    router_probs: Operand,
    fc1: Operand,
    fc1_scales: Operand | None,
    fc1_bias: Operand | None,
    fc2: Operand,
    fc2_scales: Operand | None,
    fc2_bias: Operand | None = None,
    fc3: Operand | None = None,
    fc3_scales: Operand | None = None,
    fc3_bias: Operand | None = None,
    fc1_zeros: Operand | None = None,
    fc2_zeros: Operand | None = None,
    fc3_zeros: Operand | None = None,
    router_weights: Operand | None = None,
    *,
    accuracy_level: int = 0,
    block_size: int = 0,
    expert_weight_bits: int = 4,
    fc1_expert_weight_bits: int | None = None,
    fc2_expert_weight_bits: int | None = None,
    fc3_expert_weight_bits: int | None = None,
    quant_type: QuantType = "int",
    weights_prepacked: int = -1,
    **attributes: Unpack[MixtureAttributes],
) -> Operand:
    """As MoE, with weights of a few bits. There is a scale and a zero point per column of an expert, or per block of it. If
    the router's softmax provides the weights of the selected experts, these are always normalised to a sum of 1."""
    if weights_prepacked == 1:
        raise UnsupportedError(
            "weights_prepacked 1 is not supported: only another provider reads weights in this order"
        )
    if block_size:
        check_block(block_size)
    options = Mixture(**attributes)
    bits = [it or expert_weight_bits for it in (fc1_expert_weight_bits, fc2_expert_weight_bits, fc3_expert_weight_bits)]
    first = _packed_layer(b, "fc1", fc1, fc1_scales, fc1_zeros, fc1_bias, bits[0], block_size)
    second = _packed_layer(b, "fc2", fc2, fc2_scales, fc2_zeros, fc2_bias, bits[1], block_size)
    gate = None
    if fc3 is not None:
        gate = _packed_layer(b, "fc3", fc3, fc3_scales, fc3_zeros, fc3_bias, bits[2], block_size)
    options.check_attributes(first.experts)
    if router_weights is None:  # as in the CPU provider, for every value of the attribute
        options = replace(options, normalize_routing_weights=1)
    return _mixed(b, x, router_probs, router_weights, first, second, gate, options)
