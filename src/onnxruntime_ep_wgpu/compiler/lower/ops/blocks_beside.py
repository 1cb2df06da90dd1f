"""Products of one activation with several block-quantised weights, and the normalisation before them, as ONNX Runtime fuses
them for language models.

Each product is a MatMulNBits: its weights stay quantised in memory, and the kernel is selected by the same rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from ....errors import UnsupportedError
from ..builder import Builder, Operand
from .blocks import PACKED, matmul_n_bits
from .optimised_norms import simplified_layer_normalization, skip_rms_normalization
from .registry import FLOATS, MICROSOFT, Ranks, at_least, op

GateName = Literal["silu"]
_ROWS: dict[str, Ranks] = {"a": at_least(1), "skip": at_least(1), "norm_scale": 1}

Product = Callable[[Operand, Operand, Operand | None, int], Operand]
"""The product with weights, scales and a bias, with the given number of columns."""


def _products(
    b: Builder, a: Operand, skip: Operand | None, norm_scale: Operand | None, epsilon: float, accuracy_level: int,
    bits: int, block_size: int, inner: int,
) -> tuple[Product, Operand | None]:  # fmt: skip
    """Returns a function for products with rms_norm(a + skip) * norm_scale, or with a if there is no scale; and the sum a +
    skip."""
    summed = None
    if skip is not None:
        if norm_scale is None:
            raise UnsupportedError("skip is given without norm_scale")
        normal, _, _, summed = skip_rms_normalization(b, a, skip, norm_scale, epsilon=epsilon, wanted=(True,) * 4)
        assert normal is not None
    elif norm_scale is not None:
        (normal,) = simplified_layer_normalization(b, a, norm_scale, epsilon=epsilon)
    else:
        normal = a

    def product(weights: Operand, scales: Operand, bias: Operand | None, columns: int) -> Operand:
        made: Operand = matmul_n_bits(
            b,
            normal,
            weights,
            scales,
            bias=bias,
            K=inner,
            N=columns,
            block_size=block_size,
            bits=bits,
            accuracy_level=accuracy_level,
        )
        return made

    return product, summed


def _with_sum(results: list[Operand], summed: Operand | None, outputs: int) -> list[Operand]:
    if outputs <= len(results):
        return results[:outputs]
    if summed is None:
        raise UnsupportedError("the output input_skip_bias_sum needs the input skip, which is missing")
    return [*results, summed]


@op(
    "MatMulNBitsMlp",
    domain=MICROSOFT,
    types=FLOATS,
    gate_weights=PACKED,
    up_weights=PACKED,
    rows=("a", "skip"),
    ranks=_ROWS,
)
def matmul_n_bits_mlp(
    b: Builder,
    a: Operand,
    skip: Operand | None,
    norm_scale: Operand | None,
    gate_weights: Operand,
    gate_scales: Operand,
    gate_bias: Operand | None,
    up_weights: Operand,
    up_scales: Operand,
    up_bias: Operand | None = None,
    *,
    activation: GateName,
    K: int,
    N: int,
    block_size: int,
    accuracy_level: int = 0,
    bits: int = 4,
    epsilon: float = 1e-5,
    outputs: int = 1,
) -> list[Operand]:
    """Returns silu(a times the gate's weights) times (a times the other weights), (..., N), and the sum a + skip. First
    `skip` is added to a (..., K), then the sum is normalised with `norm_scale` (K), if these are given."""
    product, summed = _products(b, a, skip, norm_scale, epsilon, accuracy_level, bits, block_size, K)
    gate, up = product(gate_weights, gate_scales, gate_bias, N), product(up_weights, up_scales, up_bias, N)
    y = b.pointwise("silu(g) * u", {"g": gate, "u": up}, a.dtype, cost=9)
    return _with_sum([y], summed, outputs)


@op(
    "MatMulNBitsQkv",
    domain=MICROSOFT,
    types=FLOATS,
    q_weights=PACKED,
    k_weights=PACKED,
    v_weights=PACKED,
    rows=("a", "skip"),
    ranks=_ROWS,
)
def matmul_n_bits_qkv(
    b: Builder,
    a: Operand,
    skip: Operand | None,
    norm_scale: Operand,
    q_weights: Operand,
    q_scales: Operand,
    q_bias: Operand | None,
    k_weights: Operand,
    k_scales: Operand,
    k_bias: Operand | None,
    v_weights: Operand,
    v_scales: Operand,
    v_bias: Operand | None = None,
    *,
    K: int,
    Nq: int,
    Nkv: int,
    block_size: int,
    accuracy_level: int = 0,
    bits: int = 4,
    epsilon: float = 1e-6,
    outputs: int = 3,
) -> list[Operand]:
    """Returns queries (..., Nq), keys and values (..., Nkv), and the sum a + skip. First `skip` is added to a (..., K), if
    given, then the sum is normalised."""
    product, summed = _products(b, a, skip, norm_scale, epsilon, accuracy_level, bits, block_size, K)
    found = [product(q_weights, q_scales, q_bias, Nq), product(k_weights, k_scales, k_bias, Nkv)]
    return _with_sum([*found, product(v_weights, v_scales, v_bias, Nkv)], summed, outputs)
