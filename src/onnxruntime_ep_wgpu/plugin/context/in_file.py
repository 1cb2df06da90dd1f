"""Reads the EPContext nodes of a compiled model from its file.

In: the path or the bytes of a model. Out: its EPContext nodes; none if it cannot be read. ONNX Runtime presents bodies before
the enclosing graph, and gives no access to that graph then. Therefore the entries for bodies come from the model's file.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...runtime.protobuf import Data, fields, last_number, read_model
from ..assign.shown import ShownAttribute, ShownNode, ShownValue
from .nodes import DOMAIN, OPERATOR

# Field numbers of onnx.proto: ModelProto, GraphProto, NodeProto and AttributeProto.
_GRAPH, _NODE = 7, 1
_INPUT, _OUTPUT, _NAME, _OPERATOR, _ATTRIBUTE, _DOMAIN = 1, 2, 3, 4, 5, 7
_ATTRIBUTE_NAME, _INTEGER, _TEXT, _TYPE = 1, 3, 4, 20
_IS_INTEGER, _IS_TEXT = 2, 3


def context_nodes(model: str | bytes | None) -> list[ShownNode]:
    """Returns the EPContext nodes of the main graph, in its order."""
    return read_model(model, lambda data: list(_nodes(data))) or []


def _nodes(data: Data) -> Iterator[ShownNode]:
    for number, start, end in fields(data, 0, len(data)):
        if number == _GRAPH:
            for inner, at, until in fields(data, start, end):
                if inner == _NODE and data.find(OPERATOR.encode(), at, until) >= 0:
                    node = _node(data, at, until)
                    if (node.domain, node.op_type) == (DOMAIN, OPERATOR):
                        yield node


def _node(data: Data, start: int, end: int) -> ShownNode:
    texts: dict[int, list[str]] = {}
    attributes = []
    for number, at, until in fields(data, start, end):
        if number == _ATTRIBUTE:
            attributes += _attribute(data, at, until)
        elif number in (_INPUT, _OUTPUT, _NAME, _OPERATOR, _DOMAIN):
            texts.setdefault(number, []).append(data[at:until].decode())
    domain, operator, name = (texts.get(it, [""])[-1] for it in (_DOMAIN, _OPERATOR, _NAME))
    inputs, outputs = (list(map(ShownValue, texts.get(it, ()))) for it in (_INPUT, _OUTPUT))
    return ShownNode(domain, operator, 1, name, [it if it.name else None for it in inputs], outputs, attributes)


def _attribute(data: Data, start: int, end: int) -> list[ShownAttribute]:
    """Returns the attribute if it is an integer or a string, otherwise none."""
    kind = last_number(data, start, end, _TYPE)
    found = {number: data[at:until] for number, at, until in fields(data, start, end)}
    name = found.get(_ATTRIBUTE_NAME, b"").decode()
    if kind == _IS_INTEGER:
        return [ShownAttribute(name, "int", last_number(data, start, end, _INTEGER))]
    if kind == _IS_TEXT:
        return [ShownAttribute(name, "string", found.get(_TEXT, b"").decode("utf-8", "surrogateescape"))]
    return []
