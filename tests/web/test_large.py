"""Programs for adapters with larger workgroups give what the one for all gives, natively, and on Dawn where its adapter can."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as make

from onnxruntime_ep_wgpu.api.web_export import LARGE, _distinct, export
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.program.target import WEB_BASELINE, lack
from tests import targets
from tests.support import Runner, compile_model, make_model

from . import node

F = np.float32
Made = tuple[onnx.ModelProto, tuple[Any, ...]]
RNG = np.random.default_rng(7)


def _array(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(F) / 4


def _product(m: int, k: int, n: int) -> Made:
    """Rows with NaN and infinity."""
    x = _array(m, k)
    x[0, -1], x[-1, 0] = np.nan, np.inf
    return make_model([make("MatMul", ["x", "w"], ["y"])], {"x": (F, ["m", k])}, {"w": _array(k, n)}), (x,)


def _convolution(channels: int, kernels: int, size: int) -> Made:
    nodes = [make("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), make("Relu", ["c"], ["y"])]
    weights = {"w": _array(kernels, channels, 3, 3)}
    return make_model(nodes, {"x": (F, [1, channels, size, size])}, weights), (_array(1, channels, size, size),)


def _state(hidden: int) -> Made:
    """A state that takes more invocations than 256."""
    nodes = [make("LSTM", ["x", "w", "r"], ["y"], hidden_size=hidden)]
    weights = {"w": _array(1, 4 * hidden, 5), "r": _array(1, 4 * hidden, hidden)}
    return make_model(nodes, {"x": (F, [3, 2, 5])}, weights), (_array(3, 2, 5),)


CASES: dict[str, Callable[[], Made]] = {
    "one_row": lambda: _product(1, 1030, 515),
    "three_rows": lambda: _product(3, 515, 130),
    "a_large_tile": lambda: _product(257, 67, 1031),
    "a_convolution": lambda: _convolution(24, 130, 19),
    "no_rows": lambda: (_product(1, 130, 70)[0], (np.zeros((0, 130), F),)),
    "a_state": lambda: _state(300),
}
WAYS = ["one_row", "a_large_tile"]
NAMES = [pytest.param(name, marks=() if name in WAYS else pytest.mark.exhaustive) for name in CASES]


def narrowed(model: onnx.ModelProto) -> Program:
    """The Program for larger workgroups, as an export has it: it needs those that its kernels have."""
    (program,) = _distinct([compile_model(model, LARGE)])
    assert isinstance(program, Program)
    return program


@pytest.mark.costly
@pytest.mark.parametrize("name", NAMES)
def test_results_are_those_of_the_program_for_all(name: str) -> None:
    model, arrays = CASES[name]()
    program = narrowed(model)
    here = targets.device(targets.Way("gpu")).target
    if problem := lack(program.target, here):
        pytest.skip(problem)
    for one, other in zip(Runner(program)(*arrays), Runner(compile_model(model, WEB_BASELINE))(*arrays), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.costly
def test_a_page_runs_them_on_an_adapter_that_offers_as_much(tmp_path: Path) -> None:
    """SwiftShader has twice the memory of a workgroup, and no larger ones: of the kernels those for many rows."""
    model, arrays = CASES["a_large_tile"]()
    program = narrowed(model)
    small = replace(program.target, max_invocations=256)
    found = node.run([node.Case("tile", replace(program, target=small), arrays)], tmp_path)["tile"]
    assert not isinstance(found, str), found
    (wanted,) = Runner(compile_model(model, WEB_BASELINE))(*arrays)
    np.testing.assert_allclose(found[0], wanted, rtol=2e-5, atol=2e-5)


def test_they_need_workgroups_as_large_as_their_own() -> None:
    program = narrowed(CASES["one_row"]()[0])
    texts = [text for kernel in program.kernels for text in kernel.wgsl]
    assert any("@workgroup_size(512)" in text for text in texts) and program.target.max_invocations == 512
    assert program.target.max_workgroup_storage == LARGE.max_workgroup_storage


def test_kernels_that_are_the_same_are_there_once(tmp_path: Path) -> None:
    pointwise = make_model([make("Exp", ["x"], ["y"])], {"x": (F, ["n", 4])})
    onnx.save(pointwise, tmp_path / "exp.onnx")
    assert not any("large" in name for name in export(tmp_path / "exp.onnx").targets)
    onnx.save(CASES["one_row"]()[0], tmp_path / "m.onnx")
    found = export(tmp_path / "m.onnx")
    # One row is summed by subgroups, where the adapter has them.
    assert [it for it in found.targets if "large" in it] == ["web-large-subgroups", "web-large"]
    manifest = json.loads((found.path / "manifest.json").read_text())
    (on_gpu,) = (it for it in manifest["programs"] if "software" not in it["file"])
    assert len(on_gpu["targets"]) == len(found.targets) - 1
    assert next(it for it in on_gpu["targets"] if it.get("name") == "web-large") == {
        "name": "web-large",
        "max_invocations": 512,
        "max_workgroup_storage": 32 << 10,
    }
