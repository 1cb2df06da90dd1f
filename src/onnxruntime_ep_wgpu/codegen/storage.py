"""Elements narrower than a word: how they are read from the 32-bit words of a storage buffer and packed into them.

In: WGSL of a word, or of a value of the compute type. Out: WGSL of the other. Invariant: what is packed and read again is
the value rounded to the element type once, to nearest even; integers keep their low bits; a NaN stays one.
"""

from __future__ import annotations

from ..dtypes import DType


def rounded(value: str, dtype: DType) -> str:
    """The expression of an f32 value rounded to a float type, for where a model asks for it inside a fused chain."""
    names = {DType.FLOAT16: "half", DType.BFLOAT16: "bfloat"}
    return f"{names[dtype]}({value})" if dtype in names else value


def unpack(word: str, place: str, dtype: DType) -> str:
    """Element `place` (a WGSL u32) of a word."""
    if dtype is DType.FLOAT16:
        return f"unpack2x16float({word})[{place}]"
    if dtype is DType.BFLOAT16:
        return f"bitcast<f32>(({word} >> ({place} * 16u)) << 16u)"
    source = f"bitcast<i32>({word})" if dtype.compute == "i32" else word
    text = f"extractBits({source}, {place} * {dtype.bits}u, {dtype.bits}u)"
    return f"({text} != 0u)" if dtype is DType.BOOL else text


def pack(value: str, dtype: DType) -> str:
    """The bits of an element in the low end of a u32, zeros above."""
    if dtype is DType.FLOAT16:
        return f"pack2x16float(vec2f({value}, 0.0))"
    if dtype is DType.BFLOAT16:
        return f"bfloat_bits({value})"
    if dtype is DType.BOOL:
        return f"u32({value})"
    bits = value if dtype.compute == "u32" else f"bitcast<u32>({value})"
    return f"({bits} & {(1 << dtype.bits) - 1}u)"
