"""Products with block-quantised weights, which stay quantised in memory.

Weights of a few bits become real numbers, (q - zero) * scale, with a scale and a zero point per block of columns. The maps
that dequantise are `inline`: a product computes them where it loads the weights, so the real numbers are never stored.
DequantizeLinear before a product lowers to the same graph.
"""

from __future__ import annotations

import numpy as np

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ...dims import Dim, equal, product
from ..builder import Builder, Operand
from .matmul import product_of_matrices
from .registry import FLOATS, MICROSOFT, at_least, op

PACKED = frozenset({DType.UINT8})
UNSIGNED = {2: DType.UINT2, 4: DType.UINT4, 8: DType.UINT8}
LEAST_BLOCK = 16
ROUNDED = 4  # the `accuracy_level` of a model that allows activations of 8 bits


def _require_size(b: Builder, name: str, operand: Operand | None, count: int, what: str) -> None:
    """Requires that an operand has `count` elements."""
    if operand is not None:
        b.require(equal(operand.size, count), f"{name} {{}} does not have the {count} numbers of {what}", operand)


def check_block(block: int) -> None:
    if block < LEAST_BLOCK or block & (block - 1):
        raise UnsupportedError(f"block_size {block}: a power of two of at least {LEAST_BLOCK} is needed")


def per_block(b: Builder, p: Operand, rows: int, blocks: int, block: int) -> Operand:
    """Broadcasts a parameter (rows, blocks) to every element, (rows, blocks * block), without a copy."""
    spread = b.expand(b.reshape(p, (rows, blocks, 1)), (rows, blocks, block))
    return b.reshape(spread, (rows, blocks * block))


def unpacked(b: Builder, x: Operand, bits: int, shape: tuple[Dim, ...]) -> Operand:
    """Returns bytes as unsigned numbers of 2, 4 or 8 bits, the first in the low bits. For a weight this is a view of its
    memory; numbers from other bytes are extracted where they are read."""
    if b.weights.is_memory(x):
        return b.weights.bits(x, UNSIGNED[bits], shape)
    if bits == 8:
        return b.reshape(x, shape)
    numbers = b.map(
        "return (x_at(at / #(8 // BITS)u) >> (at % #(8 // BITS)u * $BITS)) & #((1 << BITS) - 1)u;",
        DType.UINT8,
        (product(shape),),
        ("at",),
        (1,),
        {"x": (b.reshape(x, (x.size,)), (1,))},
        cost=4,
        inline=True,
        BITS=bits,
    )
    return b.reshape(numbers, shape)


def packed_zeros(b: Builder, zeros: Operand, bits: int, rows: int, blocks: int) -> Operand:
    """Returns zero points (rows, blocks) from bytes. Each row begins with a new byte."""
    width = -(-blocks * bits // 8) * 8 // bits
    return b.slice(unpacked(b, zeros, bits, (rows, width)), 1, 0, 1, blocks)


@op(
    "MatMulNBits",
    domain=MICROSOFT,
    types=FLOATS,
    weights=PACKED,
    zero_points=FLOATS | PACKED,
    g_idx=frozenset({DType.INT32}),
    rows=("a",),
    ranks={"a": at_least(1)},
)
def matmul_n_bits(
    b: Builder,
    a: Operand,
    weights: Operand,
    scales: Operand,
    zero_points: Operand | None = None,
    g_idx: Operand | None = None,
    bias: Operand | None = None,
    *,
    K: int,
    N: int,
    block_size: int,
    bits: int = 4,
    accuracy_level: int = 0,
    weight_prepacked: int = 0,
) -> Operand:
    """Returns a (..., K) times weights (N, K) transposed, plus bias (N). With `accuracy_level` 4, a may be rounded to 8 bits,
    which is faster on adapters with a dot product of bytes. Sums are in float32 for every level."""
    if not 2 <= bits <= 8:
        raise UnsupportedError(f"bits {bits}: weights of 2 to 8 bits are supported")
    if weight_prepacked:
        raise UnsupportedError(
            f"weight_prepacked {weight_prepacked} is not supported: only CUDA kernels read weights in this order"
        )
    check_block(block_size)
    blocks = -(-K // block_size)
    blob = block_size * bits // 8
    b.require(equal(a.shape[-1], K), f"A {{}} does not have the K = {K} columns of the weights", a)
    _require_size(b, "B", weights, N * blocks * blob, f"shape [{N}, {blocks}, {blob}], N rows of blocks of bytes")
    _require_size(b, "scales", scales, N * blocks, f"shape [{N}, {blocks}], one per block")
    _require_size(b, "bias", bias, N, f"shape [{N}], one per column of the result")
    if zero_points is not None and zero_points.dtype is DType.UINT8:
        width = -(-blocks * bits // 8)
        _require_size(b, "zero_points", zero_points, N * width, f"shape [{N}, {width}], {bits} bits per block")
    else:
        _require_size(b, "zero_points", zero_points, N * blocks, f"shape [{N}, {blocks}], one per block")
    if g_idx is not None and _groups_are_blocks(g_idx, block_size):
        g_idx = None
    by_blocks = bits in UNSIGNED and g_idx is None
    if by_blocks:
        real = _by_blocks(b, weights, scales, zero_points, N, blocks, block_size, bits)
    else:
        real = _by_elements(b, weights, scales, zero_points, g_idx, N, blocks, block_size, bits)
    real = b.permute(b.slice(real, 1, 0, 1, K), (1, 0))
    # The bytes contain a weight minus its zero point.
    whole = zero_points is None or (bits < 8 and zero_points.dtype is DType.UINT8)
    rounded = b.settings.int8_activations and accuracy_level == ROUNDED and by_blocks and whole
    y = product_of_matrices(b, a, real, rounded=rounded)
    return y if bias is None else b.pointwise("x + bias", {"x": y, "bias": b.reshape(bias, (N,))}, y.dtype, y.shape)


def _groups_are_blocks(g_idx: Operand, block: int) -> bool:
    """Whether the groups of columns are known to be the blocks."""
    groups = g_idx.constant
    return groups is not None and bool(np.array_equal(groups.reshape(-1), np.arange(groups.size) // block))


def _by_blocks(
    b: Builder, weights: Operand, scales: Operand, zeros: Operand | None, rows: int, blocks: int, block: int, bits: int
) -> Operand:
    """Returns real numbers (rows, blocks * block) from numbers that do not cross bytes. Their parameters are constant within
    a block."""
    q = unpacked(b, weights, bits, (rows, blocks * block))
    operands = {"x": q, "s": per_block(b, scales, rows, blocks, block)}
    if zeros is None:
        return b.pointwise("(f32(x) - zero) * s", operands, scales.dtype.accumulated, q.shape, cost=3, inline=True,
                           zero=float(1 << bits - 1))  # fmt: skip
    if zeros.dtype is DType.UINT8:
        zeros = packed_zeros(b, zeros, bits, rows, blocks)
    operands["zero"] = per_block(b, zeros, rows, blocks, block)
    return b.pointwise("(f32(x) - f32(zero)) * s", operands, scales.dtype.accumulated, q.shape, cost=3, inline=True)


def _by_elements(
    b: Builder,
    weights: Operand,
    scales: Operand,
    zeros: Operand | None,
    groups: Operand | None,
    rows: int,
    blocks: int,
    block: int,
    bits: int,
) -> Operand:
    """The same for elements that cross bytes, and for columns with a lookup of their group."""
    columns = blocks * block
    bytes_of_row, zero_bytes = columns * bits // 8, -(-blocks * bits // 8)
    packed = zeros is not None and zeros.dtype is DType.UINT8
    operands: dict[str, tuple[Operand, tuple[int, ...]]] = {
        "x": (b.reshape(weights, (rows, bytes_of_row)), (1, 1)),
        "s": (b.reshape(scales, (rows, blocks)), (1, 1)),
    }
    if groups is not None:
        operands["g"] = (b.reshape(groups, (groups.size,)), (1,))
    if zeros is not None:
        operands["z"] = (b.reshape(zeros, (rows, zero_bytes if packed else blocks)), (1, 1))
    return b.map(
        "packed_elements",
        DType.FLOAT32,
        (rows, columns),
        ("n", "k"),
        (1, 1),
        operands,
        parameters={} if groups is None else {"groups": groups.size},
        cost=8,
        reuse=True,
        inline=True,
        BITS=bits,
        BLOCK=block,
        BLOCKS=blocks,
        BYTES=bytes_of_row,
        ZEROS="none" if zeros is None else "packed" if packed else "whole",
        ZERO_BYTES=zero_bytes,
    )
