"""Converts a model from float32 to float16 ("halves"), except its inputs, its outputs and selected nodes.

In: an ONNX model, the names of its float32 values and of all other tensors, and the nodes to keep in float32. Out: the model with
Cast nodes between float16 and float32.

Invariants: float32 values keep their names for their readers, and a half beside one gets a new name. Therefore no value passes
through a half between two kept nodes, or from a kept node to an output. ONNX Runtime's schemas decide which operands can be
halves: those with a type variable that allows float16, if an input determines it.
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
    """`halves` maps the name of each half in `model` to the float32 value that it replaces."""

    model: Any
    halves: dict[str, str]


@dataclass(frozen=True)
class _Operands:
    """The indices of a node's inputs and outputs that are halves."""

    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()


def halved(model: Any, floats: Collection[str], others: Collection[str], kept: Collection[str]) -> Halved:
    """`floats` and `others` are tensors of the main graph: float32, and other types. `kept` are names of nodes."""
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
    halves_of: dict[str, str] = {}
    nodes: list[Any] = []

    def half_of(name: str) -> str:
        half = names[name]
        if half == name and name in declared:
            declared[name].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
        halves_of[half] = name
        return half

    for node, its in zip(list(graph.node), chosen, strict=True):
        before, behind = [], []
        for k in its.inputs:
            name = node.input[k]
            if name not in made and names[name] not in halves_of:
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
    return Halved(found, halves_of)


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "'"
    taken.add(name)
    return name


def _as_half(tensor: Any, name: str) -> Any:
    """Rounds without turning finite numbers into 0 or infinity: an epsilon stays above 0, a mask's lowest float32 stays finite."""
    from onnx import numpy_helper

    exact = numpy_helper.to_array(tensor)
    bounded = np.where(np.isfinite(exact), np.clip(exact, -LARGEST, LARGEST), exact)
    with np.errstate(under="ignore"):
        half = bounded.astype(np.float16)
    vanished = (half == 0) & (exact != 0)
    return numpy_helper.from_array(np.where(vanished, np.copysign(SMALLEST, exact), half).astype(np.float16), name)


# ---- operands that become halves


def _chosen(model: Any, floats: frozenset[str], others: frozenset[str], kept: Collection[str]) -> list[_Operands]:
    from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST

    opsets = {"" if it.domain == "ai.onnx" else it.domain: it.version for it in model.opset_import}
    # MeanVarianceNormalization has no f16 kernel, and its definition adds a float32 constant.
    blocked = {*DEFAULT_OP_BLOCK_LIST, "MeanVarianceNormalization"}
    return [
        _Operands()
        if node.name in kept or node.op_type in blocked
        else _operands(node, opsets.get("" if node.domain == "ai.onnx" else node.domain, 1), floats, others)
        for node in model.graph.node
    ]


def _operands(node: Any, opset: int, floats: frozenset[str], others: frozenset[str]) -> _Operands:
    """Returns the operands of a node that can be halves.

    A node stays unchanged if it has a body, no schema, or operands of unknown type, or if an attribute makes its output float32."""
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
    """Yields the schema's type of each operand: a variable or a type. The last parameter may be variadic."""
    return (parameters[min(k, len(parameters) - 1)].typeStr for k in range(count))


@cache
def _schema(op_type: str, domain: str, opset: int) -> Any | None:
    """Returns the newest schema that is not newer than `opset`."""
    found = [it for it in _schemas().get((op_type, domain), ()) if it.since_version <= opset]
    return max(found, key=lambda it: it.since_version, default=None)


@cache
def _schemas() -> dict[tuple[str, str], list[Any]]:
    """Returns the schemas of this build of ONNX Runtime, including its own operators."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    found: dict[tuple[str, str], list[Any]] = {}
    for it in get_all_operator_schema():
        found.setdefault((it.name, it.domain), []).append(it)
    return found


def _read_exactly(graph: Any, chosen: list[_Operands]) -> set[str]:
    """Returns the names that are read as float32: by nodes, by their bodies, or as graph outputs."""
    found = {it.name for it in graph.output}
    for node, its in zip(graph.node, chosen, strict=True):
        found.update(name for k, name in enumerate(node.input) if k not in its.inputs)
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                found |= _read_exactly(body, [_Operands()] * len(body.node))
    return found
