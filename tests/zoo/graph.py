"""A few lines to write an ONNX model node by node.

In: calls in execution order. Out: a checked `onnx.ModelProto`. Invariant: values are named by the caller or numbered in
order, so that the same calls give the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


class GraphBuilder:
    """Collects nodes and weights; every method that makes a value returns its name."""

    def __init__(self, name: str, opset: int = 20, ir_version: int = 10) -> None:
        self.name, self.opset, self.ir_version = name, opset, ir_version
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, dtype: Any, shape: Sequence[int | str]) -> str:
        self.inputs.append(_value_info(name, dtype, shape))
        return name

    def output(self, name: str, dtype: Any, shape: Sequence[int | str]) -> None:
        self.outputs.append(_value_info(name, dtype, shape))

    def weight(self, name: str, value: np.ndarray) -> str:
        """An initializer; giving the name again returns the tensor given first."""
        if name not in self.weights:
            self.weights[name] = numpy_helper.from_array(np.asarray(value, order="C"), name)
        return name

    def const(self, value: Any, dtype: Any = None) -> str:
        """A small initializer shared by all nodes that ask for the same value; int64 or float32 unless told."""
        array = np.asarray(value, dtype)
        if dtype is None:
            array = array.astype(np.int64 if array.dtype.kind == "i" else np.float32)
        label = "x".join(map(str, array.ravel().tolist())) or "empty"
        return self.weight(f"const.{array.dtype}{list(array.shape)}.{label}", array)

    def op(self, op_type: str, *inputs: str, out: str | None = None, domain: str = "", **attributes: Any) -> str:
        """A node with one output; the node is named after it."""
        out = out or f"{op_type.lower()}.{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [out], f"node.{out}", domain=domain, **attributes))
        return out

    def build(self) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, list(self.weights.values()))
        model = helper.make_model(
            graph, ir_version=self.ir_version, opset_imports=[helper.make_opsetid("", self.opset)]
        )
        onnx.checker.check_model(model, full_check=True)
        return model


def save(model: onnx.ModelProto, path: Path) -> None:
    """Writes under another name first, so that a second process never reads half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.part")
    partial.write_bytes(model.SerializeToString())
    partial.replace(path)


def _value_info(name: str, dtype: Any, shape: Sequence[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
