"""Weights that a model dequantises before a product or a lookup: they stay in memory as they are, whoever reads them and how
they lie; results beside numpy in float64.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests import support

F32, F16 = np.float32, np.float16
KINDS = {
    "int4": (TensorProto.INT4, ml_dtypes.int4),
    "uint4": (TensorProto.UINT4, ml_dtypes.uint4),
    "int8": (TensorProto.INT8, np.int8),
    "uint8": (TensorProto.UINT8, np.uint8),
    "int2": (TensorProto.INT2, ml_dtypes.int2),
}


class Case:
    """Weights of `shape` with scales per tensor, per index of `axis`, or per block of it."""

    def __init__(self, kind: str, shape: tuple[int, int], how: str, axis: int, zero: bool, dtype: Any = F32) -> None:
        rng = np.random.default_rng(sum(shape))
        self.kind, self.shape, self.how, self.axis, self.dtype = kind, shape, how, axis, dtype
        bits = int(kind[-1])
        low = 0 if kind.startswith("u") else -(1 << bits - 1)
        self.block = 16 if how == "block" else 0
        count = -(-shape[axis] // 16) if how == "block" else shape[axis]
        parameters = {"tensor": (), "axis": (count,)}.get(how) or tuple(
            count if a == axis else d for a, d in enumerate(shape)
        )
        parameters = () if how == "tensor" else parameters
        self.q = rng.integers(low, low + (1 << bits), shape)
        self.scale = (rng.standard_normal(parameters) * 0.1).astype(dtype)
        self.zero = rng.integers(low, low + (1 << bits), parameters) if zero else None
        spread = self._spread(self.scale.astype(np.float64))
        self.real = (self.q - (0 if self.zero is None else self._spread(self.zero))) * spread

    def _spread(self, p: Any) -> Any:
        if self.how == "block":
            return np.repeat(p, 16, self.axis)[tuple(slice(d) for d in self.shape)]
        return p if self.how == "tensor" else np.expand_dims(p, 1 - self.axis)

    def nodes(self) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
        """The node that makes `w` of them, and their initializers."""
        code, stored = KINDS[self.kind]
        weights = {
            "q": (self.q.astype(stored), code),
            "s": (self.scale, helper.np_dtype_to_tensor_dtype(self.scale.dtype)),
        }
        if self.zero is not None:
            weights["z"] = (np.asarray(self.zero).astype(stored), code)
        how = {"axis": self.axis} | ({"block_size": self.block} if self.block else {})
        tensors = [numpy_helper.from_array(np.asarray(a), n) for n, (a, _) in weights.items()]
        for tensor, (_, code) in zip(tensors, weights.values(), strict=True):
            assert tensor.data_type == code
        return [helper.make_node("DequantizeLinear", list(weights), ["w"], **how)], tensors

    def model(self, readers: list[onnx.NodeProto], inputs: dict[str, tuple[Any, list[Any]]]) -> onnx.ModelProto:
        nodes, tensors = self.nodes()
        made = support.make_model([*nodes, *readers], inputs, {}, opset=25 if self.kind == "int2" else 21)
        made.graph.initializer.extend(tensors)
        return made


def agree(got: np.ndarray, a: np.ndarray, real: np.ndarray) -> None:
    exact = a.astype(np.float64) @ real
    bound = np.abs(a).astype(np.float64) @ np.abs(real) * 2e-6 + 1e-6
    if got.dtype == F16:
        bound = bound + 2.0**-11 * np.abs(exact)
    assert got.shape == exact.shape
    assert (np.abs(got - exact) <= bound).all(), (np.abs(got - exact) / bound).max()


def bytes_of_weights(program: Any) -> int:
    """Of the largest one."""
    return max(value.dtype.nbytes(math.prod(value.shape)) for value in program.values if value.weight >= 0)


@pytest.mark.costly
@pytest.mark.parametrize("dtype", [F32, F16])
@pytest.mark.parametrize(("how", "axis"), [("tensor", 0), ("axis", 0), ("axis", 1), ("block", 0), ("block", 1)])
@pytest.mark.parametrize("kind", ["int4", "int8", "uint4"])
def test_products(kind: str, how: str, axis: int, dtype: Any) -> None:
    """One kernel, in which the weights are what they were; few rows and many, turned and not, tails of both axes."""
    for turned, rows, (k, n) in ((0, 1, (288, 64)), (0, 5, (50, 33)), (1, 2, (288, 40)), (1, 37, (64, 30))):
        case = Case(kind, (n, k) if turned else (k, n), how, axis, zero=how != "tensor", dtype=dtype)
        reader = helper.make_node("Gemm", ["a", "w"], ["y"], transB=turned)
        program = support.compile_model(case.model([reader], {"a": (dtype, [rows, k])}))
        a = np.random.default_rng(1).standard_normal((rows, k)).astype(dtype)
        agree(support.Runner(program)(a)[0], a, case.real.T if turned else case.real)
        assert len(program.dispatches) == 1
        assert bytes_of_weights(program) <= max(case.q.size * int(kind[-1]) // 8, case.scale.nbytes)


@pytest.mark.costly
def test_weights_of_two_bits() -> None:
    case = Case("int2", (288, 64), "axis", 1, zero=True)
    model = case.model([helper.make_node("MatMul", ["a", "w"], ["y"])], {"a": (F32, [3, 288])})
    a = np.random.default_rng(1).standard_normal((3, 288)).astype(F32)
    agree(support.run_model(model, a)[0], a, case.real)


@pytest.mark.costly
def test_a_number_of_rows_that_is_known_in_a_run() -> None:
    case = Case("int4", (288, 64), "block", 0, zero=True, dtype=F16)
    model = case.model([helper.make_node("MatMul", ["a", "w"], ["y"])], {"a": (F16, ["batch", "rows", 288])})
    runner = support.Runner(support.compile_model(model))
    for shape in ((1, 1, 288), (1, 9, 288), (2, 70, 288), (0, 3, 288)):
        a = np.random.default_rng(1).standard_normal(shape).astype(F16)
        agree(runner(a)[0], a, case.real)


@pytest.mark.costly
@pytest.mark.parametrize("kind", ["int4", "uint8"])
def test_an_embedding_that_is_the_last_product_too(kind: str) -> None:
    """Each reader dequantises for itself: the table is in memory once, packed."""
    case = Case(kind, (96, 64), "block", 1, zero=True)
    readers = [
        helper.make_node("Gather", ["w", "ids"], ["x"]),
        helper.make_node("Transpose", ["w"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "turned"], ["y"]),
    ]
    program = support.compile_model(case.model(readers, {"ids": (np.int64, [1, "length"])}))
    assert bytes_of_weights(program) == 96 * 64 * int(kind[-1]) // 8
    assert len([value for value in program.values if value.weight >= 0]) == 3
    ids = np.array([[3, 95, 0, 17, 3]])
    (y,) = support.Runner(program)(ids)
    agree(y, case.real[ids].astype(F32), case.real.T)
    assert len(program.dispatches) == 2


def test_special_scales_and_activations() -> None:
    case = Case("int8", (288, 16), "axis", 1, zero=False)
    case.scale[3], case.scale[5] = np.inf, np.nan
    model = case.model([helper.make_node("MatMul", ["a", "w"], ["y"])], {"a": (F32, [2, 288])})
    a = np.ones((2, 288), F32)
    a[1, 7] = np.nan
    (y,) = support.run_model(model, a)
    assert np.isnan(y[1]).all()
    assert np.isnan(y[0, 5])
    assert not np.isfinite(y[0, 3])
    others = [n for n in range(16) if n not in (3, 5)]
    agree(y[:1, others], a[:1], case.real[:, others])
