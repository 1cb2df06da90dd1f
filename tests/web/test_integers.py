"""Reductions of integers in a browser's WGSL, which has no integers of 64 bits: exact, as natively."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx.helper import make_node

from onnxruntime_ep_wgpu.api.web_export import SOFTWARE
from onnxruntime_ep_wgpu.program.target import WEB_BASELINE, Target
from tests.ops.test_exact_reductions import REDUCTIONS, rows, truth
from tests.support import compile_model, make_model

from . import node

CASES = [(np.int64, SOFTWARE), *((dtype, WEB_BASELINE) for dtype in (np.int32, np.uint32, np.int64, np.uint64))]


@pytest.mark.parametrize(
    ("dtype", "target"),
    [pytest.param(*case, marks=pytest.mark.exhaustive if k else ()) for k, case in enumerate(CASES)],
    ids=["int64-software", "int32", "uint32", "int64", "uint64"],
)
def test_every_reduction(dtype: Any, target: Target, tmp_path: Path) -> None:
    x = rows(dtype, 300)
    nodes = [make_node(op, ["x", "axes"], [op], keepdims=0) for op in REDUCTIONS]
    model = make_model(nodes, {"x": (dtype, ["rows", "columns"])}, {"axes": np.array([1])})
    found = node.run([node.Case("integers", compile_model(model, target), (x,))], tmp_path)["integers"]
    assert not isinstance(found, str), found
    for op, got in zip(REDUCTIONS, found, strict=True):
        np.testing.assert_array_equal(got, np.array([truth(op, row) for row in x], dtype), op)
