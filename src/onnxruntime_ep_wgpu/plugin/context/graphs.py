"""Converts the graph of a group to JSON, without the elements of its constants, and back.

In: a `ShownGraph`, and a function that stores the elements of a constant. Out: JSON. In the other direction, untrusted JSON
gives the same graph, or an EntryError. Invariant: the keys of both graphs are equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...kept.entry import EntryError, understood
from ...program.dtypes import DType
from ...program.reading import MOST, MOST_AXES
from ..assign.shown import STRING, Bytes, Constant, ShownAttribute, ShownGraph, ShownNode, ShownValue
from ..memory.descriptors import ONNX_BITS
from ..store.claims import is_code

Place = list[Any]
"""The place of elements, as JSON; empty for a constant that is tied to another one."""
Keep = Callable[[str, Constant], Place]
"""Stores the elements of a constant, and returns their place. The name is "" for a constant of an attribute."""
Find = Callable[[str, Any, int], Bytes]
"""Returns the stored elements of a constant, by name, place and number of bytes. Raises EntryError."""

_MOST_VERSION = 2**31 - 1
_ARRAYS: dict[str, type[np.generic]] = {"ints": np.int64, "floats": np.float32}


def graph_to_json(graph: ShownGraph, keep: Keep) -> dict[str, Any]:
    """Returns the graph as JSON. `keep` stores the elements of its constants."""
    numbers: dict[int, int] = {}
    values: list[Any] = []

    def number(it: ShownValue | None) -> int:
        if it is None:
            return -1
        if id(it) not in numbers:
            numbers[id(it)] = len(values)
            values.append([it.name, it.code, None if it.shape is None else list(it.shape)])
        return numbers[id(it)]

    def constant(name: str, it: Constant) -> list[Any]:
        return [it.code, list(it.shape), None if it.code == STRING else keep(name, it)]

    def attribute(it: ShownAttribute) -> list[Any]:
        if it.kind == "graph":
            raise EntryError(f"the attribute {it.name!r} is a graph")
        value = it.value
        if it.kind == "tensor":
            value = constant("", value)
        elif it.kind in _ARRAYS:
            raw = np.ascontiguousarray(value).view(np.uint8)
            value = [len(value), keep("", Constant(DType.UINT8.code, 8, (raw.size,), raw))]
        elif it.kind == "float":
            value = value.hex()
        return [it.name, it.kind, value]

    nodes = [
        [
            *(it.domain, it.op_type, it.version, it.name),
            list(map(number, it.inputs)),
            list(map(number, it.outputs)),
            list(map(number, it.implicit_inputs)),
            list(map(attribute, it.attributes)),
        ]
        for it in graph.nodes
    ]
    constants = [
        [number(it), *constant(it.name, it.constant)] for it in graph.initializers.values() if it.constant is not None
    ]
    inputs, outputs = ([number(it) for it in them] for them in (graph.inputs, graph.outputs))
    return {
        "inputs": inputs,
        "outputs": outputs,
        "nodes": nodes,
        "constants": constants,
        "opsets": graph.opset_imports,
        "values": values,
    }


def graph_from_json(found: Any, name: str, find: Find) -> ShownGraph:
    """Returns the graph from the result of `graph_to_json`, with this name. Raises EntryError."""
    with understood():
        return _Reader(found, find).graph(name)


class _Reader:
    def __init__(self, found: Any, find: Find) -> None:
        self._found, self._find = found, find
        self._values = [_value(*row) for row in found["values"]]

    def graph(self, name: str) -> ShownGraph:
        found = self._found
        nodes = [self._node(*row) for row in found["nodes"]]
        initializers = {}
        for number, *constant in found["constants"]:
            value = self._value_at(number)
            if value.maker is not None or not value.name or value.name in initializers:
                raise EntryError("a constant has no name of its own, or is an output of a node")
            value.constant = self._constant(value.name, *constant)
            initializers[value.name] = value
        opsets = {_text(domain): _version(number) for domain, number in found["opsets"].items()}
        inputs, outputs = ([self._value_at(it) for it in found[which]] for which in ("inputs", "outputs"))
        if any(it.maker is not None or it.constant is not None for it in inputs):
            raise EntryError("an input of the graph is also a constant or an output of a node")
        return ShownGraph(name, inputs, outputs, nodes, initializers, opsets)

    def _value_at(self, number: Any) -> ShownValue:
        if type(number) is not int or number < 0:
            raise EntryError("the number of a value is invalid")
        return self._values[number]

    def _node(
        self,
        domain: Any,
        op_type: Any,
        version: Any,
        name: Any,
        inputs: Any,
        outputs: Any,
        implicit: Any,
        attributes: Any,
    ) -> ShownNode:
        made = ShownNode(
            *(_text(domain), _text(op_type), _version(version), _text(name)),
            [None if it == -1 else self._value_at(it) for it in inputs],
            [self._value_at(it) for it in outputs],
            [self._attribute(*it) for it in attributes],
            [self._value_at(it) for it in implicit],
        )
        for value in made.outputs:
            if value.maker is not None:
                raise EntryError("a value is an output of several nodes")
            value.maker = made
        return made

    def _attribute(self, name: Any, kind: Any, value: Any) -> ShownAttribute:
        return ShownAttribute(_text(name), _text(kind), self._of_kind(kind, value))

    def _of_kind(self, kind: str, value: Any) -> Any:
        if kind in _ARRAYS:
            count, place = value
            array = np.empty(0, _ARRAYS[kind])
            return self._find("", place, _size(count) * array.itemsize).view(array.dtype)
        if kind == "tensor":
            return self._constant("", *value)
        if kind == "float":
            return float.fromhex(_text(value))
        if kind == "strings":
            return [_text(it, "surrogateescape") for it in value]
        if kind == "string":
            return _text(value, "surrogateescape")
        if kind == "type":
            return None
        if kind != "int":
            raise EntryError("the kind of an attribute is invalid")
        return _integer(value)

    def _constant(self, name: str, code: Any, shape: Any, place: Any) -> Constant:
        extents = tuple(_size(it) for it in shape)
        if code == STRING:
            return Constant(code, 0, extents, np.empty(0, np.uint8))
        if type(code) is not int or code not in ONNX_BITS or len(extents) > MOST_AXES:
            raise EntryError("the type or shape of a constant is invalid")
        nbytes = -(-math.prod(extents) * ONNX_BITS[code] // 8)
        raw = self._find(name, place, nbytes) if place or not name else np.empty(0, np.uint8)
        return Constant(code, ONNX_BITS[code], extents, raw)


def _value(name: Any, code: Any, shape: Any) -> ShownValue:
    extents = None if shape is None else tuple(map(_extent, shape))
    if not is_code(code):
        raise EntryError("the type of a value is invalid")
    return ShownValue(_text(name), code, extents)


def _text(it: Any, errors: str = "strict") -> str:
    if type(it) is not str:
        raise EntryError("expected a string")
    it.encode(errors=errors)  # raises for what ONNX Runtime cannot have as bytes
    return it


def _integer(it: Any) -> int:
    if type(it) is not int or not -MOST < it < MOST:
        raise EntryError("expected an integer")
    return it


def _version(it: Any) -> int:
    if not 0 <= _integer(it) <= _MOST_VERSION:
        raise EntryError("the version of an operator is invalid")
    return int(it)


def _extent(it: Any) -> int | str | None:
    return None if it is None else _text(it) if type(it) is str else _size(it)


def _size(it: Any) -> int:
    if _integer(it) < 0:
        raise EntryError("expected an integer that is not negative")
    return int(it)
