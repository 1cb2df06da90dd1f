"""One node, run by our compiler and by ONNX Runtime's CPU provider (or, for types it lacks, onnx's evaluator)."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests import feeding, support
from tests.provider import exact, saturates

OPSET = 20
SPECIAL = np.array(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        3.7,
        -3.7,
        1e-6,
        -1e-6,
        1e-3,
        30.25,
        -30.25,
        87.5,
        -87.5,
        1e9,
        -1e9,
        3e38,
        -3e38,
        np.inf,
        -np.inf,
        np.nan,
    ],
    np.float32,
)
"""Floats where functions and their implementations differ."""


def both_ways(types: Sequence[Any]) -> list[Any]:
    """Parameters (type, how 64-bit integers are calculated): both ways for types that have them."""
    wide = [t for t in types if np.dtype(t) in (np.int64, np.uint64)]
    ways = [(t, "native") for t in types] + [(t, "pair") for t in wide]
    return [pytest.param(t, way, id=f"{np.dtype(t).name}-{way}") for t, way in ways]


def random(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    """Numbers of any type, spread over a range where results stay finite."""
    generator = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    if kind == "b":
        return generator.integers(0, 2, shape).astype(bool)
    if kind in "iu":
        limits = np.iinfo(dtype)
        return generator.integers(max(limits.min, -100), min(limits.max, 100), shape, dtype)
    return generator.standard_normal(shape).astype(dtype)


def model(
    op: str,
    arrays: Sequence[np.ndarray | None],
    *,
    outputs: Sequence[Any] = (),
    opset: int = OPSET,
    symbolic: bool = False,
    constants: Sequence[int] = (),
    domain: str = "",
    version: int = 1,
    **attributes: Any,
) -> onnx.ModelProto:
    """A graph of one node. `outputs` are numpy types, by default that of the first input; `constants` are the inputs that
    are initializers; `version` is that of another domain; with `symbolic` no dimension of the others is known when the model is
    compiled."""
    names = [f"x{k}" if a is not None else "" for k, a in enumerate(arrays)]
    results = list(outputs) or [arrays[0].dtype]
    node = helper.make_node(op, names, [f"y{k}" for k in range(len(results))], domain=domain, **attributes)
    inputs, weights = [], []
    for k, (name, array) in enumerate(zip(names, arrays, strict=True)):
        if array is None:
            continue
        if k in constants:
            weights.append(onnx.numpy_helper.from_array(array, name))
        else:
            shape = [f"{name}_{axis}" for axis in range(array.ndim)] if symbolic else array.shape
            inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape))
    values = [
        helper.make_tensor_value_info(f"y{k}", helper.np_dtype_to_tensor_dtype(np.dtype(d)), None)
        for k, d in enumerate(results)
    ]
    graph = helper.make_graph([node], op, inputs, values, weights)
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, version)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _multiplies_bytes(built: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> bool:
    """Whether two operands are bytes, and signed ones are among them: of more than one axis, or the first one."""
    operands = feeds | {it.name: numpy_helper.to_array(it) for it in built.graph.initializer}
    kinds = [str(it.dtype) for name, it in operands.items() if it.ndim > (name != "x0") and it.dtype.itemsize == 1]
    return len(kinds) > 1 and "int8" in kinds


def expected(built: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What the CPU provider gives; onnx's evaluator where it has no kernel for the types."""
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    if _multiplies_bytes(built, feeds) and saturates():
        if {it.op_type for it in built.graph.node} <= {"MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv"}:
            with contextlib.suppress(ValueError):  # of scales of a convolution of one axis
                return [np.asarray(r) for r in ReferenceEvaluator(built).run(None, feeds)]
        pytest.skip("the CPU provider's products of bytes are not exact on this processor")
    try:
        session = ort.InferenceSession(built.SerializeToString(), exact(settings), providers=["CPUExecutionProvider"])
    except Exception as error:
        if "NOT_IMPLEMENTED" not in str(error) and "invalid" not in str(error).lower():
            raise
        with np.errstate(all="ignore"):
            return [np.asarray(r) for r in ReferenceEvaluator(built).run(None, feeds)]
    return [np.asarray(r) for r in feeding.run(session, feeds)]


def check_model(
    built: onnx.ModelProto,
    arrays: Sequence[np.ndarray | None],
    *,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    int64: str | None = None,
    want: Sequence[np.ndarray] | None = None,
) -> list[np.ndarray]:
    """Runs both and compares results, also their types, shapes, NaN and infinities; returns ours."""
    names = {v.name for v in built.graph.input}
    feeds = {f"x{k}": a for k, a in enumerate(arrays) if f"x{k}" in names and a is not None}
    if want is None:
        want = expected(built, feeds)
    got = support.run_model(built, *feeds.values(), int64=int64)
    for ours, theirs in zip(got, want, strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        if ours.dtype.kind != "f":
            np.testing.assert_array_equal(ours, theirs)
        else:
            wider = 200 if ours.dtype == np.float16 else 1
            np.testing.assert_allclose(
                ours.astype(np.float64), theirs.astype(np.float64), rtol=rtol * wider, atol=atol * wider, equal_nan=True
            )
    return got


def check(
    op: str,
    *arrays: np.ndarray | None,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    int64: str | None = None,
    want: Sequence[np.ndarray] | None = None,
    **how: Any,
) -> list[np.ndarray]:
    """`check_model` of one node; `how` are attributes and the options of `model`."""
    return check_model(model(op, arrays, **how), arrays, rtol=rtol, atol=atol, int64=int64, want=want)
