"""Floats that are only stored: those of 8 and 4 bits, and the expression of a number rounded to one, or to a half."""

from __future__ import annotations

from ...program.dtypes import DType
from ...records import dataclass


@dataclass(frozen=True)
class Minifloat:
    """A float of at most 8 bits. Its `digits` follow the point; `least` is the exponent of its least normal number.

    `infinity` and `nan` are bits, None when it has none; a NaN that would be minus zero is the only one, and larger bits
    than `nan` are NaN too otherwise.
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
    """The expression of an f32 value rounded to a float type, for where a model asks for it inside a fused chain.

    What is too large for a minifloat becomes its largest number or, without `saturate`, infinity or NaN.
    """
    names = {DType.FLOAT16: "half", DType.BFLOAT16: "bfloat"}
    if dtype in MINIFLOATS:
        kind = MINIFLOATS[dtype]
        beyond = "infinity" if kind.infinity is not None else "nan"
        outside = repr(kind.largest) if saturate or kind.nan is None else beyond
        return f"minifloat({value}, {float(kind.digits)}, {float(kind.least)}, {kind.largest}, {outside})"
    return f"{names[dtype]}({value})" if dtype in names else value
