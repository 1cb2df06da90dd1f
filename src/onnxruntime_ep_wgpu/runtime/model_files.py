"""All files of a model: its own, and those of its external data.

In: the path of a model. Out: paths. Invariants: the answer is None if the file cannot be read, or if anything but an
initializer of the main graph may be in another file. Links are not followed here, because a link may lead elsewhere later.
"""

from __future__ import annotations

import os
from functools import partial

from .protobuf import Data, fields, read_model

# Field numbers of onnx.proto: ModelProto, GraphProto, TensorProto and StringStringEntryProto.
_GRAPH, _TRAINING, _FUNCTION = 7, 20, 25
_NODE, _INITIALIZER, _SPARSE = 1, 5, 15
_EXTERNAL_DATA, _KEY, _VALUE = 13, 1, 2
_LOCATION = b"location"


def model_files(model: str) -> list[str] | None:
    """Returns the absolute paths of a model and of its external data; None if there may be others."""
    path = os.path.abspath(model)
    return read_model(path, partial(_found, path))


def _found(path: str, data: Data) -> list[str] | None:
    found = {path: None}
    for number, start, end in fields(data, 0, len(data)):
        if number == _GRAPH:
            for inner, at, until in fields(data, start, end):
                if inner == _INITIALIZER:
                    for name in _locations(data, at, until):
                        found[os.path.join(os.path.dirname(path), name)] = None
                elif inner in (_NODE, _SPARSE) and data.find(_LOCATION, at, until) >= 0:
                    return None  # perhaps a tensor in an attribute
        elif number in (_FUNCTION, _TRAINING) and data.find(_LOCATION, start, end) >= 0:
            return None
    return list(found)


def _locations(data: Data, start: int, end: int) -> list[str]:
    found = []
    for number, at, until in fields(data, start, end):
        if number == _EXTERNAL_DATA:
            entry = {inner: data[a:b] for inner, a, b in fields(data, at, until)}
            if entry.get(_KEY) == _LOCATION:
                found.append(entry.get(_VALUE, b"").decode())
    return found
