"""Floats that exist only in memory, with 8 and 4 bits, and the expression that rounds a number to one of them or to a half."""

from __future__ import annotations

from ...program.dtypes import DType
from ...records import dataclass


@dataclass(frozen=True)
class Minifloat:
    """A float of at most 8 bits. `digits` counts the fraction bits; `least` is the exponent of the smallest normal number.

    `infinity` and `nan` are bit patterns, None if there is none. If `nan` is the pattern of minus zero, it is the only NaN.
    Otherwise larger patterns are NaN too.
    """

    digits: int
    least: int
    largest: float
    nan: int | None
    infinity: int | None = None


MINIFLOATS = {
    DType.FLOAT8E4M3FN: Minifloat(3, -6, 448.0, 0x7F),
    DType.FLOAT8E4M3FNUZ: Minifloat(3, -7, 240.0, 0x80),
    DType.FLOAT8E5M2: Minifloat(2, -14, 57344.0, 0x7D, 0x7C),
    DType.FLOAT8E5M2FNUZ: Minifloat(2, -15, 57344.0, 0x80),
    DType.FLOAT4E2M1: Minifloat(1, 0, 6.0, None),
}


def rounded(value: str, dtype: DType, saturate: bool = True) -> str:
    """Returns the expression of an f32 value rounded to a float type, for rounding inside of a fused chain.

    A value too large for a minifloat becomes its largest number or, without `saturate`, infinity or NaN.
    """
    names = {DType.FLOAT16: "half", DType.BFLOAT16: "bfloat"}
    if dtype in MINIFLOATS:
        kind = MINIFLOATS[dtype]
        beyond = "infinity" if kind.infinity is not None else "nan"
        outside = repr(kind.largest) if saturate or kind.nan is None else beyond
        return f"minifloat({value}, {float(kind.digits)}, {float(kind.least)}, {kind.largest}, {outside})"
    return f"{names[dtype]}({value})" if dtype in names else value
