"""A model whose float32 values are halves, but for its inputs and outputs and what some nodes read and make.

In: an ONNX model, the values that are float32 and every other tensor of it, by name, and the nodes that are to stay. Out: the
model with Cast nodes between halves and float32. Invariants: whoever reads float32 reads the name that it read before, and a half
beside it has a name of its own; so nothing goes through a half between two nodes that stay, or from one to an output. Which
operands can be halves is what ONNX Runtime's schemas say: those whose type variable has halves, where an input decides it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from typing import Any

import numpy as np

from ..records import dataclass

LARGEST = float(np.finfo(np.float16).max)
SMALLEST = float(np.finfo(np.float16).smallest_subnormal)


@dataclass(frozen=True)
class Halved:
    """`halves` has the name of each half in `model`, and of the float32 value that it stands for."""

    model: Any
    halves: dict[str, str]


@dataclass(frozen=True)
class _Operands:
    """Which inputs and outputs of a node are halves, by their numbers."""

    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()


def halved(model: Any, floats: Collection[str], others: Collection[str], kept: Collection[str]) -> Halved:
    """`floats` and `others` are tensors of the model's own graph, float32 and of other types; `kept` are names of nodes."""
    import onnx

    found = onnx.ModelProto()
    found.CopyFrom(model)
    graph, chosen = found.graph, _chosen(found, frozenset(floats), frozenset(others), kept)
    read = _read_exactly(graph, chosen)
    made = {node.output[k] for node, its in zip(graph.node, chosen, strict=True) for k in its.outputs}
    weights = {it.name: it for it in graph.initializer}
    taken = {*floats, *others}
    names = {
        it: it if it not in read and (it in made or it in weights) else _free(f"{it} as half", taken) for it in floats
    }
    declared = {it.name: it for it in (*graph.input, *graph.value_info)}
    there: dict[str, str] = {}
    nodes: list[Any] = []

    def half_of(name: str) -> str:
        half = names[name]
        if half == name and name in declared:
            declared[name].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
        there[half] = name
        return half

    for node, its in zip(list(graph.node), chosen, strict=True):
        before, behind = [], []
        for k in its.inputs:
            name = node.input[k]
            if name not in made and names[name] not in there:
                if name in weights:
                    weight = weights[name] if names[name] == name else graph.initializer.add()
                    weight.CopyFrom(_as_half(weights[name], names[name]))
                else:
                    before.append(onnx.helper.make_node("Cast", [name], [names[name]], to=onnx.TensorProto.FLOAT16))
            node.input[k] = half_of(name)
        for k in its.outputs:
            name = node.output[k]
            node.output[k] = half_of(name)
            if name in read:
                behind.append(onnx.helper.make_node("Cast", [names[name]], [name], to=onnx.TensorProto.FLOAT))
        nodes += [*before, node, *behind]
    del graph.node[:]
    graph.node.extend(nodes)
    return Halved(found, there)


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "'"
    taken.add(name)
    return name


def _as_half(tensor: Any, name: str) -> Any:
    """No number becomes 0, as those that are added to a divisor, or infinite, as the lowest float32 of a mask."""
    from onnx import numpy_helper

    exact = numpy_helper.to_array(tensor)
    bounded = np.where(np.isfinite(exact), np.clip(exact, -LARGEST, LARGEST), exact)
    with np.errstate(under="ignore"):
        half = bounded.astype(np.float16)
    vanished = (half == 0) & (exact != 0)
    return numpy_helper.from_array(np.where(vanished, np.copysign(SMALLEST, exact), half).astype(np.float16), name)


# ---- what reads and makes halves


def _chosen(model: Any, floats: frozenset[str], others: frozenset[str], kept: Collection[str]) -> list[_Operands]:
    from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST

    opsets = {"" if it.domain == "ai.onnx" else it.domain: it.version for it in model.opset_import}
    # The last one has no kernel, and its definition adds a constant of float32.
    blocked = {*DEFAULT_OP_BLOCK_LIST, "MeanVarianceNormalization"}
    return [
        _Operands()
        if node.name in kept or node.op_type in blocked
        else _operands(node, opsets.get("" if node.domain == "ai.onnx" else node.domain, 1), floats, others)
        for node in model.graph.node
    ]


def _operands(node: Any, opset: int, floats: frozenset[str], others: frozenset[str]) -> _Operands:
    """What of a node can be a half. A node is left alone that has a body, no schema, or tensors of which nothing is known;
    so is one that makes float32 because an attribute says so."""
    schema = _schema(node.op_type, "" if node.domain == "ai.onnx" else node.domain, opset)
    known = all(not name or name in floats or name in others for name in (*node.input, *node.output))
    if schema is None or not known or any(it.HasField("g") or it.graphs for it in node.attribute):
        return _Operands()
    halves = {it.type_param_str for it in schema.type_constraints if "tensor(float16)" in it.allowed_type_strs}
    inputs = {
        k: variable
        for k, variable in enumerate(_variables(schema.inputs, len(node.input)))
        if node.input[k] in floats and variable in halves
    }
    outputs = {
        k: variable
        for k, variable in enumerate(_variables(schema.outputs, len(node.output)))
        if node.output[k] in floats
    }
    if any(variable in halves and variable not in inputs.values() for variable in outputs.values()):
        return _Operands()
    return _Operands(tuple(inputs), tuple(k for k, variable in outputs.items() if variable in halves))


def _variables(parameters: Any, count: int) -> Iterator[str]:
    """The type of each operand as a schema has it: a variable, or the type itself. The last parameter may be there often."""
    return (parameters[min(k, len(parameters) - 1)].typeStr for k in range(count))


@cache
def _schema(op_type: str, domain: str, opset: int) -> Any | None:
    """The newest one that is not newer than `opset`."""
    found = [it for it in _schemas().get((op_type, domain), ()) if it.since_version <= opset]
    return max(found, key=lambda it: it.since_version, default=None)


@cache
def _schemas() -> dict[tuple[str, str], list[Any]]:
    """Those of this build of ONNX Runtime, which has operators of its own beside ONNX's."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    found: dict[tuple[str, str], list[Any]] = {}
    for it in get_all_operator_schema():
        found.setdefault((it.name, it.domain), []).append(it)
    return found


def _read_exactly(graph: Any, chosen: list[_Operands]) -> set[str]:
    """What is read as float32: by nodes, by the bodies that they have, or as an output."""
    found = {it.name for it in graph.output}
    for node, its in zip(graph.node, chosen, strict=True):
        found.update(name for k, name in enumerate(node.input) if k not in its.inputs)
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                found |= _read_exactly(body, [_Operands()] * len(body.node))
    return found
