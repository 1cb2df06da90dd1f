"""Random numbers: RandomNormal and RandomUniform, Bernoulli, Multinomial, and the mask of Dropout in training.

Element i of a result is computed from words of Philox 4x32-10. Its inputs are a key, the number of the run, and i. Key and
number are a state of the node in device memory. A kernel counts the runs, so a recorded or captured run, or one in a browser,
continues the sequence like any other.

With the attribute `seed`, the key is derived from it. Each session then has the same numbers, run by run. Without a seed the
host initialises the state with random bits. Nodes with the same seed draw the same words. The CPU provider does the same with
another generator.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ...dims import Dim, less
from ...ir import Call, Variant, Write
from ..builder import Builder, Operand
from .pointwise import type_of
from .reduction import reduce_axes
from .registry import BOOLS, FLOATS, REALS, op
from .scan import running_totals_of_rows

_COST = 40  # of an element's computation: high enough that no reader recomputes it


def _state(b: Builder, seed: float | int | None) -> Operand:
    """Returns the state of a generator for this run. It is different in every run."""
    if seed is None:
        begin: tuple[int, ...] = ()
    elif isinstance(seed, int):
        begin = (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF, 0, 0)
    else:
        begin = (struct.unpack("<I", struct.pack("<f", seed))[0], 0, 0, 0)
    state = b.state(begin)
    call = Call(
        "advance",
        {},
        {"state": Write(state, (1,))},
        (Variant(1, 1),),
        origin=b.origin,
        loop_carried=frozenset({"state"}),
    )
    return b.add(call)[0]


def _drawn(b: Builder, shape: Sequence[Dim], seed: float | int | None, normal: bool) -> Operand:
    """Returns random words (u32), or standard normal numbers (f32)."""
    return b.map(
        "random_bits",
        DType.FLOAT32 if normal else DType.UINT32,
        tuple(shape),
        ("i",),
        (len(shape),),
        {"state": (_state(b, seed), (1,))},
        cost=_COST,
        iterations=10,
        NORMAL=normal,
    )


def uniform(b: Builder, shape: Sequence[Dim], seed: float | int | None) -> Operand:
    """Returns numbers (f32) in [0, 1), multiples of 2^-24."""
    words = _drawn(b, shape, seed, normal=False)
    return b.pointwise("unit(w)", {"w": words}, DType.FLOAT32)


def _generated_type(dtype: DType) -> DType:
    """The type that numbers are generated in before the conversion to `dtype`: 32 bits for 64-bit floats."""
    return DType.FLOAT32 if dtype is DType.FLOAT64 else dtype


def _float_type(code: int) -> DType:
    dtype = type_of(code)
    if dtype not in REALS:
        raise UnsupportedError(f"no kernel for random numbers of type {dtype.label}")
    return dtype


def _extents(shape: Sequence[int]) -> Sequence[int]:
    if any(extent < 0 for extent in shape):
        raise UnsupportedError(f"attribute shape={list(shape)} has a negative extent")
    return shape


# ---- numbers of a distribution


def _normal(b: Builder, shape: Sequence[Dim], dtype: DType, mean: float, scale: float, seed: float | None) -> Operand:
    drawn = _drawn(b, shape, seed, normal=True)
    made = b.pointwise(
        "z * scale + mean", {"z": drawn}, _generated_type(dtype), scale=float(scale), mean=float(mean), cost=2
    )
    return b.cast(made, dtype)


def _uniform_between(
    b: Builder, shape: Sequence[Dim], dtype: DType, low: float, high: float, seed: float | None
) -> Operand:
    """Returns numbers in [low, high), as far as the type has any there."""
    span = high - low
    if not abs(span) <= float(np.finfo(np.float32).max):
        raise UnsupportedError(f"attributes low={low} and high={high} are too far apart")
    below = float(np.nextafter(*np.array([high, low], np.float32).astype(_generated_type(dtype).numpy)))
    made = b.pointwise(
        "min(u * span + low, below)" if high > low else "u * span + low",
        {"u": uniform(b, shape, seed)},
        _generated_type(dtype),
        span=float(span),
        low=float(low),
        below=below,
        cost=3,
    )
    return b.cast(made, dtype)


@op("RandomNormal")
def random_normal(
    b: Builder, *, shape: list[int], dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Operand:
    return _normal(b, _extents(shape), _float_type(dtype), mean, scale, seed)


@op("RandomUniform")
def random_uniform(
    b: Builder, *, shape: list[int], dtype: int = 1, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> Operand:
    return _uniform_between(b, _extents(shape), _float_type(dtype), low, high, seed)


@op("RandomNormalLike", types=frozenset(DType))
def random_normal_like(
    b: Builder,
    x: Operand,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Operand:
    return _normal(b, x.shape, _float_type(x.dtype.code if dtype is None else dtype), mean, scale, seed)


@op("RandomUniformLike", types=frozenset(DType))
def random_uniform_like(
    b: Builder,
    x: Operand,
    *,
    dtype: int | None = None,
    low: float = 0.0,
    high: float = 1.0,
    seed: float | None = None,
) -> Operand:
    return _uniform_between(b, x.shape, _float_type(x.dtype.code if dtype is None else dtype), low, high, seed)


def _cast_like(b: Builder, x: Operand, like: Operand) -> Operand:
    """Returns x, as f64 if `like` is f64, else as f32."""
    return b.cast(x, DType.FLOAT64 if like.dtype is DType.FLOAT64 else DType.FLOAT32)


@op("Bernoulli", types=REALS)
def bernoulli(b: Builder, x: Operand, *, dtype: int | None = None, seed: float | None = None) -> Operand:
    """Returns 1 with the probability that is an element of x, else 0; for NaN always 0."""
    to = x.dtype if dtype is None else type_of(dtype)
    if to.compute is None:
        raise UnsupportedError(f"no kernel for results of type {to.label}")
    drawn = b.pointwise("u < p", {"u": _cast_like(b, uniform(b, x.shape, seed), x), "p": x}, DType.BOOL, cost=2)
    return drawn if to is DType.BOOL else b.pointwise(f"{to.compute}(x)", {"x": drawn}, to)


@op("Multinomial", types=FLOATS, ranks={"x": 2})
def multinomial(b: Builder, x: Operand, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None) -> Operand:
    """Returns `sample_size` classes for each row of x (batch, classes), which are logarithms of weights. A class with a
    weight that is not finite is never drawn."""
    to = type_of(dtype)
    if to not in (DType.INT32, DType.INT64):
        raise UnsupportedError(f"no kernel for classes of type {to.label}")
    if sample_size < 1:
        raise UnsupportedError(f"attribute sample_size={sample_size} must be positive")
    batch, classes = x.shape
    b.require(less(0, classes), "cannot draw from {} classes", classes)
    least = float(np.finfo(np.float32).min)
    known = b.pointwise("where(isinf(x) or isnan(x), least, x)", {"x": x}, DType.FLOAT32, cost=3, least=least)
    highest = reduce_axes(b, "ReduceMax", known, [1], True)
    weights = b.pointwise("where(isinf(x) or isnan(x), 0, exp(x - m))", {"x": x, "m": highest}, DType.FLOAT32, cost=8)
    drawn = b.map(
        "multinomial",
        DType.INT32,
        (batch, sample_size),
        ("row", "i"),
        (1, 1),
        {
            "totals": (running_totals_of_rows(b, weights), (1, 1)),
            "weights": (weights, (1, 1)),
            "state": (_state(b, seed), (1,)),
        },
        parameters={"columns": classes},
        cost=_COST,
        reuse=True,
        iterations=10 + 4 * 33,
    )
    return b.cast(drawn, to)


# ---- dropout


@op("Dropout", since=12, types=REALS, ratio=REALS, training=BOOLS, elementwise=True)
def dropout(
    b: Builder, x: Operand, ratio: Operand | None = None, training: Operand | None = None, *, seed: int | None = None
) -> tuple[Operand, Operand]:
    """In training, sets a fraction `ratio` of the elements to 0, and scales the others up. Returns the result and the mask of
    the kept elements. In inference, or if `ratio` is 0, it is the identity. If no constants decide this, the run does."""
    known = 0.5 if ratio is None else None if ratio.constant is None else float(ratio.constant.reshape(()))
    if known is not None and not 0 <= known < 1:
        raise UnsupportedError(f"ratio {known} must be 0 or more and less than 1")
    trains = False if training is None else None if training.constant is None else bool(training.constant.any())
    if known == 0 or trains is False:
        return x, b.pointwise("true_value", {}, DType.BOOL, x.shape, true_value=True)
    part = (
        b.constant(np.array(known, np.float32)) if known is not None or ratio is None else b.cast(ratio, DType.FLOAT32)
    )
    operands = {"u": uniform(b, x.shape, seed), "r": part}
    if trains is None and training is not None:
        operands["r"] = part = b.pointwise("where(t, r, 0)", {"t": training, "r": part}, DType.FLOAT32)
    mask = b.pointwise("u >= r", operands, DType.BOOL, x.shape, cost=2)
    scale = _cast_like(b, b.pointwise("1 - r", {"r": part}, DType.FLOAT32), x)
    y = b.pointwise("x * m / s", {"x": x, "m": _cast_like(b, mask, x), "s": scale}, x.dtype, x.shape, cost=4)
    return y, mask
