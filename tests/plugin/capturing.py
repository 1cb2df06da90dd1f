"""Sessions that capture their runs, and bindings for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep

from . import models

RNG = np.random.default_rng(3)
X = RNG.standard_normal((5, 8), np.float32)
OWN = 260  # a device of a test's own, so that its counters are
needs_release = pytest.mark.skipif(
    not hasattr(ort.InferenceSession, "release_captured_graph"), reason="onnxruntime before 1.27 cannot release a graph"
)


def captured(model: Any = None, **options: Any) -> ort.InferenceSession:
    settings = ort.SessionOptions()
    settings.log_severity_level = 3
    model = models.chain() if model is None else model
    return webgpu_ep.session(model, sess_options=settings, enableGraphCapture=1, **options)


def under(graph_id: int) -> ort.RunOptions:
    options = ort.RunOptions()
    options.add_run_config_entry("gpu_graph_id", str(graph_id))
    return options


class Bound:
    """An IOBinding of x and y to device tensors."""

    def __init__(self, session: ort.InferenceSession, x: np.ndarray, y_shape: tuple[int, ...] | None = None) -> None:
        self.session, self.binding = session, session.io_binding()
        self.x = ort.OrtValue.ortvalue_from_numpy(x, "webgpu", 0)
        self.y = ort.OrtValue.ortvalue_from_shape_and_type(y_shape or x.shape, np.float32, "webgpu", 0)
        self.binding.bind_ortvalue_input("x", self.x)
        self.binding.bind_ortvalue_output("y", self.y)

    def run(self, graph_id: int = 0) -> np.ndarray:
        self.session.run_with_iobinding(self.binding, under(graph_id))
        return self.y.numpy()


def close(actual: np.ndarray, x: np.ndarray) -> None:
    np.testing.assert_allclose(actual, models.chain_reference(x), rtol=1e-4, atol=1e-4)
