"""A group is compiled again, in a later session too, with the types and ranks of inputs that only the nodes before it tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import parser

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu import version

from .compiling import compiled_beside, what_was_compiled

F = np.float32
# ONNX Runtime tells no rank of `b`, which a node elsewhere makes; kernels of the group are made for the axes of a run.
MODEL = """
<ir_version: 8, opset_import: ["": 17]>
g (float[n, 3] x, int64[1] axes) => (float[i, j, k] y) <int64 first = {0}>
{
    [construct] a = SequenceConstruct (x, x)
    [erase] s = SequenceErase (a)
    [at] b = SequenceAt (s, first)
    u = Unsqueeze (b, axes)
    y = Add (u, u)
}
"""
OPTIONS = {"forceCpuNodeNames": "construct\nerase\nat"}


def model() -> bytes:
    return bytes(parser.parse_model(MODEL).SerializeToString())


def check(session: Any) -> None:
    for rows, axis in ((4, 1), (2, 0), (4, 2), (1, 1)):
        x = np.arange(rows * 3, dtype=F).reshape(rows, 3)
        (y,) = session.run(None, {"x": x, "axes": np.array([axis])})
        np.testing.assert_array_equal(y, 2 * np.expand_dims(x, axis))


def test_a_compiled_model_is_compiled_for_the_values_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compiled_beside(tmp_path, model(), **OPTIONS)
    session = webgpu_ep.session(compiled)
    assert not what_was_compiled(session)
    check(session)
    monkeypatch.setattr(version, "VERSION", "0.1.1")
    check(webgpu_ep.session(compiled))
