"""A few lines to write an ONNX model node by node.

In: calls in execution order. Out: a checked `onnx.ModelProto`. Invariant: values are named by the caller or numbered in
order, so that the same calls give the same bytes. A builder is written for float32; with `half` its inputs, outputs,
weights and constants of that type become float16, but for those that say `keep`.
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

    def __init__(self, name: str, opset: int = 20, ir_version: int = 10, half: bool = False) -> None:
        self.name, self.opset, self.ir_version, self.half = name, opset, ir_version, half
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, onnx.TensorProto] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []

    @property
    def real(self) -> int:
        """The ONNX type that float32 stands for, as the attribute of a Cast."""
        return int(onnx.TensorProto.FLOAT16 if self.half else onnx.TensorProto.FLOAT)

    def input(self, name: str, dtype: Any, shape: Sequence[int | str]) -> str:
        self.inputs.append(_value_info(name, self._type(dtype), shape))
        return name

    def output(self, name: str, dtype: Any, shape: Sequence[int | str], keep: bool = False) -> None:
        self.outputs.append(_value_info(name, dtype if keep else self._type(dtype), shape))

    def weight(self, name: str, value: np.ndarray, keep: bool = False) -> str:
        """An initializer; giving the name again returns the tensor given first."""
        if name not in self.weights:
            dtype = value.dtype if keep else self._type(value.dtype)
            self.weights[name] = numpy_helper.from_array(np.asarray(value, dtype, order="C"), name)
        return name

    def const(self, value: Any, dtype: Any = None, keep: bool = False) -> str:
        """A small initializer shared by all nodes that ask for the same value; int64 or float32 unless told."""
        array = np.asarray(value, dtype)
        if dtype is None:
            array = array.astype(np.int64 if array.dtype.kind == "i" else np.float32)
        array = array if keep else array.astype(self._type(array.dtype))
        label = "x".join(map(str, array.ravel().tolist())) or "empty"
        return self.weight(f"const.{array.dtype}{list(array.shape)}.{label}", array, keep)

    def _type(self, dtype: Any) -> Any:
        return np.dtype(np.float16) if self.half and dtype == np.float32 else np.dtype(dtype)

    def op(self, op_type: str, *inputs: str, out: str | None = None, domain: str = "", **attributes: Any) -> str:
        """A node with one output; the node is named after it."""
        out = out or f"{op_type.lower()}.{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [out], f"node.{out}", domain=domain, **attributes))
        return out

    def ops(self, op_type: str, *inputs: str, outs: Sequence[str], **attributes: Any) -> tuple[str, ...]:
        """A node with several outputs; the node is named after the first."""
        self.nodes.append(helper.make_node(op_type, inputs, outs, f"node.{outs[0]}", **attributes))
        return tuple(outs)

    def split(self, x: str, count: int, axis: int, name: str) -> tuple[str, ...]:
        return self.ops("Split", x, outs=[f"{name}.{i}" for i in range(count)], axis=axis, num_outputs=count)

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
