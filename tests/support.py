"""Compiling and running an ONNX model directly, without ONNX Runtime, for tests of the compiler and its kernels."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from onnxruntime_ep_wgpu.compiler.compile import compile_graph
from onnxruntime_ep_wgpu.compiler.templates.functions import definitions
from onnxruntime_ep_wgpu.device import Device, Place
from onnxruntime_ep_wgpu.plugin.group import GroupOnDevice
from onnxruntime_ep_wgpu.plugin.specialise import Specialiser
from onnxruntime_ep_wgpu.program.dtypes import DType, packed, unpacked
from onnxruntime_ep_wgpu.program.program import Program, Value
from onnxruntime_ep_wgpu.program.target import Target
from onnxruntime_ep_wgpu.runtime.executable import Executable
from onnxruntime_ep_wgpu.runtime.inputs import DeviceTensor
from onnxruntime_ep_wgpu.runtime.settings import RunSettings
from tests import targets


def device(int64: str | None = None) -> Device:
    """The device of the Target that was chosen; `int64` overrides how it calculates 64-bit integers."""
    way = targets.chosen()
    return targets.device(way if int64 is None else dataclasses.replace(way, int64=int64))


def target(int64: str | None = None) -> Target:
    """The Target that was chosen; "pair" hides its 64-bit integers."""
    return device(int64).target


def hardware(**changes: Any) -> Target:
    """The Target that was chosen, as of a GPU's adapter, with these `changes`."""
    return dataclasses.replace(target(), software=False, **changes)


def labels(program: Program) -> list[str]:
    """Of the kernels, in the order of the dispatches."""
    return [program.kernels[it.kernel].label for it in program.dispatches]


NO_NUMBER = re.compile(r"[/%] ?\(?0[uif]?\b(?!\.)")
"""A division by a constant 0, which naga compiles and Tint does not."""


def compile_model(model: onnx.ModelProto, on: Target | None = None) -> Program:
    module = ir.from_proto(model)
    program = compile_graph(module.graph, module.opset_imports, on or device().target, model.graph.name)
    for kernel in program.kernels:
        for text in kernel.wgsl:
            refused = NO_NUMBER.search(text)
            assert refused is None, f"{kernel.label}: browsers take no {text[refused.start() - 30 : refused.end()]!r}"
    return program


class Runner:
    """A program ready to run on numpy arrays."""

    def __init__(
        self,
        program: Program,
        settings: RunSettings | None = None,
        on: Device | None = None,
        specialise: Specialiser | None = None,
    ) -> None:
        self.device = on or targets.device(targets.suited(program.target))
        self.executable = Executable(program, self.device, settings)
        self.sized = GroupOnDevice(self.executable, specialise)

    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
        tensors, results = self._uploaded(arrays), []
        with self.sized.prepare(lambda _valued: tensors) as run:
            for dtype, shape in run.outputs:
                data = np.empty(dtype.nbytes(math.prod(shape)), np.uint8)
                buffer = self.device.buffer(max(16, data.nbytes)) if data.nbytes else None
                results.append((data, dtype, shape, buffer))
            run.submit([None if it[3] is None else Place(it[3], 0) for it in results])
        for data, *_, buffer in results:
            if data.nbytes:
                self.device.download(buffer, 0, data.data)
        return [unpacked(data, dtype, shape) for data, dtype, shape, _ in results]

    def stored(self, *arrays: np.ndarray) -> list[tuple[Value, np.ndarray]]:
        """What kernels store in a run: the values of the Program, with what lies in memory."""
        values = self.executable.program.values
        found = self.executable.trace(self._uploaded(arrays))
        return [(values[number], array) for _, written in found for number, array in written.items()]

    def _uploaded(self, arrays: Sequence[np.ndarray]) -> list[DeviceTensor]:
        tensors = []
        for array in arrays:
            data = packed(np.asarray(array))
            buffer = self.device.buffer(max(16, data.nbytes)) if data.nbytes else None  # as the provider has it
            if buffer is not None:
                self.device.upload(buffer, 0, data.data)
            tensors.append(DeviceTensor(DType.of_numpy(array.dtype), array.shape, buffer, 0, array))
        return tensors


def specialising(model: onnx.ModelProto, on: Target | None = None, settings: RunSettings | None = None) -> Runner:
    """A runner that compiles the model again for sizes beyond a limit, as a session does."""
    module, on = ir.from_proto(model), on or device().target
    specialiser = Specialiser(module.graph, module.opset_imports, on, model.graph.name)
    program = compile_graph(module.graph, module.opset_imports, on, model.graph.name)
    return Runner(program, settings, specialise=specialiser)


def run_model(model: onnx.ModelProto, *arrays: np.ndarray, int64: str | None = None) -> list[np.ndarray]:
    return Runner(compile_model(model, target(int64)))(*arrays)


def make_model(nodes: list[onnx.NodeProto], inputs: dict[str, tuple[type, list]], weights: dict[str, np.ndarray] | None = None,
               opset: int = 20) -> onnx.ModelProto:  # fmt: skip
    """A model of these nodes; inputs are (numpy type, dims), outputs are the values that no node reads."""
    weights = weights or {}
    read = {name for node in nodes for name in node.input}
    outputs = [onnx.ValueInfoProto(name=name) for node in nodes for name in node.output if name and name not in read]
    values = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.dtype(t)), d)
        for n, (t, d) in inputs.items()
    ]
    initializers = [numpy_helper.from_array(np.asarray(w), n) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "test", values, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def without_prelude(text: str) -> str:
    """The text of a kernel without the definitions that it has from the prelude."""
    for pairs in (False, True):
        for code, _ in definitions(pairs).values():
            text = text.replace(code, "")
    return text
