"""Converts a `ShownGraph` to an onnx_ir graph, for the compiler.

In: a `ShownGraph`. Out: an onnx_ir graph with the same values, types, attributes and opsets. Its constants are views of the
same memory, and record reads of their elements. `node.meta["ort_node"]` is the OrtNode. Invariant: the attribute of a body is
an empty graph, and the outer values that the body reads are in `node.meta["implicit_inputs"]`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from ...compiler.graph.facts import Facts, begin
from .shown import STRING, Constant, ShownAttribute, ShownGraph, ShownNode, ShownValue

_ATTRIBUTES: dict[str, Callable[[str, Any], ir.Attr]] = {
    "int": ir.AttrInt64,
    "float": ir.AttrFloat32,
    "string": ir.AttrString,
    "ints": lambda name, it: NumbersAttribute(name, ir.AttributeType.INTS, it),
    "floats": lambda name, it: NumbersAttribute(name, ir.AttributeType.FLOATS, it),
    "strings": ir.AttrStrings,
    "tensor": lambda name, it: ir.AttrTensor(name, _tensor(Facts(), it, name)),  # the key has all of it
    "type": lambda name, _: ir.Attr(name, ir.AttributeType.TYPE_PROTO, None),
    "graph": lambda name, _: ir.Attr(name, ir.AttributeType.GRAPH, ir.Graph((), (), nodes=())),
}

ConstantOf = Callable[[str, Constant], ir.TensorProtocol]


def converted(graph: ShownGraph, constant_of: ConstantOf | None = None) -> ir.Graph:
    """Returns the graph in onnx_ir. `constant_of` supplies other tensors in place of the graph's memory."""
    facts = Facts()
    made = _Converter(constant_of or (lambda name, it: _tensor(facts, it, name))).graph(graph)
    begin(made, facts)
    made.meta["in_files"] = graph.in_files
    return made


def converted_node(node: ShownNode) -> ir.Node:
    """Returns one node with its values, outside any graph."""
    return _Converter(lambda name, it: _tensor(Facts(), it, name)).node(node)


def _tensor(facts: Facts, it: Constant, name: str) -> ir.TensorProtocol:
    if it.code == STRING:
        return ir.StringTensor([], shape=ir.Shape(it.shape), name=name)
    return facts.constant(it.raw, ir.DataType(it.code), it.shape, name)


class NumbersAttribute(ir.Attr):
    """A list of integers or floats in an array. A read makes a tuple; onnx_ir would check each number at construction."""

    __slots__ = ("array",)

    def __init__(self, name: str, kind: ir.AttributeType, array: np.ndarray[Any, Any]) -> None:
        super().__init__(name, kind, None)
        self.array = array

    @property
    def value(self) -> tuple[int | float, ...]:
        if self._value is None:
            self._value = tuple(self.array.tolist())
        return self._value  # type: ignore[no-any-return]


class _Converter:
    """Converts one graph, and finds values by identity."""

    def __init__(self, constant_of: ConstantOf) -> None:
        self._constant_of = constant_of
        self._values: dict[int, ir.Value] = {}

    def graph(self, graph: ShownGraph) -> ir.Graph:
        inputs = [self._value(it) for it in graph.inputs]
        nodes = [self.node(it) for it in graph.nodes]
        return ir.Graph(
            inputs,
            [self._value(it) for it in graph.outputs],
            nodes=nodes,
            initializers=[self._value(it) for it in graph.initializers.values()],
            opset_imports=dict(graph.opset_imports),
            name=graph.name,
        )

    def node(self, node: ShownNode) -> ir.Node:
        made = ir.Node(
            node.domain,
            node.op_type,
            [None if it is None else self._value(it) for it in node.inputs],
            [_attribute(it) for it in node.attributes],
            outputs=[self._value(it) for it in node.outputs],
            version=node.version,
            name=node.name,
        )
        made.meta["ort_node"] = node.handle
        made.meta["implicit_inputs"] = [self._value(it) for it in node.implicit_inputs]
        return made

    def _value(self, value: ShownValue) -> ir.Value:
        made = self._values.get(id(value))
        if made is None:
            kind = None if value.code is None else ir.TensorType(ir.DataType(value.code))
            shape = None if value.shape is None else ir.Shape(value.shape)
            made = self._values[id(value)] = ir.Value(name=value.name, shape=shape, type=kind)
            if value.constant is not None:
                made.const_value = self._constant_of(value.name, value.constant)
        return made


def _attribute(it: ShownAttribute) -> ir.Attr:
    return _ATTRIBUTES[it.kind](it.name, it.value)
