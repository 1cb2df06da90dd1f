"""Caches of 8 and 4 bits: rows are quantised where they are stored, and dequantised where they are read.

In: rows of floats, and scales, one for all or one per channel of a head. Out: the content of the cache: int8, float8, or
bytes of two 4-bit numbers with an offset of 8, the first in the low half.
"""

from __future__ import annotations

from typing import Annotated, Literal

from .....errors import UnsupportedError
from .....program.dtypes import DType
from .....records import dataclass
from ....dims import equal, floordiv
from ...builder import Builder, Operand
from ..choices import Spelled
from ..quantize import quantized

FLOAT8 = DType.FLOAT8E4M3FN
HELD = {DType.INT8: 8, FLOAT8: 8, DType.UINT8: 4}
"""The bits of a number, by the type of a cache."""

QuantisedBy = Annotated[Literal["NONE", "PER_TENSOR", "PER_CHANNEL"], Spelled(any_case=True)]
_PLACE = ("batch", "head", "row", "d")
_ONES = (1, 1, 1, 1)


@dataclass(frozen=True)
class Quantised:
    """The format of a quantised cache of `dtype` with `bits` bits per number. `scale` is (1) or broadcasts to (batch, heads,
    rows, size)."""

    bits: int
    scale: Operand
    dtype: DType

    def stored(self, b: Builder, new: Operand) -> Operand:
        """Quantises `new` (batch, heads, rows, size) to the cache's format."""
        batch, heads, rows, size = new.shape
        scale = b.expand(_with_four_axes(b, self.scale), new.shape)
        if self.dtype is FLOAT8:
            return quantized(b, new, scale, None, FLOAT8)
        if self.bits == 8:
            return b.pointwise(
                "i32(round(clamp(quotient(x, s), low, high)))",
                {"x": new, "s": scale},
                DType.INT8,
                cost=6,
                low=-128.0,
                high=127.0,
            )
        b.require(
            equal(size, 2 * floordiv(size, 2)), "heads of {} elements, and a 4-bit cache needs an even number", size
        )
        return b.map(
            "int4_pair",
            DType.UINT8,
            (batch, heads, rows, floordiv(size, 2)),
            _PLACE,
            _ONES,
            {"x": (new, _ONES), "s": (scale, _ONES)},
            cost=12,
            inline=True,
        )

    def read(self, b: Builder, cache: Operand, dtype: DType) -> Operand:
        """Dequantises the cache."""
        batch, heads, rows, width = cache.shape
        if self.bits == 8:
            scale = b.expand(_with_four_axes(b, self.scale), cache.shape)
            return b.pointwise("f32(x) * s", {"x": cache, "s": scale}, dtype, cost=2, inline=True)
        shape = (batch, heads, rows, 2 * width)
        operands = {"x": (cache, _ONES), "s": (b.expand(_with_four_axes(b, self.scale), shape), _ONES)}
        body = (
            "let pair = x_at(batch, head, row, d / 2u);"
            " return (f32(extractBits(pair, (d & 1u) * 4u, 4u)) - 8f) * s_at(batch, head, row, d);"
        )
        return b.map(body, dtype, shape, _PLACE, _ONES, operands, cost=4, inline=True)


def quantised(bits: int, mode: QuantisedBy, scale: Operand | None, cache: Operand | None) -> Quantised | None:
    """Returns the format of a cache by the attributes of a node; None for a cache of floats. Raises UnsupportedError."""
    if mode == "NONE":
        return None
    if scale is None or cache is None:
        raise UnsupportedError(f"a quantised cache of mode {mode} needs a past and its scale")
    held = HELD.get(cache.dtype)
    if held is None or bits not in (0, held):
        raise UnsupportedError(f"a cache of {cache.dtype.label} with kv_cache_bit_width={bits} is not supported")
    return Quantised(held, scale, cache.dtype)


def _with_four_axes(b: Builder, scale: Operand) -> Operand:
    return b.reshape(scale, (*(1,) * (4 - scale.rank), *scale.shape))
