"""What the compiler looked at of a graph's constants: every way to their elements leaves a note, and nothing else does."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler.compile import compile_graph
from onnxruntime_ep_wgpu.compiler.graph import facts
from tests.support import make_model, target

from .attention_models import Sizes, attention_model
from .test_visible_keys import with_constant

F = np.float32
RNG = np.random.default_rng(5)
# What says nothing of elements, or belongs to Python.
SILENT = {"dtype", "shape", "name", "doc_string", "nbytes", "size", "meta", "metadata_props", "display", "facts"}
READS: dict[str, Callable[[Any], object]] = {
    "numpy": lambda it: it.numpy(),
    "numpy_packed": lambda it: it.numpy_packed(),
    "raw": lambda it: it.raw,
    "tobytes": lambda it: it.tobytes(),
    "tofile": lambda it: it.tofile(io.BytesIO()),
    "__array__": np.asarray,
    "__dlpack__": lambda it: it.__dlpack__(),
    "to_proto": ir.to_proto,
}


def constants(dtype: ir.DataType, names: str = "ab") -> tuple[facts.Facts, list[ir.TensorProtocol]]:
    noted = facts.Facts()
    raw = np.zeros(8 * int(dtype.bitwidth) // 8, np.uint8)
    return noted, [noted.constant(raw, dtype, (8,), name) for name in names]


@pytest.mark.parametrize("dtype", [ir.DataType.FLOAT, ir.DataType.INT4, ir.DataType.BFLOAT16, ir.DataType.BOOL])
@pytest.mark.parametrize("way", READS)
def test_every_way_to_the_elements_is_noted(way: str, dtype: ir.DataType) -> None:
    noted, (tensor, _) = constants(dtype)
    assert (tensor.dtype, tuple(tensor.shape), tensor.nbytes, tensor.name) == (dtype, (8,), int(dtype.bitwidth), "a")
    facts.read_unrecorded(tensor)
    assert not noted.names
    if hasattr(tensor, way) or way == "to_proto":
        try:
            READS[way](tensor)
        except (BufferError, TypeError):
            assert way == "__dlpack__"  # no such type there
        assert noted.names == {"a"}


@pytest.mark.parametrize("dtype", [ir.DataType.FLOAT, ir.DataType.INT4])
def test_no_other_way_is_known(dtype: ir.DataType) -> None:
    _, (tensor, _) = constants(dtype)
    public = {name for name in dir(tensor) if not name.startswith("_")}
    assert public <= SILENT | READS.keys()


def noted_graph(model: onnx.ModelProto) -> tuple[ir.Graph, facts.Facts]:
    """The graph of a model as a session has it: its constants note who looks at them."""
    noted, graph = facts.Facts(), ir.from_proto(model).graph
    for name, value in graph.initializers.items():
        tensor = value.const_value
        assert tensor is not None
        raw = np.frombuffer(tensor.tobytes(), np.uint8)
        value.const_value = noted.constant(raw, tensor.dtype, tuple(map(int, tensor.shape)), name)
    facts.begin(graph, noted)
    return graph, noted


def test_weights_that_are_only_multiplied_are_no_facts() -> None:
    weights = {"w": RNG.standard_normal((64, 64)).astype(F), "v": RNG.standard_normal((64, 64)).astype(F)}
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Relu", ["a"], ["b"]), node("MatMul", ["b", "v"], ["y"])]
    graph, noted = noted_graph(make_model(nodes, {"x": (F, ["n", 64])}, weights))
    compile_graph(graph, graph.opset_imports, target())
    assert noted.names == set()


def test_a_mask_that_is_looked_at_is_a_fact() -> None:
    """Two of 16 KB that differ have other Programs, though their graphs have equal nodes, types and shapes."""
    seen = [np.tril(np.ones((64, 64), bool)), np.tril(np.ones((64, 64), bool)) & ~np.tril(np.ones((64, 64), bool), -8)]
    found = []
    for it in seen:
        attention = attention_model("scores", "added", Sizes(1, 2, 64, 64, 8, 8))
        graph, noted = noted_graph(with_constant(attention, np.where(it, 0, -np.inf).astype(F)[None, None]))
        program = compile_graph(graph, graph.opset_imports, replace(target(), software=False))
        assert noted.names == {"mask", "scale"}
        found.append((facts.facts_of(graph), program))
    (first, one), (second, other) = found
    assert first["scale"] == second["scale"] and first["mask"] != second["mask"]
    assert one.kernels != other.kernels or one.dispatches != other.dispatches
