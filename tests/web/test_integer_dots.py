"""Pages multiply bytes where the adapter does it in one instruction and the model lets rows be rounded: such an export has Programs
for it, which give on Dawn what they give natively."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnxruntime_ep_wgpu.api.web_export import LARGE, _dotted, export
from onnxruntime_ep_wgpu.compiler.tune import use
from onnxruntime_ep_wgpu.compiler.tune.products import DotTile
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.program.target import INTEGER_DOTS, Target
from onnxruntime_ep_wgpu.program.tuning import Choice
from tests.compiler.test_rounded_rows import rounded
from tests.ops.test_blocks import Weights, activations
from tests.support import compile_model

from . import node

F = np.float32
TILE = (use(DotTile(64, 64, 8, 4)),)  # shipped ones are for more rows
CASES: dict[str, tuple[Weights, int, int, tuple[Choice, ...]]] = {
    "one_row": (Weights(256, 33, 4, 32, "", F, bias=True), 1, 8, ()),
    "a_tile": (Weights(128, 130, 4, 32, "packed", F), 131, 32, TILE),
}
"""Weights, rows, how many neighbours in a row are rounded together, and a choice of kernels."""


def made(weights: Weights, target: Target, level: int = 4) -> Program:
    return compile_model(weights.model(["rows", weights.k], accuracy_level=level), target)


def has_dots(program: Program) -> bool:
    return any("dot4I8Packed" in text for kernel in program.kernels for text in kernel.wgsl)


@pytest.mark.costly
@pytest.mark.parametrize("name", ["one_row", pytest.param("a_tile", marks=pytest.mark.exhaustive)])
def test_a_page_multiplies_bytes(name: str, tmp_path: Path) -> None:
    """SwiftShader has the instructions, slowly, and no workgroups of more than 256 invocations."""
    weights, rows, run, tuning = CASES[name]
    program = made(weights, _dotted(replace(LARGE, max_invocations=256, tuning=tuning)))
    assert has_dots(program) and not has_dots(made(weights, LARGE))
    here = replace(program.target, features=program.target.features - {INTEGER_DOTS})
    a = activations(rows, weights.k, dtype=F)
    found: Any = node.run([node.Case(name, replace(program, target=here), (a,))], tmp_path)[name]
    assert not isinstance(found, str), found
    arrays = weights.arrays()
    near = rounded(a, run)
    want = near @ arrays["real"] + arrays.get("c", np.zeros(weights.n))
    scale = np.abs(near) @ np.abs(arrays["real"])
    assert (np.abs(found[0] - want) <= 2e-5 * scale).all()
    exact = a.astype(np.float64) @ arrays["real"] + arrays.get("c", np.zeros(weights.n))
    error = np.sqrt(np.square(found[0] - exact).mean() / np.square(exact).mean())
    assert 1e-4 < error < 1e-2


@pytest.mark.parametrize("level", [0, 4])
def test_exports_have_them_where_rows_may_be_rounded(level: int, tmp_path: Path) -> None:
    weights, *_ = CASES["one_row"]
    onnx.save(weights.model(["rows", weights.k], accuracy_level=level), tmp_path / "m.onnx")
    found = export(tmp_path / "m.onnx")
    dotted = [it for it in found.targets if "dots" in it]
    assert bool(dotted) == (level == 4)
    manifest = json.loads((found.path / "manifest.json").read_text())
    (on_gpu,) = (it for it in manifest["programs"] if "software" not in it["file"])
    assert len(on_gpu["targets"]) == len(found.targets) - 1
    features = {it.get("name", ""): set(it.get("features", ())) for it in on_gpu["targets"]}
    assert all((INTEGER_DOTS in features[name]) == ("dots" in name) for name in features)
    # Tried before those that need less.
    assert found.targets[1 : 1 + len(dotted)] == tuple(dotted)
