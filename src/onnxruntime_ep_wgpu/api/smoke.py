"""A small run with a check of its values.

In: the index of an adapter. Out: the seconds of the run. Raises DeviceError for wrong values, and the errors of a session or
its run."""

from __future__ import annotations

import time

import numpy as np
from onnx import TensorProto, helper

from ..device import adapters
from ..errors import DeviceError
from .session import session


def smoke_run(adapter: int) -> float:
    """Returns the seconds of a session of relu(a @ b) and its first run. a is 33 x 65, b is 65 x 17, both f32."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((33, 65)).astype(np.float32), rng.standard_normal((65, 17)).astype(np.float32)
    start = time.perf_counter()
    found = session(_model(), adapterIndex=adapter).run(None, {"a": a, "b": b})[0]
    if not np.allclose(found, np.maximum(a @ b, 0), rtol=1e-4, atol=1e-4):
        driver = adapters()[adapter].driver or "unknown"
        raise DeviceError(f"wrong values of a matrix product: update the driver, {driver}")
    return time.perf_counter() - start


def _model() -> bytes:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, None]) for name in "aby"]
    nodes = [helper.make_node("MatMul", ["a", "b"], ["c"]), helper.make_node("Relu", ["c"], ["y"])]
    graph = helper.make_graph(nodes, "smoke", values[:2], values[2:])
    made: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()
    return made
