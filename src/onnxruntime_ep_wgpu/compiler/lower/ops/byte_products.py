"""Products of bytes less their zero points, exact in int32: by matrix units for signed bytes, where the target has some.

A byte less its zero point takes nine bits. So units multiply the bytes themselves, unsigned ones less 128, which lack p on the left
and q on the right. The sum of (x + p)(y + q) is that of x y, plus p times the sum of a column of y + q, plus q times the sum of a
row of x. Sums of weights are constants, and what is added is fused into the store.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....program.dtypes import DType
from ...dims import Dim, product
from ...ir import Storage
from ...ir.signed_bytes import EXPRESSIONS, SIGNED
from ...tune import matmul_variants
from ..builder import Builder, Operand
from .matmul import product_of_matrices
from .quantize import centred
from .reduction import reduce_axes


def product_of_bytes(b: Builder, x: Operand, x_zero: Operand | None, y: Operand, y_zero: Operand | None) -> Operand:
    """(x - x_zero) times (y - y_zero) by the rules of numpy, as int32. Zero points broadcast with x and y: x_zero is one number or
    one per row, y_zero one number or one per column."""
    if not _multiplied_by_units(b, x, y):
        return product_of_matrices(b, centred(b, x, x_zero), centred(b, y, y_zero))
    y, y_zero = _less_zero(b, y, y_zero)
    p, q, order = lacking(b, x, x_zero), lacking(b, y, y_zero), (*range(y.rank - 2), y.rank - 1, y.rank - 2)
    if _is_weight(y):  # units load it best where those of a column are neighbours in memory
        laid = b.contiguous(b.permute(y, order))
        right, y = b.permute(signed(b, laid), order), b.permute(laid, order)
    else:
        right = signed(b, y)
    result = product_of_matrices(b, signed(b, x), right)
    if p is not None:
        result = plus(b, result, p, sums_of(b, y, y_zero, y.rank - 2))
    if q is not None:
        # By a map of its own: with two readers it would be in memory, in 32 bits.
        rows = reduce_axes(b, "ReduceSum", signed(b, x), [x.rank - 1], keepdims=True, wraps=True)
        result = plus(b, result, q, rows)
    return result


def dequantized_product(
    b: Builder, x: Operand, y: Operand, x_across: bool = False, y_across: bool = False
) -> Operand | None:
    """The product of two values that are bytes less their zero points, times their scales: x by one scale, y by one or one for each
    column; those that are `across` are transposed first. None for others, and where no units multiply bytes."""
    left, right = b.dequantized.get(x.view), b.dequantized.get(y.view)
    if left is None or right is None or x_across or x.rank < 2 or y.rank < 2:
        return None
    column = y.rank - (2 if y_across else 1)
    per_column = any(it is not None and it.size != 1 for it in (right.scale, right.zero))
    if any(it is not None and it.size != 1 for it in (left.scale, left.zero)) or (per_column and right.axis != column):
        return None
    order = (*range(y.rank - 2), y.rank - 1, y.rank - 2)
    integers = b.permute(right.integers, order) if y_across else right.integers
    if not _multiplied_by_units(b, left.integers, integers):
        return None
    sums = product_of_bytes(b, left.integers, number(b, left.zero), integers, number(b, right.zero))
    scales = {"s": b.reshape(left.scale, ()), "t": number(b, right.scale) or right.scale}
    return b.pointwise("f32(x) * (s * t)", {"x": sums, **scales}, x.dtype, sums.shape, cost=3)


def number(b: Builder, p: Operand | None) -> Operand | None:
    """A parameter without axes where it is one number; else as it is."""
    return b.reshape(p, ()) if p is not None and p.size == 1 else p


def _multiplied_by_units(b: Builder, x: Operand, y: Operand) -> bool:
    """Whether matrix units multiply them, for some sizes at least."""
    if x.rank < 2 or y.rank < 2 or not x.view.is_whole or not (y.view.is_whole or _is_weight(y)):
        return False
    m = product(x.shape[:-1]) if y.rank == 2 else x.shape[-2]
    batch = 1 if y.rank == 2 else product(x.shape[:-2])
    return by_units(b, (batch, m, y.shape[-1], x.shape[-1]))


def by_units(b: Builder, sizes: tuple[Dim, Dim, Dim, Dim]) -> bool:
    """Whether matrix units multiply signed bytes of these sizes, batch, m, n and k, or may do so for what a run has."""
    _, variants = matmul_variants(*sizes, b.target, DType.INT32, transposed=True, bits=8, of_bytes=True)
    return any(it.by_matrices for it in variants)


def signed(b: Builder, x: Operand) -> Operand:
    """x, or where its elements are unsigned, x - 128."""
    marked: dict[str, Any] = {SIGNED: True}
    return b.pointwise(EXPRESSIONS[x.dtype], {"x": x}, DType.INT32, inline=True, **marked)


def _is_weight(y: Operand) -> bool:
    return y.view.tensor.storage is Storage.WEIGHT


def lacking(b: Builder, x: Operand, zero: Operand | None) -> Operand | None:
    """What the signed bytes of x lack of x - zero; None where that is nothing."""
    flip = 128 if x.dtype is DType.UINT8 else 0
    if zero is None:
        return b.constant(np.array(flip, np.int32)) if flip else None
    if (known := zero.constant) is None:
        return b.pointwise("flip - i32(zero)", {"zero": zero}, DType.INT32, flip=flip)
    lacking = np.asarray(flip - np.asarray(known, np.int32))
    return b.constant(lacking) if np.any(lacking) else None


def sums_of(b: Builder, y: Operand, zero: Operand | None, axis: int) -> Operand:
    """The sums of y - zero along an axis, which stays."""
    values = _values(b, y)
    zeros = np.zeros((), np.int32) if zero is None else zero.constant
    if values is None or zeros is None:
        return reduce_axes(b, "ReduceSum", centred(b, y, zero), [axis], keepdims=True, wraps=True)
    centre = np.asarray(values, np.int32) - np.asarray(zeros, np.int32)
    return b.constant(_wrapped(centre.sum(axis, np.int64, keepdims=True)))


def _values(b: Builder, y: Operand) -> Any | None:
    """The numbers of weights, transposed ones too; None of what is not known."""
    if y.constant is not None:
        return y.constant
    laid = b.permute(y, (*range(y.rank - 2), y.rank - 1, y.rank - 2)).constant
    return None if laid is None else laid.swapaxes(-1, -2)


def _less_zero(b: Builder, y: Operand, zero: Operand | None) -> tuple[Operand, Operand | None]:
    """Weights less their zero point, without one, where these are signed bytes; else both as they are."""
    values = _values(b, y)
    zeros = None if zero is None else zero.constant
    if values is None or zeros is None or lacking(b, y, zero) is None:
        return y, zero
    found, limits = values.astype(np.int16) - np.asarray(zeros, np.int16), np.iinfo(np.int8)
    if found.min(initial=0) < limits.min or limits.max < found.max(initial=0):
        return y, zero
    return b.constant(np.ascontiguousarray(found.astype(np.int8))), None


def plus(b: Builder, sums: Operand, factor: Operand, others: Operand) -> Operand:
    """sums + factor * others."""
    known: Any = factor.constant
    if known is not None and others.constant is not None:
        term = b.constant(_wrapped(np.asarray(known, np.int64) * others.constant))
        return b.pointwise("x + term", {"x": sums, "term": term}, DType.INT32, sums.shape)
    operands = {"x": sums, "factor": factor, "others": others}
    return b.pointwise("x + factor * others", operands, DType.INT32, sums.shape, cost=2)


def _wrapped(values: Any) -> Any:
    """The low 32 bits."""
    return np.asarray(np.asarray(values, np.int64).astype(np.int32))
