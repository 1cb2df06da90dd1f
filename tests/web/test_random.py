"""Random numbers in the web runtime: those of the other hosts, run by run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx.helper import make_node

from onnxruntime_ep_wgpu.api.web_export import SOFTWARE
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.program.target import WEB_BASELINE, Target
from tests.ops import philox
from tests.support import compile_model, make_model

from . import node

COUNT, SEED = 1000, 2.5
X = np.zeros(COUNT, np.float32)


def program(op: str, target: Target, **how: Any) -> Program:
    nodes = [make_node(op, ["x"], ["r"], name="r", **how), make_node("Add", ["r", "x"], ["y"])]
    return compile_model(make_model(nodes, {"x": (np.float32, ["n"])}), target)


@pytest.mark.parametrize(
    "target", [WEB_BASELINE, pytest.param(SOFTWARE, marks=pytest.mark.exhaustive)], ids=["web", "software"]
)
def test_each_run_has_the_numbers_of_its_seed(target: Target, tmp_path: Path) -> None:
    programs = {op: program(op, target, seed=SEED) for op in ("RandomUniformLike", "RandomNormalLike")}
    found = node.run(
        [node.Case(f"{op}{runs}", it, (X,), runs) for op, it in programs.items() for runs in (1, 3)], tmp_path
    )
    for runs in (1, 3):
        words = philox.words(COUNT, philox.of_seed(SEED), runs)
        np.testing.assert_array_equal(found[f"RandomUniformLike{runs}"][0], philox.unit(words))
        np.testing.assert_allclose(found[f"RandomNormalLike{runs}"][0], philox.normal(words), rtol=2e-6, atol=2e-7)


def test_sessions_without_a_seed_differ(tmp_path: Path) -> None:
    it = program("RandomUniformLike", WEB_BASELINE)
    found = node.run([node.Case(f"run{k}", it, (X,)) for k in range(3)], tmp_path)
    assert len({np.asarray(array).tobytes() for (array,) in found.values()}) == 3
