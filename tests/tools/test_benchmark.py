"""`benchmark`, in Python as in the web runtime."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx.helper import make_node

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.errors import OptionError
from tests.support import make_model


def test_times_of_runs_after_the_first() -> None:
    model = make_model([make_node("Relu", ["x"], ["y"])], {"x": (np.float32, ["n"])})
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {"x": np.ones(4, np.float32)}
    times = webgpu_ep.benchmark(session, feeds, 3)
    assert 0 < times.min <= times.avg <= times.max
    for iterations in (0, -1, 1.5):
        with pytest.raises(OptionError, match="iterations is"):
            webgpu_ep.benchmark(session, feeds, iterations)  # type: ignore[arg-type]
