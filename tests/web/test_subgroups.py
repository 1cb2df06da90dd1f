"""Programs for adapters with subgroups, run by the web runtime on Dawn or natively, give what the one for all gives in Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as make

from onnxruntime_ep_wgpu.api.web_export import REDUCING
from onnxruntime_ep_wgpu.compiler.tune import use
from onnxruntime_ep_wgpu.compiler.tune.products import PackedRows, RowProduct
from onnxruntime_ep_wgpu.program.target import SUBGROUP, WEB_BASELINE
from tests import targets
from tests.support import Runner, compile_model, make_model

from . import node

F = np.float32
Made = tuple[onnx.ModelProto, tuple[Any, ...]]
RNG = np.random.default_rng(5)


def _rows(rows: int, columns: int) -> Any:
    """Rows with NaN, minus infinity and nothing else, zeros of both signs, and negative numbers alone."""
    x = RNG.normal(size=(rows, columns)).astype(F) * 3
    x[1, columns // 2], x[2], x[3, 0], x[4] = np.nan, np.abs(x[2]), -np.inf, -np.inf
    x[5, ::2], x[6] = -0.0, -np.abs(x[6])
    return x


def _zeros(name: str, columns: int) -> Made:
    """Rows of zeros: plus, minus, and both."""
    x = np.zeros((4, columns), F)
    x[1:] = -0.0
    x[2, 0], x[3, -1] = 0.0, 0.0
    return make_model([make(name, ["x"], ["y"], axes=[1])], {"x": (F, ["n", columns])}, opset=12), (x,)


def _assert_same_zeros(one: Any, other: Any) -> None:
    zero = (one == 0) & (other == 0)
    np.testing.assert_array_equal(np.signbit(one[zero]), np.signbit(other[zero]))


def _softmax(columns: int) -> Made:
    return make_model([make("Softmax", ["x"], ["y"])], {"x": (F, ["n", columns])}), (_rows(7, columns),)


def _norm(columns: int) -> Made:
    nodes = [make("LayerNormalization", ["x", "g", "b"], ["y"])]
    weights = {"g": RNG.normal(size=columns).astype(F), "b": RNG.normal(size=columns).astype(F)}
    return make_model(nodes, {"x": (F, ["n", columns])}, weights), (_rows(7, columns),)


def _range(columns: int) -> Made:
    nodes = [make("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])]
    return make_model(nodes, {"x": (F, [1, columns])}), (RNG.normal(size=(1, columns)).astype(F),)


def _packed(rows: int, k: int, n: int, bits: int = 4) -> Made:
    blocks = k // 32
    weights = {
        "w": RNG.integers(0, 256, (n, blocks, 32 * bits // 8), np.uint8),
        "s": RNG.uniform(0.5, 1.5, n * blocks).astype(F) / 16,
    }
    nodes = [make("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=32)]
    model = make_model(nodes, {"x": (F, ["m", k])}, weights)
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return model, (RNG.normal(size=(rows, k)).astype(F),)


def _reduce(name: str, columns: int, kind: Any = F) -> Made:
    x = _rows(7, columns) if kind is F else RNG.integers(-9, 9, (7, columns)).astype(kind)
    if name == "ReduceL2":
        x = RNG.normal(size=(7, columns)).astype(F)
    return make_model([make(name, ["x"], ["y"], axes=[1])], {"x": (kind, ["n", columns])}, opset=13), (x,)


def _best(name: str, columns: int, last: int) -> Made:
    """Rows in which the best is there many times, and rows that begin with NaN."""
    x = _rows(8, columns)
    x[0], x[7], x[5, 0] = RNG.integers(0, 4, columns), x[7, 0], np.nan
    return make_model([make(name, ["x"], ["y"], axis=1, select_last_index=last)], {"x": (F, ["n", columns])}), (x,)


def _few_rows(rows: int, k: int, n: int, transposed: int) -> Made:
    """A product of few rows by weights, which may lie transposed."""
    nodes = [make("Gemm", ["x", "w"], ["y"], transB=transposed)]
    weights = RNG.normal(size=(n, k) if transposed else (k, n)).astype(F) / 16
    model = make_model(nodes, {"x": (F, [rows, k])}, {"w": weights})
    return model, (RNG.normal(size=(rows, k)).astype(F),)


CASES: dict[str, Callable[[], Made]] = {
    **{f"softmax_{n}": lambda n=n: _softmax(n) for n in (33, 64, 100, 2050)},  # type: ignore[misc]
    **{f"norm_{n}": lambda n=n: _norm(n) for n in (40, 257, 3000)},  # type: ignore[misc]
    "range": lambda: _range(300),
    "packed_1": lambda: _packed(1, 1024, 20),
    "packed_3": lambda: _packed(3, 2048, 12),
    "packed_8_bits": lambda: _packed(2, 512, 9, 8),
    **{
        f"{name}_{n}": lambda name=name, n=n: _reduce(name, n)  # type: ignore[misc]
        for name in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2")
        for n in (33, 2050)
    },
    **{
        f"{name}_{n}_{last}": lambda name=name, n=n, last=last: _best(name, n, last)  # type: ignore[misc]
        for name, n, last in (("ArgMax", 100, 0), ("ArgMax", 2050, 1), ("ArgMin", 100, 1), ("ArgMin", 2050, 0))
    },
    **{
        f"zeros_{name}_{n}": lambda name=name, n=n: _zeros(name, n)  # type: ignore[misc]
        for name in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")
        for n in (33, 2050)
    },
    **{f"few_rows_{m}": lambda m=m: _few_rows(m, 520, 70, 1) for m in (1, 2, 4)},  # type: ignore[misc]
    **{f"few_rows_along_{m}": lambda m=m: _few_rows(m, 520, 70, 0) for m in (1, 2, 4)},  # type: ignore[misc]
}
FIRST = (
    "softmax_100",
    "norm_257",
    "range",
    "packed_1",
    "ReduceMax_33",
    "ArgMax_100_0",
    "few_rows_1",
    "few_rows_along_1",
    "zeros_ReduceMin_33",
    "zeros_ReduceSum_33",
)
NAMES = [pytest.param(name, marks=() if name in FIRST else pytest.mark.exhaustive) for name in CASES]


@pytest.mark.costly
@pytest.mark.parametrize("name", NAMES)
def test_results_are_those_of_the_program_for_all(name: str, tmp_path: Path) -> None:
    model, arrays = CASES[name]()
    program = compile_model(model, REDUCING)
    texts = [text for kernel in program.kernels for text in kernel.wgsl]
    assert any(text.startswith("enable subgroups;") for text in texts)
    found = node.run([node.Case(name, program, arrays)], tmp_path)[name]
    assert not isinstance(found, str), found
    wanted = Runner(compile_model(model, WEB_BASELINE))(*arrays)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)
        _assert_same_zeros(one, other)


@pytest.mark.costly
@pytest.mark.parametrize("name", NAMES)
def test_results_are_those_where_wgpu_says_which_subgroup_it_is(name: str) -> None:
    model, arrays = CASES[name]()
    here = targets.device(targets.Way("gpu")).target
    if SUBGROUP not in here.features:
        pytest.skip("the adapter has no subgroups")
    program = compile_model(model, here)
    texts = [text for kernel in program.kernels for text in kernel.wgsl]
    assert any("@builtin(subgroup_id)" in text for text in texts) and not any("enable" in text for text in texts)
    without = compile_model(model, replace(here, features=here.features - {SUBGROUP}))
    assert not any("subgroup_" in text for kernel in without.kernels for text in kernel.wgsl)
    for one, other in zip(Runner(program)(*arrays), Runner(without)(*arrays), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)
        _assert_same_zeros(one, other)


@pytest.mark.costly
@pytest.mark.parametrize("threads", [4, 16])
@pytest.mark.parametrize("name", ["packed_1", "few_rows_1"])
def test_a_workgroup_may_have_less_than_a_subgroup_of_the_adapter(name: str, threads: int) -> None:
    """lavapipe's have eight invocations."""
    model, arrays = CASES[name]()
    here = targets.device(targets.Way("gpu")).target
    if SUBGROUP not in here.features:
        pytest.skip("the adapter has no subgroups")
    chosen = replace(here, tuning=(use(RowProduct(1, 1, 1, threads)), use(PackedRows(1, threads, 1, 1, 1))))
    program = compile_model(model, chosen)
    assert any(f"WORKGROUP = {threads}u" in text for kernel in program.kernels for text in kernel.wgsl)
    for one, other in zip(Runner(program)(*arrays), Runner(compile_model(model, WEB_BASELINE))(*arrays), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


def test_kernels_that_share_no_rows_are_as_without() -> None:
    model, _ = _softmax(64)
    texts = [text for kernel in compile_model(model, WEB_BASELINE).kernels for text in kernel.wgsl]
    assert not any("subgroup" in text for text in texts)
    for other in (_reduce("ReduceMean", 64, np.int32), _reduce("ReduceProd", 64)):
        one, all_ = (compile_model(other[0], target).kernels for target in (REDUCING, WEB_BASELINE))
        assert one == all_
    pointwise = make_model([make("Exp", ["x"], ["y"])], {"x": (F, ["n", 4])})
    one, other = (compile_model(pointwise, target).kernels for target in (REDUCING, WEB_BASELINE))
    assert one == other
