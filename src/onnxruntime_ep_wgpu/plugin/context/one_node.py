"""Writes a model of one EPContext node as bytes, without a library for protobuf.

In: the metadata of a model, its inputs and outputs, and a node. Out: an ONNX file with the same inputs, outputs and metadata,
and this single node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...names import VENDOR
from ..assign.shown import ShownValue
from .nodes import DOMAIN, OPERATOR

_IR_VERSION, _OPSET = 10, 21  # supported by every onnxruntime that this package supports
_VARINT, _BYTES = 0, 2
_STRING_ATTRIBUTE = 3


def model_of_one(
    meta: Mapping[str, Any],
    name: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    given: Sequence[ShownValue],
    results: Sequence[ShownValue],
) -> bytes:
    """Returns the model.

    * `meta`: the metadata of the original model (`meta` of `description_of`).
    * `name`, `inputs`, `outputs`: those of the node.
    * `given`, `results`: the inputs and outputs of the model.
    """
    source = _text(1, "source") + _text(4, VENDOR) + _number(20, _STRING_ATTRIBUTE)
    node = b"".join([*(_text(1, it) for it in inputs), *(_text(2, it) for it in outputs)])
    node += _text(3, name) + _text(4, OPERATOR) + _text(7, DOMAIN) + _field(5, source)
    graph = _field(1, node) + _text(2, meta["graph_name"]) + _text(10, meta["graph_description"])
    graph += b"".join([*(_field(11, _value(it)) for it in given), *(_field(12, _value(it)) for it in results)])
    model = _number(1, _IR_VERSION) + _text(2, meta["producer_name"]) + _text(4, meta["domain"])
    model += _number(5, meta["version"]) + _text(6, meta["description"]) + _field(7, graph)
    model += b"".join(_field(8, _text(1, it) + _number(2, version)) for it, version in (("", _OPSET), (DOMAIN, 1)))
    return model + b"".join(
        _field(14, _text(1, key) + _text(2, value)) for key, value in meta["custom_metadata_map"].items()
    )


def _value(it: ShownValue) -> bytes:
    shape = b"" if it.shape is None else _field(2, b"".join(_field(1, _extent(extent)) for extent in it.shape))
    return _text(1, it.name) + _field(2, _field(1, _number(1, it.code or 0) + shape))


def _extent(it: int | str | None) -> bytes:
    if it is None:
        return b""
    return _text(2, it) if isinstance(it, str) else _number(1, it)


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode()) if text else b""


def _field(number: int, data: bytes) -> bytes:
    return bytes([*_varint(number << 3 | _BYTES), *_varint(len(data))]) + data


def _number(number: int, value: int) -> bytes:
    return bytes([*_varint(number << 3 | _VARINT), *_varint(value % (1 << 64))])


def _varint(value: int) -> Iterator[int]:
    while value > 127:
        yield value & 127 | 128
        value >>= 7
    yield value
