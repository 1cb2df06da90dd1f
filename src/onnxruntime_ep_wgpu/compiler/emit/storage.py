"""Elements narrower than a word: unpacks them from the 32-bit words of a storage buffer and packs them into such words.

In: WGSL of a word, or of a value of the compute type. Out: WGSL of the other. Invariant: packing and unpacking a value rounds it
once to the element type, to nearest even. Integers keep their low bits; a NaN stays NaN.
"""

from __future__ import annotations

from ...program.dtypes import DType
from ..ir import Bits
from ..ir.floats import MINIFLOATS


def unpack(word: str, place: str, dtype: DType) -> str:
    """Returns element `place` (a WGSL u32) of a word."""
    if dtype is DType.FLOAT16:
        return f"unpack2x16float({word})[{place}]"
    if dtype is DType.BFLOAT16:
        return f"bitcast<f32>(({word} >> ({place} * 16u)) << 16u)"
    if dtype in MINIFLOATS:
        bits = f"extractBits({word}, {place} * {dtype.bits}u, {dtype.bits}u)"
        return f"minifloat_value({bits}, {_parameters(dtype)})"
    source = f"bitcast<i32>({word})" if dtype.compute == "i32" else word
    text = f"extractBits({source}, {place} * {dtype.bits}u, {dtype.bits}u)"
    return f"({text} != 0u)" if dtype is DType.BOOL else text


def pack(value: str, dtype: DType) -> str:
    """Returns the bits of an element in the low end of a u32, with zeros above."""
    if dtype is DType.FLOAT16:
        return f"pack_halves(vec2f({value}, 0.0))"
    if dtype is DType.BFLOAT16:
        return f"bfloat_bits({value})"
    if dtype in MINIFLOATS:
        return f"minifloat_bits({value}, {_parameters(dtype)})"
    if dtype is DType.BOOL:
        return f"u32({value})"
    bits = value if dtype.compute == "u32" else f"bitcast<u32>({value})"
    return f"({bits} & {(1 << dtype.bits) - 1}u)"


def written(bits: Bits) -> str:
    """Returns the WGSL of an element as its bits, or of bits as their element."""
    return pack(bits.variable, bits.dtype) if bits.packed else unpack(bits.variable, "0u", bits.dtype)


def unpack4(words: str, dtype: DType) -> str:
    """Returns four elements, in their compute type, from their memory format: the low bits of a u32, or a vec2<u32> of halves.

    `words` is a name.
    """
    if dtype is DType.FLOAT16:
        return f"vec4<f32>(unpack2x16float({words}.x), unpack2x16float({words}.y))"
    if dtype is DType.BFLOAT16:
        parts = ", ".join(f"{words}.{c} << 16u, {words}.{c} & 0xffff0000u" for c in "xy")
        return f"bitcast<vec4<f32>>(vec4<u32>({parts}))"
    if dtype.bits == 16:
        parts = ", ".join(unpack(f"{words}.{c}", f"{k}u", dtype) for c in "xy" for k in range(2))
        return f"vec4<{dtype.compute}>({parts})"
    return f"vec4<{dtype.compute}>({', '.join(unpack(words, f'{k}u', dtype) for k in range(4))})"


def mantissas(words: list[str], dtype: DType) -> tuple[list[str], list[tuple[float, ...]], int]:
    """Converts integers of at most 8 bits to floats without a conversion instruction.

    Returns a vec4<f32> per four integers, the excess of each float, and the amount by which a zero point is too small. `words`
    are names of u32 that hold the integers. In the float 2^e, fraction bit 23 - e has the value 1. So inserting the bits of an
    integer from there on yields 2^e plus the integer. This is a bit operation; GPUs execute four times as many of these as
    conversions.
    """
    bits, signed = dtype.bits, dtype.compute == "i32"
    flip = 1 << bits - 1 if signed else 0  # two's complement as an excess
    texts, excess = [], []
    for word in words:
        halves = [word, f"({word} >> 16u)"]
        for first in range(0, 32 // bits, 4):
            parts = [(halves[e * bits // 16], e * bits % 16) for e in range(first, first + 4)]
            masks = ", ".join(f"{((1 << bits) - 1) << at}u" for _, at in parts)
            floats = ", ".join(f"{((127 + 23 - at) << 23) ^ (flip << at)}u" for _, at in parts)
            source = ", ".join(dict.fromkeys(text for text, _ in parts)) if bits < 8 else ", ".join(t for t, _ in parts)
            texts.append(f"bitcast<vec4<f32>>((vec4<u32>({source}) & vec4<u32>({masks})) ^ vec4<u32>({floats}))")
            excess.append(tuple(float(1 << 23 - at) for _, at in parts))
    return texts, excess, flip


def signed_bytes(words: list[str], dtype: DType, zero: str) -> tuple[list[str], float]:
    """Returns unsigned integers of at most 8 bits minus a zero point as words of four signed bytes, and the factor that scales
    these.

    A word gives `each` words; byte i of word j has its element j + each * i. `words` are names of u32 with the integers. `zero`
    is an f32; with less than 8 bits it is any of their values.
    """
    bits, each = dtype.bits, 8 // dtype.bits
    lowest, highest = (((1 << bits) - 1) * at * 0x01010101 for at in (1, 1 << 8 - bits))
    middle = zero == repr(float(1 << bits - 1))
    texts = []
    for word in words:
        for j in range(each):
            if middle:  # shifted to the top of a byte, the first bit is the inverted sign
                moved = f"({word} << {8 - bits - j * bits}u)" if j < each - 1 else word
                texts.append(f"(({moved} & {highest}u) ^ 0x80808080u)")
            else:
                moved = f"({word} >> {j * bits}u)" if j else word
                texts.append(f"(((({moved} & {lowest}u) | 0x80808080u) - u32({zero}) * 0x01010101u) ^ 0x80808080u)")
    return texts, 1 / (1 << 8 - bits) if middle else 1.0


def pack4(value: str, dtype: DType) -> str:
    """Returns the memory format that `unpack4` reads, from a name of a vec4."""
    if dtype is DType.FLOAT16:
        return f"vec2<u32>(pack_halves({value}.xy), pack_halves({value}.zw))"
    x, y, z, w = (pack(f"{value}.{c}", dtype) for c in "xyzw")
    if dtype.bits == 16:
        return f"vec2<u32>({x} | ({y} << 16u), {z} | ({w} << 16u))"
    return f"({x} | ({y} << 8u) | ({z} << 16u) | ({w} << 24u))"


def _parameters(dtype: DType) -> str:
    """Returns digits, least exponent, sign bit, NaN, infinity. 256 marks an absent pattern."""
    kind = MINIFLOATS[dtype]
    nan, infinity = (256 if bits is None else bits for bits in (kind.nan, kind.infinity))
    return f"{kind.digits}u, {kind.least}, {1 << dtype.bits - 1}u, {nan}u, {infinity}u"
