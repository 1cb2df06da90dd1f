"""Products of bytes minus their zero points, exact in int32: by matrix units for signed bytes, if the target has them.

A byte minus its zero point takes nine bits. So matrix units multiply the bytes themselves, or unsigned ones minus 128. These
are less by p on the left and by q on the right. The sum of (x + p)(y + q) has three terms:

* the sum of x y,
* p times the sum of a column of y + q,
* q times the sum of a row of x.

Sums of weights are constants, and the additions are fused into the store.
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
    """Returns (x - x_zero) times (y - y_zero) by numpy's rules, as int32. Zero points broadcast with x and y: x_zero is one
    number or one per row, y_zero one number or one per column."""
    if not _multiplied_by_units(b, x, y):
        return product_of_matrices(b, centred(b, x, x_zero), centred(b, y, y_zero))
    y, y_zero = _minus_zero(b, y, y_zero)
    p, q, order = lacking(b, x, x_zero), lacking(b, y, y_zero), (*range(y.rank - 2), y.rank - 1, y.rank - 2)
    if _is_weight(y):  # matrix units load it best with contiguous columns
        laid = b.contiguous(b.permute(y, order))
        right, y = b.permute(signed(b, laid), order), b.permute(laid, order)
    else:
        right = signed(b, y)
    result = product_of_matrices(b, signed(b, x), right)
    if p is not None:
        result = plus(b, result, p, sums_of(b, y, y_zero, y.rank - 2))
    if q is not None:
        # A separate map: with two readers it would be stored, in 32 bits.
        rows = reduce_axes(b, "ReduceSum", signed(b, x), [x.rank - 1], keepdims=True, wraps=True)
        result = plus(b, result, q, rows)
    return result


def dequantized_product(
    b: Builder, x: Operand, y: Operand, x_across: bool = False, y_across: bool = False
) -> Operand | None:
    """Returns the product of two dequantised values, from their integers and scales. The scale of x is one number, that of y
    one number or one per column. Operands that are `across` are transposed first. Returns None for other values, and if no
    matrix units multiply bytes."""
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
    """Returns a parameter without axes if it is one number; otherwise unchanged."""
    return b.reshape(p, ()) if p is not None and p.size == 1 else p


def _multiplied_by_units(b: Builder, x: Operand, y: Operand) -> bool:
    """Whether matrix units multiply them, at least for some sizes."""
    if x.rank < 2 or y.rank < 2 or not x.view.is_whole or not (y.view.is_whole or _is_weight(y)):
        return False
    m = product(x.shape[:-1]) if y.rank == 2 else x.shape[-2]
    batch = 1 if y.rank == 2 else product(x.shape[:-2])
    return by_units(b, (batch, m, y.shape[-1], x.shape[-1]))


def by_units(b: Builder, sizes: tuple[Dim, Dim, Dim, Dim]) -> bool:
    """Whether matrix units multiply signed bytes of these sizes, batch, m, n and k, or may do so for the sizes of a run."""
    _, variants = matmul_variants(*sizes, b.target, DType.INT32, transposed=True, bits=8, of_bytes=True)
    return any(it.by_matrices for it in variants)


def signed(b: Builder, x: Operand) -> Operand:
    """Returns x, or x - 128 if its elements are unsigned."""
    marked: dict[str, Any] = {SIGNED: True}
    return b.pointwise(EXPRESSIONS[x.dtype], {"x": x}, DType.INT32, inline=True, **marked)


def _is_weight(y: Operand) -> bool:
    return y.view.tensor.storage is Storage.WEIGHT


def lacking(b: Builder, x: Operand, zero: Operand | None) -> Operand | None:
    """Returns x - zero minus the signed bytes of x, the same for all elements or per row or column; None if it is 0."""
    flip = 128 if x.dtype is DType.UINT8 else 0
    if zero is None:
        return b.constant(np.array(flip, np.int32)) if flip else None
    if (known := zero.constant) is None:
        return b.pointwise("flip - i32(zero)", {"zero": zero}, DType.INT32, flip=flip)
    lacking = np.asarray(flip - np.asarray(known, np.int32))
    return b.constant(lacking) if np.any(lacking) else None


def sums_of(b: Builder, y: Operand, zero: Operand | None, axis: int) -> Operand:
    """Returns the sums of y - zero along an axis, which is kept."""
    values = _values(b, y)
    zeros = np.zeros((), np.int32) if zero is None else zero.constant
    if values is None or zeros is None:
        return reduce_axes(b, "ReduceSum", centred(b, y, zero), [axis], keepdims=True, wraps=True)
    centre = np.asarray(values, np.int32) - np.asarray(zeros, np.int32)
    return b.constant(_wrapped(centre.sum(axis, np.int64, keepdims=True)))


def _values(b: Builder, y: Operand) -> Any | None:
    """Returns the numbers of weights, transposed ones too; None if they are unknown."""
    if y.constant is not None:
        return y.constant
    laid = b.permute(y, (*range(y.rank - 2), y.rank - 1, y.rank - 2)).constant
    return None if laid is None else laid.swapaxes(-1, -2)


def _minus_zero(b: Builder, y: Operand, zero: Operand | None) -> tuple[Operand, Operand | None]:
    """Returns weights minus their zero point, and None, if the differences are signed bytes; otherwise both unchanged."""
    values = _values(b, y)
    zeros = None if zero is None else zero.constant
    if values is None or zeros is None or lacking(b, y, zero) is None:
        return y, zero
    found, limits = values.astype(np.int16) - np.asarray(zeros, np.int16), np.iinfo(np.int8)
    if found.min(initial=0) < limits.min or limits.max < found.max(initial=0):
        return y, zero
    return b.constant(np.ascontiguousarray(found.astype(np.int8))), None


def plus(b: Builder, sums: Operand, factor: Operand, others: Operand) -> Operand:
    """Returns sums + factor * others."""
    known: Any = factor.constant
    if known is not None and others.constant is not None:
        term = b.constant(_wrapped(np.asarray(known, np.int64) * others.constant))
        return b.pointwise("x + term", {"x": sums, "term": term}, DType.INT32, sums.shape)
    operands = {"x": sums, "factor": factor, "others": others}
    return b.pointwise("x + factor * others", operands, DType.INT32, sums.shape, cost=2)


def _wrapped(values: Any) -> Any:
    """The low 32 bits."""
    return np.asarray(np.asarray(values, np.int64).astype(np.int32))
