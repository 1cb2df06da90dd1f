"""Sizes that a model names and u32 does not hold, beside a free one: such a tensor is empty, or a run is refused by name."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.errors import LimitError


@pytest.mark.parametrize("depth", [156130651144197, 1 << 32, (1 << 32) - 1, 1 << 40])
@pytest.mark.parametrize("op", ["OneHot", "Pad"])
def test_an_axis_that_no_adapter_holds(op: str, depth: int) -> None:
    nodes = {
        "OneHot": "v = Constant <value = float[2] {0, 1}> () o = OneHot <axis = 1> (i, d, v) y = Neg (o)",
        "Pad": f"p = Constant <value = int64[4] {{0, 0, 0, {depth}}}> () o = Pad (x, p) y = Neg (o)",
    }
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    g (int64[b,5] i, float[b,5] x) => (y) <int64 d = {{{depth}}}> {{ {nodes[op]} }}"""
    session = webgpu_ep.session(onnx.parser.parse_model(text).SerializeToString())
    empty = session.run(None, {"i": np.zeros((0, 5), np.int64), "x": np.zeros((0, 5), np.float32)})[0]
    assert not empty.size
    with pytest.raises(LimitError):
        session.run(None, {"i": np.zeros((2, 5), np.int64), "x": np.zeros((2, 5), np.float32)})
