"""Weights go to the GPU one after another: beside the largest one, the making of a session holds none of them in Python's memory.

What is counted are bytes that Python and numpy allocate. ONNX Runtime maps files of weights; the pieces that the GPU copies from
are of a fixed size (`device/uploads.py`).
"""

from __future__ import annotations

import gc
import itertools
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from tests import provider, targets

from . import models

ROWS, COLUMNS, LAYERS = 1024, 2048, 4
LARGEST = 4 * ROWS * COLUMNS
OBJECTS = 4 << 20
"""Bytes of everything that is no weight: modules, graphs, kernels."""


NUMBERS = itertools.count()


def array(k: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(k).standard_normal(shape, np.float32)


def products() -> onnx.ModelProto:
    node, weights = models.node, [(f"w{k}", array(k, ROWS, COLUMNS)) for k in range(LAYERS)]
    nodes = []
    for k in range(LAYERS):
        nodes += [node("MatMul", ["x", f"w{k}"], [f"h{k}"], f"product{k}")]
    nodes.append(node("Sum", [f"h{k}" for k in range(LAYERS)], ["y"], "sum"))
    return made(nodes, [("x", ["N", ROWS])], weights)


def transposed() -> onnx.ModelProto:
    node, weights = models.node, [(f"w{k}", array(k, COLUMNS, ROWS)) for k in range(LAYERS)]
    nodes = [node("Gemm", ["x", f"w{k}"], [f"h{k}"], f"product{k}", transB=1) for k in range(LAYERS)]
    nodes.append(node("Sum", [f"h{k}" for k in range(LAYERS)], ["y"], "sum"))
    return made(nodes, [("x", ["N", ROWS])], weights)


def convolutions() -> onnx.ModelProto:
    node, channels = models.node, 480  # 480 * 480 * 9 elements are about as many
    weights, nodes = [(f"w{k}", array(k, channels, channels, 3, 3)) for k in range(LAYERS)], []
    for k in range(LAYERS):
        before, after = "x" if k == 0 else f"h{k - 1}", "y" if k == LAYERS - 1 else f"h{k}"
        nodes.append(node("Conv", [before, f"w{k}"], [after], f"conv{k}", pads=[1, 1, 1, 1]))
    return made(nodes, [("x", ["N", channels, 8, 8])], weights)


def recurrent() -> onnx.ModelProto:
    """Layers over sequences of 2, each with W (1, 4 * 512, 1024) and R (1, 4 * 512, 512)."""
    node, hidden = models.node, 512
    weights, nodes = [], []
    for k in range(LAYERS):
        weights += [(f"w{k}", array(k, 1, 4 * hidden, ROWS)), (f"r{k}", array(k, 1, 4 * hidden, hidden))]
        nodes.append(node("LSTM", ["x", f"w{k}", f"r{k}"], [f"h{k}"], f"lstm{k}", hidden_size=hidden))
    nodes.append(node("Sum", [f"h{k}" for k in range(LAYERS)], ["s"], "sum"))
    nodes.append(node("ReduceMax", ["s"], ["y"], "most", axes=[2, 3], keepdims=0))
    return made(nodes, [("x", [2, "N", ROWS])], weights)


def embeddings() -> onnx.ModelProto:
    """A table that is the last product too."""
    node = models.node
    nodes = [
        node("Gather", ["table", "ids"], ["x"], "gather"),
        node("Transpose", ["table"], ["turned"], "transpose", perm=[1, 0]),
        node("MatMul", ["x", "turned"], ["y"], "head"),
    ]
    return made(nodes, [("ids", ["N"])], [("table", array(0, COLUMNS, ROWS))])


def made(nodes: Any, inputs: Any, weights: Any) -> onnx.ModelProto:
    kinds = {"x": models.FLOAT, "ids": models.INT64}
    given = [(name, kinds[name], shape) for name, shape in inputs]
    # A name of its own: a session is told from others by the names of its inputs and outputs.
    output = f"y{next(NUMBERS)}"
    for it in nodes:
        it.output[:] = [output if name == "y" else name for name in it.output]
    outputs = [(output, models.FLOAT, [f"d{k}" for k in range(4 if len(inputs[0][1]) == 4 else 2)])]
    return onnx.load_from_string(models.model(nodes, given, outputs, weights))


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    it.__name__: it for it in (products, transposed, convolutions, recurrent, embeddings)
}


@pytest.mark.costly(2)
@pytest.mark.parametrize("way", [targets.OWN, targets.Way("gpu"), targets.Way("channels")], ids=lambda way: way.target)
@pytest.mark.parametrize("name", MODELS)
def test_the_making_holds_no_more_than_the_largest_weight(name: str, way: targets.Way, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(MODELS[name](), path, save_as_external_data=True, location="weights", size_threshold=1024)
    with targets.using(way):
        provider.open_session(models.chain())  # what is imported once is no part of it
        gc.collect()
        tracemalloc.start()
        try:
            session = provider.open_session(path)
            held, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert not webgpu_ep.report(session).on_cpu
    assert peak <= 1.1 * LARGEST + OBJECTS
    assert held <= OBJECTS, "and nothing of them afterwards"
