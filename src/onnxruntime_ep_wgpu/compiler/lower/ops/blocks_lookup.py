"""Quantised weights with a lookup: rows of a quantised embedding, and 4-bit numbers that index a table.

As in `blocks`, weights stay quantised in memory, and their readers compute the real numbers.
"""

from __future__ import annotations

import numpy as np

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ...dims import ceildiv, equal
from ..builder import Builder, Operand
from ..operand import fixed
from .blocks import PACKED, UNSIGNED, check_block, unpacked
from .choices import Flag
from .gemm import matmul
from .index import INDICES, index32
from .named_axes import axis_of
from .quantize import dequantized, spread
from .registry import FLOATS, MICROSOFT, MINIFLOATS, at_least, op

FOURS = frozenset({DType.INT4, DType.UINT4})

# QLoRA (Dettmers et al., 2023): the values of the 4-bit codes, in units of the largest number of a block.
_SIXTHS = (0.0, 0.0625 / 12, 8.0 / 12, 1.0, 4.0 / 12, 6.0 / 12, 2.0 / 12, 3.0 / 12)
_FP4 = (*_SIXTHS, *(-v for v in _SIXTHS))
_NF4 = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)


@op("MatMulBnb4", domain=MICROSOFT, types=FLOATS, weights=PACKED, rows=("a",), ranks={"a": at_least(1)})
def matmul_bnb4(
    b: Builder,
    a: Operand,
    weights: Operand,
    absmax: Operand,
    *,
    K: int,
    N: int,
    block_size: int,
    quant_type: int,
    transB: Flag = 1,
    training_mode: Flag = 0,
) -> Operand:
    """Returns a times weights (N, K) transposed, or as they are without `transB`. The weights are 4-bit numbers in row-major
    order, the first in the high half of a byte. They are FP4 (`quant_type` 0) or NF4 (1), in units of the `absmax` of their
    block. A block may cross rows."""
    if quant_type not in (0, 1):
        raise UnsupportedError(f"quant_type {quant_type} is not supported: 0 is FP4 and 1 is NF4")
    check_block(block_size)
    count, blocks = (N * K + 1) // 2, -(-N * K // block_size)
    b.require(equal(a.shape[-1], K if transB else N), f"A {{}} for weights [{N}, {K}], transB {transB}", a)
    b.require(
        equal(weights.size, count), f"B {{}} does not have the {count} bytes of [{N}, {K}] numbers of 4 bits", weights
    )
    b.require(equal(absmax.size, blocks), f"absmax {{}} does not have one number for each of {blocks} blocks", absmax)
    table = b.constant(np.array(_NF4 if quant_type else _FP4, np.float32))
    real = b.map(
        "let i = n * $K + k; let q = (x_at(i / 2u) >> ((1u - i % 2u) * 4u)) & 15u; return table_at(q) * s_at(i / $BLOCK);",
        DType.FLOAT32,
        (N, K),
        ("n", "k"),
        (1, 1),
        {
            "x": (b.reshape(weights, (count,)), (1,)),
            "s": (b.reshape(absmax, (blocks,)), (1,)),
            "table": (table, (1,)),
        },
        cost=8,
        reuse=True,
        inline=True,
        K=K,
        BLOCK=block_size,
    )
    y: Operand = matmul(b, a, b.permute(real, (1, 0)) if transB else real)
    return y


@op(
    "GatherBlockQuantized",
    domain=MICROSOFT,
    types=FLOATS,
    data=PACKED | FOURS | MINIFLOATS,
    indices=INDICES,
    zero_points=PACKED | FOURS,
    ranks={"data": at_least(1), "scales": at_least(1), "zero_points": at_least(1)},
)
def gather_block_quantized(
    b: Builder,
    data: Operand,
    indices: Operand,
    scales: Operand,
    zero_points: Operand | None = None,
    *,
    gather_axis: int = 0,
    quantize_axis: int = 1,
    block_size: int = 128,
    bits: int = 4,
) -> Operand:
    """Gathers elements of `data` along `gather_axis`, as real numbers with a scale and zero point per block of
    `quantize_axis`. Bytes hold several numbers of 2 or 4 bits along their last axis. An index out of range gives zeros."""
    small = data.dtype in MINIFLOATS
    default = 0.0
    if data.dtype is DType.UINT8:
        if bits not in UNSIGNED:
            raise UnsupportedError(f"bits {bits}: bytes hold numbers of 2, 4 or 8 bits")
        default = float(1 << bits - 1)
        data = unpacked(b, data, bits, (*data.shape[:-1], data.shape[-1] * (8 // bits)))
        if zero_points is not None and bits < 8:
            wide = (*zero_points.shape[:-1], zero_points.shape[-1] * (8 // bits))
            zero_points = b.slice(unpacked(b, zero_points, bits, wide), len(wide) - 1, 0, 1, scales.shape[-1])
    gather_axis, quantize_axis = axis_of(gather_axis, data.rank), axis_of(quantize_axis, data.rank)
    extent = data.shape[quantize_axis]
    if not (small and block_size == 0):
        check_block(block_size)
    else:
        fixed("the length of a block", extent)
    block = block_size or int(extent if isinstance(extent, int) else 1)
    for name, p in (("scales", scales), ("zero_points", zero_points)):
        if p is None:
            continue
        wanted = tuple(ceildiv(d, block) if axis == quantize_axis else d for axis, d in enumerate(data.shape))
        if p.rank != data.rank:
            raise UnsupportedError(f"{name} {p} for data {data}: one per block is needed, {list(wanted)}")
        for have, want in zip(p.shape, wanted, strict=True):
            if not (small and have == 1):
                b.require(equal(have, want), f"{name} {{}} for data {{}} in blocks of {block}", p, data)
    shape = tuple(d if axis != quantize_axis else scales.shape[axis] for axis, d in enumerate(data.shape))
    scale = spread(b, b.expand(scales, shape), data, quantize_axis, block)
    if zero_points is not None:
        real = dequantized(b, data, scale, spread(b, zero_points, data, quantize_axis, block))
    elif default:
        real = b.pointwise(
            "(f32(x) - zero) * s", {"x": data, "s": scale}, DType.FLOAT32, data.shape, cost=3, inline=True, zero=default
        )
    else:
        real = dequantized(b, data, scale, None)
    after = data.rank - gather_axis - 1
    return b.map(
        "gather_or_zero",
        scales.dtype,
        (*data.shape[:gather_axis], *indices.shape, *data.shape[gather_axis + 1 :]),
        ("outer", "picked", "inner"),
        (gather_axis, indices.rank, after),
        {"x": (real, (gather_axis, 1, after)), "indices": (index32(b, indices), (indices.rank,))},
        parameters={"extent": data.shape[gather_axis]},
        cost=4,
    )
