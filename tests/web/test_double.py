"""f64 in a browser's WGSL: the bits are those of numpy, as natively."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx.helper import make_node

from onnxruntime_ep_wgpu.program.target import WEB_BASELINE
from tests.ops.test_double import alike, pairs
from tests.support import compile_model, make_model

from . import node

OPERATIONS = {"Add": np.add, "Mul": np.multiply, "Div": np.divide, "Less": np.less, "Max": np.maximum}


@pytest.mark.exhaustive
def test_operations(tmp_path: Path) -> None:
    x, y = (it[::7].copy() for it in pairs())
    nodes = [*(make_node(op, ["x", "y"], [op]) for op in OPERATIONS), make_node("Sqrt", ["x"], ["Sqrt"])]
    model = make_model(nodes, {"x": (np.float64, ["n"]), "y": (np.float64, ["n"])})
    found = node.run([node.Case("doubles", compile_model(model, WEB_BASELINE), (x, y))], tmp_path)["doubles"]
    assert not isinstance(found, str), found
    with np.errstate(all="ignore"):
        wanted = [*(operation(x, y) for operation in OPERATIONS.values()), np.sqrt(x)]
    for op, got, want in zip([*OPERATIONS, "Sqrt"], found, wanted, strict=True):
        wrong = np.flatnonzero(~alike(np.asarray(got), want))
        assert not wrong.size, (op, x[wrong[:4]], y[wrong[:4]], np.asarray(got)[wrong[:4]])
