"""Every operator that calculates with floats takes them in 16 bits too, where ONNX allows it.

The f32 cases of the ONNX node suite are run in f16 and bf16. What is right is the CPU provider's f32 result on the same
rounded inputs, rounded once (or the onnx evaluator's, for what the CPU provider does not run). The fast part takes the
first case of every operator, the exhaustive one all.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, defs, helper
from onnx.reference import ReferenceEvaluator

from onnxruntime_ep_wgpu.compiler.graph.schemas import schema_of
from onnxruntime_ep_wgpu.compiler.lower import ops
from onnxruntime_ep_wgpu.compiler.lower.lower import attempt
from onnxruntime_ep_wgpu.compiler.lower.ops import registry
from onnxruntime_ep_wgpu.program.dtypes import DType
from tests import halves, support
from tests.conformance import cases, scope
from tests.conformance.compare import to_value

from . import compare

ROUNDINGS = 2
"""Errors are counted in units of the last place of the largest element: one for the result, one for a value between."""

DISPUTED = {"test_maxunpool_export_with_output_shape": "the CPU provider takes the positions as of the smaller result"}
"""Cases whose result the CPU provider does not give."""
EVALUATED = {
    "test_cast_no_saturate_FLOAT_to_FLOAT8E5M2": "the CPU provider makes NaN of what rounds to infinity, as 65504"
}
"""Cases whose result onnx's evaluator gives, and why."""


def _name(half: int) -> str:
    return TensorProto.DataType.Name(half).lower()


@functools.cache
def _in_halves(case: str, half: int) -> onnx.ModelProto | None:
    """The f32 case in halves; None where the schemas do not allow it."""
    model = halves.retyped(onnx.load_model_from_string(cases.read(case).model), TensorProto.FLOAT, half)
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return None
    return onnx.shape_inference.infer_shapes(model)


def _cases() -> list[Any]:
    chosen = []
    seen: set[str] = set()
    for case in cases.index().values():
        if (
            "float" not in case.types
            or not scope.in_scope(case)
            or case.expanded
            or cases.is_random(case.name, case.nodes)
        ):
            continue
        first = case.operator not in seen
        seen.add(case.operator)
        marks = [] if first else [pytest.mark.exhaustive]
        chosen += [
            pytest.param(case.name, half, marks=marks, id=f"{case.name.removeprefix('test_')}-{_name(half)}")
            for half in halves.HALVES
        ]
    return chosen


def _truth(case: str, model: onnx.ModelProto, arrays: list[np.ndarray]) -> list[np.ndarray]:
    wide = halves.widened(model)
    feeds = {
        value.name: functools.reduce(lambda a, h: halves.as_type(a, h, TensorProto.FLOAT), halves.HALVES, array)
        for value, array in zip(wide.graph.input, arrays, strict=True)
    }
    if case not in EVALUATED:
        with contextlib.suppress(Exception):  # it lacks some attributes and the newest versions
            return compare.expected(wide, feeds)
    return [np.asarray(r) for r in ReferenceEvaluator(wide).run(None, feeds)]


@pytest.mark.parametrize(("case", "half"), _cases())
def test_a_case_of_the_node_suite_in_halves(case: str, half: int) -> None:
    if case in DISPUTED:
        pytest.skip(DISPUTED[case])
    model = _in_halves(case, half)
    if model is None:
        pytest.skip(f"its schema does not allow {_name(half)}")
    module = ir.from_proto(model)
    refused = [r for r in attempt(module.graph, module.opset_imports, support.target()).reasons if r]
    assert not any("of type" in r for r in refused), refused
    if refused:
        pytest.skip(refused[0])
    arrays = [halves.as_type(to_value(value), TensorProto.FLOAT, half) for value in cases.read(case).inputs]
    for got, want in zip(support.run_model(model, *arrays), _truth(case, model, arrays), strict=False):
        assert got.shape == want.shape
        if got.dtype not in (np.float16, ml_dtypes.bfloat16):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
            continue
        rounded = want.astype(got.dtype).astype(np.float64)
        finite = np.isfinite(rounded)
        np.testing.assert_array_equal(got.astype(np.float64)[~finite], rounded[~finite])
        unit = float(ml_dtypes.finfo(got.dtype).eps) * float(np.abs(rounded[finite]).max(initial=1e-3))
        assert np.abs(got.astype(np.float64) - rounded)[finite].max(initial=0) <= ROUNDINGS * unit


def test_every_operator_that_takes_f16_takes_bf16_where_its_schema_allows_it() -> None:
    ops.load()
    newest = defs.onnx_opset_version()
    for (domain, name), versions in registry._OPERATORS.items():
        schema = schema_of(name, domain, newest)
        for entry in versions if schema is not None else ():
            taken = [entry.types[n] for n in entry.operands] + ([entry.types[entry.variadic]] if entry.variadic else [])
            for formal, types in zip(schema.inputs, taken, strict=False):
                if DType.FLOAT16 in types and "tensor(bfloat16)" in formal.types:
                    assert DType.BFLOAT16 in types, (name, formal.name)


# ---- storage and casts


SPECIAL = np.concatenate(
    [compare.SPECIAL, np.float32([65519, 65520, 3.39e38, 3.4e38, 1e-40, 6e-8, 1 + 2**-8, 1 + 3 * 2**-8])]
)
INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
BF16 = np.dtype(ml_dtypes.bfloat16)


def _cast(x: np.ndarray, to: Any, **how: Any) -> np.ndarray:
    code = helper.np_dtype_to_tensor_dtype(np.dtype(to))
    return support.run_model(compare.model("Cast", [x], outputs=[to], opset=21, to=code), x, **how)[0]


def _bits(x: np.ndarray) -> np.ndarray:
    return x.view(np.uint16)


@pytest.mark.parametrize("count", [1, 2, 7, 130])
def test_a_cast_to_bfloat16_rounds_to_nearest_even(count: int) -> None:
    x = np.resize(SPECIAL, count) if count < SPECIAL.size else compare.random(count) * 1e3
    got, want = _cast(x, BF16), x.astype(BF16)
    nan = np.isnan(want.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), nan)
    np.testing.assert_array_equal(_bits(got)[~nan], _bits(want)[~nan])


def test_every_bfloat16_survives_a_cast_to_float32_and_back() -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(BF16)
    wide = _cast(x, np.float32)
    normal = (_bits(x) & 0x7F80) != 0  # a device may flush numbers below the normal ones
    nan = np.isnan(x.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(wide), nan)
    np.testing.assert_array_equal(wide[normal & ~nan], x.astype(np.float32)[normal & ~nan])
    np.testing.assert_array_equal(_bits(_cast(wide, BF16))[normal & ~nan], _bits(x)[normal & ~nan])


@pytest.mark.parametrize(
    ("dtype", "int64"), [*[(t, "native") for t in INTEGERS], (np.int64, "pair"), (np.uint64, "pair")]
)
def test_casts_between_bfloat16_and_integers(dtype: Any, int64: str) -> None:
    x = compare.random(37, dtype=dtype)
    np.testing.assert_array_equal(
        _cast(x, BF16, int64=int64).astype(np.float32), x.astype(np.float32).astype(BF16).astype(np.float32)
    )
    whole = np.abs(compare.random(37) * 20).astype(BF16)
    np.testing.assert_array_equal(_cast(whole, dtype, int64=int64), whole.astype(np.float32).astype(dtype))


def test_casts_between_bfloat16_and_float16_and_bool() -> None:
    x = compare.random(99, dtype=np.float16) * np.float16(100)
    np.testing.assert_array_equal(_bits(_cast(x, BF16)), _bits(x.astype(np.float32).astype(BF16)))
    y = (compare.random(99) * 100).astype(BF16)
    np.testing.assert_array_equal(_bits(_cast(y, np.float16)), _bits(y.astype(np.float32).astype(np.float16)))
    np.testing.assert_array_equal(_cast(np.array([0, 1, -2, np.nan], BF16), bool), [False, True, True, True])
    np.testing.assert_array_equal(_cast(np.array([True, False]), BF16).astype(np.float32), [1, 0])


def test_a_cast_to_halves_rounds_inside_a_fused_chain() -> None:
    x = compare.random(1000) * 7
    for half in halves.HALVES:
        nodes = [
            helper.make_node("Cast", ["x"], ["h"], to=half),
            helper.make_node("Cast", ["h"], ["y"], to=TensorProto.FLOAT),
        ]
        model = support.make_model(nodes, {"x": (np.float32, [1000])})
        want = x.astype(helper.tensor_dtype_to_np_dtype(half)).astype(np.float32)
        np.testing.assert_array_equal(support.run_model(model, x)[0], want)


# ---- through onnxruntime
