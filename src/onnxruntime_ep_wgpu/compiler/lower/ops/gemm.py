"""MatMul and Gemm. Operands dequantised from bytes are multiplied as bytes, if matrix units support that."""

from __future__ import annotations

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ...dims import Dim
from ..builder import Builder, Operand
from .byte_products import dequantized_product
from .choices import Flag
from .matmul import matrix_product, product_of_matrices
from .registry import REALS, op


@op("MatMul", types=REALS | {DType.INT32, DType.UINT32, DType.INT64, DType.UINT64})
def matmul(b: Builder, x: Operand, y: Operand) -> Operand:
    """Returns the matrix product by numpy's rules, in the type of x."""
    result = dequantized_product(b, x, y)
    return product_of_matrices(b, x, y) if result is None else result


def matrices(b: Builder, x: Operand, y: Operand, transA: int, transB: int) -> tuple[Operand, Operand, tuple[Dim, Dim]]:
    """Returns both factors of a product of two matrices, transposed if requested, and the shape of the result."""
    left = b.permute(x, (1, 0)) if transA else x
    right = b.permute(y, (1, 0)) if transB else y
    return left, right, (left.shape[0], right.shape[1])


@op("Gemm", types=REALS)
def gemm(
    b: Builder,
    x: Operand,
    y: Operand,
    c: Operand | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: Flag = 0,
    transB: Flag = 0,
) -> Operand:
    if x.rank != 2 or y.rank != 2:
        raise UnsupportedError(f"matrices are needed, and {x} and {y} are given")
    left, right, shape = matrices(b, x, y, transA, transB)
    result = dequantized_product(b, x, y, bool(transA), bool(transB))
    if result is None:
        result = matrix_product(b, left, (0, 1, 1), right, (0, 1, 1), shape, (0, 1, 1), x.dtype)
    if alpha != 1.0:
        result = b.pointwise("alpha * x", {"x": result}, x.dtype, alpha=alpha)
    if c is None or beta == 0.0:
        return result
    expression = "x + c" if beta == 1.0 else "x + beta * c"
    return b.pointwise(expression, {"x": result, "c": c}, x.dtype, shape, beta=beta)
