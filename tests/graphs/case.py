"""A random graph as data: what a seed makes, what a shrunk graph is made of, and how it becomes a model.

Invariant: every node is valid for the shapes of all runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from . import values


@dataclass(frozen=True)
class Source:
    """An input with its array for every run, or, with a single array, an initializer. `dims`: sizes and names of sizes."""

    name: str
    dtype: str
    arrays: tuple[np.ndarray, ...]
    dims: tuple[int | str | None, ...] = ()
    constant: bool = False


@dataclass(frozen=True)
class Node:
    """An operator of ONNX's own domain; an input that is missing is "". `types` are those of the outputs."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    types: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """`optimise`: with ONNX Runtime's own optimisations; `on_cpu`: nodes that are forced to the CPU provider; `alias`: under our
    other name, for which ONNX Runtime keeps its memory pattern, which puts inputs and outputs into one buffer from run 2 on."""

    seed: int
    opset: int
    sources: tuple[Source, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[tuple[str, str, int], ...]  # name, type, rank
    runs: int
    optimise: bool = False
    on_cpu: tuple[str, ...] = ()
    alias: bool = False

    @property
    def inputs(self) -> tuple[Source, ...]:
        return tuple(s for s in self.sources if not s.constant)

    def feeds(self, run: int) -> dict[str, np.ndarray]:
        return {s.name: s.arrays[run] for s in self.inputs}

    def model(self) -> onnx.ModelProto:
        inputs = [helper.make_tensor_value_info(s.name, values.CODES[s.dtype], s.dims) for s in self.inputs]
        weights = [numpy_helper.from_array(s.arrays[0], s.name) for s in self.sources if s.constant]
        outputs = [helper.make_tensor_value_info(n, values.CODES[d], [None] * rank) for n, d, rank in self.outputs]
        graph = helper.make_graph([proto(node) for node in self.nodes], f"seed {self.seed}", inputs, outputs, weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)


def proto(node: Node) -> onnx.NodeProto:
    attributes = {
        key: numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        for key, value in node.attributes.items()
    }
    return helper.make_node(node.op, node.inputs, node.outputs, node.name, **attributes)


def pruned(case: Case, names: list[str]) -> Case:
    """The case with these outputs alone, and what they need."""
    needed, nodes = set(names), []
    for node in reversed(case.nodes):
        if needed.intersection(node.outputs):
            nodes.append(node)
            needed.update(node.inputs)
    return dataclasses.replace(
        case,
        nodes=tuple(reversed(nodes)),
        sources=tuple(s for s in case.sources if s.name in needed),
        outputs=tuple(o for o in case.outputs if o[0] in names),
        on_cpu=tuple(n for n in case.on_cpu if n in {node.name for node in nodes}),
    )


def listing(case: Case, placed: Mapping[str, str] | None = None) -> str:
    """The graph for a reader: inputs with their sizes per run, a line per node, outputs."""
    lines = [f"seed {case.seed}, opset {case.opset}, {len(case.nodes)} nodes, {case.runs} runs,"
             f" onnxruntime's optimisations {'on' if case.optimise else 'off'}{', alias' if case.alias else ''}"]  # fmt: skip
    for source in case.sources:
        if source.constant:
            lines.append(
                f"  weight {source.name}: {source.dtype}{list(source.arrays[0].shape)}{_brief(source.arrays[0])}"
            )
        else:
            shapes = " ".join(str(list(a.shape)) for a in source.arrays)
            lines.append(f"  input {source.name}: {source.dtype}{list(source.dims)}: {shapes}")
    for node in case.nodes:
        attributes = "".join(f" {k}={_text(v)}" for k, v in node.attributes.items())
        where = " (CPU)" if node.name in case.on_cpu else ""
        lines.append(f"  {', '.join(node.outputs)} = {node.op}({', '.join(node.inputs)}){attributes}{where}")
    lines.append(f"  outputs {', '.join(name for name, _, _ in case.outputs)}")
    return "\n".join(lines)


def _brief(array: np.ndarray) -> str:
    return f" = {array.tolist()}" if array.size <= 8 else ""


def _text(value: Any) -> str:
    return f"{value.dtype}{value.tolist()}" if isinstance(value, np.ndarray) else str(value)
