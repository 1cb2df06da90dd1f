"""Quantised embeddings and weights that are looked up in a table, beside the CPU provider in float32."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from onnxruntime_ep_wgpu.errors import UnsupportedError
from tests import support
from tests.ops.compare import expected, random
from tests.ops.test_blocks import as_inputs, packed

MICROSOFT = "com.microsoft"
F32, F16 = np.float32, np.float16


def build(
    op: str, feeds: dict[str, np.ndarray], weights: dict[str, np.ndarray], order: Sequence[str], dtype: Any, **how: Any
) -> onnx.ModelProto:
    names = [n if n in feeds or n in weights else "" for n in order]
    while not names[-1]:
        names.pop()
    kind = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], domain=MICROSOFT, **how)],
        op,
        [helper.make_tensor_value_info(n, kind(a.dtype), [f"{n}{k}" for k in range(a.ndim)]) for n, a in feeds.items()],
        [helper.make_tensor_value_info("y", kind(np.dtype(dtype)), None)],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


# ---- GatherBlockQuantized

GATHER = ("data", "indices", "scales", "zeros")


def gather_case(bits: int, kind: str, zeros: bool, dtype: Any, axis: int = 1) -> dict[str, np.ndarray]:
    """A table of 13 rows of 48 columns, or turned, in blocks of 16 along `axis`."""
    rng = np.random.default_rng(bits)
    shape = (13, 48) if axis == 1 else (48, 13)
    blocks = tuple(d // 16 if k == axis else d for k, d in enumerate(shape))
    low = -(1 << bits - 1) if kind == "int4" else 0
    q, z = (rng.integers(low, low + (1 << bits), s) for s in (shape, blocks))
    stored: Any = {"int4": ml_dtypes.int4, "uint4": ml_dtypes.uint4}.get(kind)
    pack = (lambda v: packed(v, bits)) if kind == "uint8" else (lambda v: v.astype(stored))
    out = {"data": pack(q), "scales": (rng.standard_normal(blocks) * 0.1).astype(dtype)}
    return out | ({"zeros": pack(z)} if zeros else {})


@pytest.mark.costly
@pytest.mark.parametrize("dtype", [F32, F16])
@pytest.mark.parametrize(("kind", "bits"), [("uint8", 2), ("uint8", 4), ("uint8", 8), ("int4", 4), ("uint4", 4)])
def test_rows_of_a_quantised_table(kind: str, bits: int, dtype: Any) -> None:
    for zeros, index in itertools.product((False, True), (np.int32, np.int64)):
        weights = gather_case(bits, kind, zeros, dtype)
        ids = np.array([[0, 12, 5], [-1, -13, 5]], index)
        how = {"block_size": 16, "bits": bits, "gather_axis": 0, "quantize_axis": 1}
        model = build("GatherBlockQuantized", {"indices": ids}, weights, GATHER, dtype, **how)
        (want,) = expected(model, {"indices": ids})
        (y,) = support.run_model(model, ids)
        assert y.dtype == dtype
        np.testing.assert_allclose(y, want, rtol=1e-3 if dtype is F16 else 1e-6, atol=1e-7)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_a_table_that_is_an_input(bits: int, zeros: bool) -> None:
    ids = np.array([[0, 12, 5], [-1, -13, 5]])
    how = {"block_size": 16, "bits": bits, "gather_axis": 0, "quantize_axis": 1}
    model = build("GatherBlockQuantized", {"indices": ids}, gather_case(bits, "uint8", zeros, F32), GATHER, F32, **how)
    (want,) = expected(model, {"indices": ids})
    weights = as_inputs(model, True)
    np.testing.assert_allclose(support.run_model(model, ids, *weights)[0], want, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("axes", [(1, 0), (1, 1), (0, 0)])
def test_axes(axes: tuple[int, int]) -> None:
    gather, quantize = axes
    weights = gather_case(4, "int4", True, F32, axis=quantize)
    ids = np.array([3, -2, 0])
    how = {"block_size": 16, "gather_axis": gather, "quantize_axis": quantize}
    model = build("GatherBlockQuantized", {"indices": ids}, weights, GATHER, F32, **how)
    (want,) = expected(model, {"indices": ids})
    np.testing.assert_allclose(support.run_model(model, ids)[0], want, rtol=1e-6)


@pytest.mark.costly
@pytest.mark.parametrize("block", [0, 16])
def test_small_floats(block: int) -> None:
    rng = np.random.default_rng(0)
    data = rng.standard_normal((7, 32)).astype(ml_dtypes.float8_e4m3fn)
    ids = np.array([6, 0, 3])
    for rows in (7, 1):
        scales = rng.random((rows, 2 if block else 1)).astype(F32)
        how = {"block_size": block, "gather_axis": 0, "quantize_axis": 1}
        model = build("GatherBlockQuantized", {"indices": ids}, {"data": data, "scales": scales}, GATHER, F32, **how)
        want = (data.astype(F32) * np.repeat(scales, 32 // scales.shape[1], 1))[ids]
        np.testing.assert_allclose(support.run_model(model, ids)[0], want, rtol=1e-6)


def test_an_index_outside_gives_zeros() -> None:
    weights = gather_case(4, "uint8", True, F32)
    model = build("GatherBlockQuantized", {"indices": np.zeros(1, np.int64)}, weights, GATHER, F32, block_size=16)
    runner = support.Runner(support.compile_model(model))
    (inside,) = runner(np.array([2]))
    assert np.abs(inside).max() > 0
    for index in (13, -14, 1 << 40, -(1 << 40)):
        (y,) = runner(np.array([2, index]))
        np.testing.assert_array_equal(y[0], inside[0])
        np.testing.assert_array_equal(y[1], 0)


@pytest.mark.costly
def test_the_table_stays_packed() -> None:
    weights = gather_case(4, "uint8", True, F32)
    model = build("GatherBlockQuantized", {"indices": np.zeros(1, np.int64)}, weights, GATHER, F32, block_size=16)
    program = support.compile_model(model)
    assert len(program.dispatches) == 1
    assert all(value.storage.name != "TEMP" for value in program.values)


# ---- MatMulBnb4


@pytest.mark.costly
@pytest.mark.parametrize("dtype", [F32, F16])
@pytest.mark.parametrize("kind", [0, 1])
def test_weights_out_of_a_table(kind: int, dtype: Any) -> None:
    """Blocks cross rows where k is not a multiple of them."""
    for turned, (k, n, block) in itertools.product((0, 1), ((64, 10, 16), (50, 9, 32), (33, 7, 16))):
        rng = np.random.default_rng(k)
        weights = {
            "b": rng.integers(0, 256, (n * k + 1) // 2, np.uint8),
            "s": rng.random(-(-n * k // block)).astype(dtype),
        }
        how = {"K": k, "N": n, "block_size": block, "quant_type": kind, "transB": turned}
        a = random(3, k if turned else n, dtype=dtype)
        exact = {"a": a.astype(F32)}
        model = build("MatMulBnb4", exact, {**weights, "s": weights["s"].astype(F32)}, ("a", "b", "s"), F32, **how)
        if turned:
            (want,) = expected(model, exact)
        else:  # which the CPU provider lacks: its own weights, out of the identity
            how["transB"] = 1
            unit = {"a": np.eye(k, dtype=F32)}
            other = build("MatMulBnb4", unit, {**weights, "s": weights["s"].astype(F32)}, ("a", "b", "s"), F32, **how)
            want = exact["a"] @ expected(other, unit)[0].T
            how["transB"] = 0
        (y,) = support.run_model(build("MatMulBnb4", {"a": a}, weights, ("a", "b", "s"), dtype, **how), a)
        tolerance = 2e-3 if dtype is F16 else 1e-5
        np.testing.assert_allclose(y, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("op", "changed", "message"),
    [
        ("GatherBlockQuantized", {"scales": np.zeros((13, 2), F32)}, r"scales float32\[13, 2\] for data uint4\[13, 48\] in blocks"),
        ("GatherBlockQuantized", {"scales": np.zeros(39, F32)}, r"scales float32\[39\] for data .* one per block .*\[13, 3\]"),
        ("GatherBlockQuantized", {"block_size": 24}, "block_size 24: a power of two"),
        ("GatherBlockQuantized", {"bits": 3}, "bits 3: bytes hold numbers of 2, 4 or 8 bits"),
        ("MatMulBnb4", {"quant_type": 2}, "quant_type 2 is not supported: 0 is FP4"),
        ("MatMulBnb4", {"s": np.zeros(3, F32)}, r"absmax float32\[3\] does not have one number for each of 4 blocks"),
        ("MatMulBnb4", {"b": np.zeros(30, np.uint8)}, r"B uint8\[30\] does not have the 32 bytes"),
    ],
)  # fmt: skip
def test_errors_name_the_input_and_the_value(op: str, changed: dict[str, Any], message: str) -> None:
    if op == "MatMulBnb4":
        weights = {"b": np.zeros(32, np.uint8), "s": np.zeros(4, F32)}
        how: dict[str, Any] = {"K": 16, "N": 4, "block_size": 16, "quant_type": 0}
        feeds, order = {"a": random(2, 16)}, ("a", "b", "s")
    else:
        weights = gather_case(4, "uint8", False, F32)
        how, feeds, order = {"block_size": 16, "bits": 4}, {"indices": np.zeros(1, np.int64)}, GATHER  # type: ignore[assignment]
    weights |= {n: v for n, v in changed.items() if isinstance(v, np.ndarray)}
    how |= {n: v for n, v in changed.items() if isinstance(v, int)}
    with pytest.raises(UnsupportedError, match=message):
        support.compile_model(build(op, feeds, weights, order, F32, **how))
