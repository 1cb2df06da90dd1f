"""A stand-in for the compiler and the runtime: a handful of operators, calculated with numpy on what the device holds.

It lets the plugin be tested by itself: device memory, copies and the real device layer are used, kernels are not.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from onnxruntime_ep_wgpu.compiler.lower.lower import Attempt
from onnxruntime_ep_wgpu.errors import UnsupportedError
from onnxruntime_ep_wgpu.program.dtypes import DType
from onnxruntime_ep_wgpu.runtime.inputs import DeviceTensor


def _gather(a: np.ndarray, i: np.ndarray, axis: int = 0) -> np.ndarray:
    return np.take(a, i, axis=axis)


OPERATORS = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Abs": np.abs,
    "Neg": np.negative,
    "MatMul": np.matmul,
    "Identity": lambda a: a,
    "Relu": lambda a: np.maximum(a, a.dtype.type(0)),
    "LeakyRelu": lambda a, alpha=0.01: np.where(a >= 0, a, a * np.float32(alpha)),
    "Reshape": lambda a, shape, allowzero=0: a.reshape([int(size) or a.shape[i] for i, size in enumerate(shape)]),
    "Shape": lambda a: np.array(a.shape, np.int64),
    "Gather": _gather,
    "Concat": lambda *parts, axis: np.concatenate(parts, axis),
    "Unsqueeze": lambda a, axes: np.expand_dims(a, tuple(int(axis) for axis in axes)),
    "Equal": np.equal,
    "Transpose": lambda a, perm=None: np.transpose(a, perm),
}


class Program:
    """The nodes of a group and their constants, copied: ONNX Runtime frees its own."""

    def __init__(self, graph: ir.Graph, name: str) -> None:
        self.name = name
        self.inputs = [value.name for value in graph.inputs]
        self.integers = [k for k, value in enumerate(graph.inputs) if value.dtype is ir.DataType.INT64]
        self.outputs = [value.name for value in graph.outputs]
        self.constants = {name: value.const_value.numpy().copy() for name, value in graph.initializers.items()}
        self.declined, self.symbols, self.decisive, self.sized = (), (), frozenset[str](), ()
        self.steps = [
            (
                node.name,
                node.op_type,
                [value.name if value is not None else None for value in node.inputs],
                node.outputs[0].name,
                {key: attribute.value for key, attribute in node.attributes.items()},
            )
            for node in graph
        ]
        self.kernels = [types.SimpleNamespace(label=step[1].lower()) for step in self.steps]
        self.dispatches = [types.SimpleNamespace(kernel=i, origin=(step[0],)) for i, step in enumerate(self.steps)]


class Executable:
    """Calculates on the host, reading and writing device buffers."""

    def __init__(self, program: Program, device: Any, settings: Any, source_of: Any) -> None:
        self.program, self.device, self.settings, self.source_of = program, device, settings, source_of
        # Per integer input of every run: its value on the host, and how many downloads that cost.
        self.host_values: list[tuple[np.ndarray, int]] = []

    def on_device(self) -> Executable:
        return self

    @contextmanager
    def prepare(self, given: Callable[[frozenset[int]], list[DeviceTensor]]) -> Iterator[Run]:
        """Asks for the values of every integer input."""
        before = self.device.counters["downloads"]
        inputs = given(frozenset(self.program.integers))
        downloads = self.device.counters["downloads"] - before
        self.host_values += [(tensor.value, downloads) for tensor in inputs if tensor.dtype is DType.INT64]
        values = dict(self.program.constants)
        for name, tensor in zip(self.program.inputs, inputs, strict=True):
            count = tensor.dtype.nbytes(int(np.prod(tensor.shape)))
            data = bytearray(count)
            self.device.download(tensor.buffer, tensor.offset, memoryview(data))
            values[name] = np.frombuffer(data, tensor.dtype.numpy).reshape(tensor.shape)
        for _, operator, given, made, attributes in self.program.steps:
            values[made] = np.asarray(OPERATORS[operator](*(values[name] for name in given), **attributes))
        yield Run(self.device, [np.ascontiguousarray(values[name]) for name in self.program.outputs])


@dataclass
class Run:
    device: Any
    results: list[np.ndarray]

    @property
    def outputs(self) -> list[tuple[DType, tuple[int, ...]]]:
        return [(DType.of_numpy(it.dtype), it.shape) for it in self.results]

    def submit(self, outputs: list[Any]) -> None:
        for (buffer, offset), result in zip(outputs, self.results, strict=True):
            self.device.upload(buffer, offset, result.tobytes())


@dataclass
class Fake:
    """What the plugin asked for."""

    executables: list[Executable]
    checks: int = 0


def check(graph: ir.Graph, opsets: Any, target: Any) -> list[str | None]:
    return [None if node.op_type in OPERATORS and node.domain == "" else f"no {node.op_type}" for node in graph]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Puts the stand-in in the place of the compiler and of what runs its Programs."""
    state = Fake([])

    def counted(graph: ir.Graph, opsets: Any, target: Any, _checked: bool, **_: Any) -> Attempt:
        state.checks += 1
        return Attempt(check(graph, opsets, target))

    def compile_graph(graph: ir.Graph, opsets: Any, target: Any, name: str, checked: bool) -> Program:
        for answer in check(graph, opsets, target):
            if answer is not None:
                raise UnsupportedError(answer)
        return Program(graph, name)

    def compiled_group(program: Program, current: Any, settings: Any, source_of: Any, *_: Any) -> Executable:
        made = Executable(program, current(), settings, source_of)
        state.executables.append(made)
        return made

    monkeypatch.setattr("onnxruntime_ep_wgpu.plugin.assign.claim.attempt", counted)
    monkeypatch.setattr("onnxruntime_ep_wgpu.plugin.compiling.compile_graph", compile_graph)
    monkeypatch.setattr("onnxruntime_ep_wgpu.plugin.session.CompiledGroup", compiled_group)
    return state
