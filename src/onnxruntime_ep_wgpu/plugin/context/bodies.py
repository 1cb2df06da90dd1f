"""Checks whether ONNX Runtime can write the bodies of a compiled model correctly.

In: a body from ONNX Runtime after its optimiser, and the model. Out: the name of a constant that makes the written body wrong.
ONNX Runtime writes the nodes of a body from before the optimiser, but the constants from after it. Invariant: a body is
accepted only if each of these constants has its value in the model, and none is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..assign.forced import loaded
from ..assign.shown import Constant, ShownGraph, ShownNode

_ADVICE = (
    "compile with ort.ModelCompiler, which skips the optimiser, or set SessionOptions.graph_optimization_level to"
    " ORT_DISABLE_ALL"
)
CHANGED = (
    "the compiled model would be wrong: for the body of {node}, ONNX Runtime writes the nodes from before its optimiser and"
    " the constant {constant} from afterwards; "
) + _ADVICE
UNKNOWN = (
    "the compiled model may be wrong: for the body of {node}, ONNX Runtime writes the nodes from before its optimiser and the"
    " constant {constant} from afterwards, and its earlier value is unknown: compile the model from a file, or, for a node of"
    " a function, the model that a session on the CPU provider writes to SessionOptions.optimized_model_filepath"
)


class WrittenBodies:
    """The bodies of one model, which is read at the first check."""

    def __init__(self, source: str | bytes) -> None:
        self._source = source
        self._known: dict[tuple[str, ...], list[Any]] | None = None

    def wrong(self, body: ShownGraph, parent: ShownNode) -> tuple[str, str] | None:
        """Returns a message and the name of a constant, or None if the body is correct.

        CHANGED: the optimiser changed, added or removed the constant. UNKNOWN: the model has no such body, but the body has
        this constant.
        """
        if self._known is None:
            self._known = {}
            model = loaded(self._source) if self._source else None
            for it in [] if model is None else _bodies(model.graph.node):
                self._known.setdefault(tuple(value.name for value in it.output), []).append(it)
        outside = {it.name for it in parent.implicit_inputs}
        constants = {
            name: value.constant for name, value in body.initializers.items() if name not in outside and value.constant
        }
        found = [_difference(constants, body, it) for it in self._known.get(tuple(it.name for it in body.outputs), [])]
        if not found and constants:
            return UNKNOWN, next(iter(constants))
        return None if "" in found or not found else (CHANGED, found[0])


def _bodies(nodes: Iterable[Any]) -> Iterator[Any]:
    """Yields the graphs in attributes of these nodes, also nested ones."""
    for node in nodes:
        for attribute in node.attribute:
            for it in (attribute.g, *attribute.graphs):
                if it.node or it.output:
                    yield it
                    yield from _bodies(it.node)


def _difference(constants: dict[str, Constant], body: ShownGraph, original: Any) -> str:
    """Returns the name of the first constant that differs from the model's; "" if there is none."""
    known = {it.name: it for it in original.initializer} | {
        node.output[0]: node for node in original.node if node.op_type == "Constant" and not node.domain
    }
    for name, it in constants.items():
        if name not in known or not _equal(it, known[name], body):
            return name
    read = {*_reads(original.node), *(it.name for it in original.output)} - {it.name for it in original.input}
    return next((name for name in known if name in read and name not in body.initializers), "")


def _reads(nodes: Iterable[Any]) -> Iterator[str]:
    for node in nodes:
        yield from node.input
        for attribute in node.attribute:
            for it in (attribute.g, *attribute.graphs):
                yield from _reads(it.node)
                yield from (value.name for value in it.output)


def _equal(shown: Constant, original: Any, body: ShownGraph) -> bool:
    """Whether an initializer or Constant node of the model has type, shape and elements of `shown`."""
    if original.DESCRIPTOR.name == "TensorProto" and original.data_location == original.EXTERNAL:
        return shown.raw.ctypes.data in body.in_files  # ONNX Runtime reads it from the file
    tensor = _tensor_of(original)
    return (
        tensor is not None
        and (tensor.dtype.value, tuple(tensor.shape.numpy())) == (shown.code, shown.shape)
        and bool(np.array_equal(np.frombuffer(tensor.tobytes(), np.uint8), shown.raw))
    )


def _tensor_of(original: Any) -> Any:
    """Converts a constant to a tensor of onnx_ir; None for a kind of constant that is not compared."""
    import onnx_ir as ir

    if original.DESCRIPTOR.name == "TensorProto":
        return ir.serde.deserialize_tensor(original)
    (attribute,) = original.attribute
    value = ir.serde.deserialize_attribute(attribute).value
    dtype = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
    if attribute.name == "value":
        return value
    return ir.tensor(np.array(value, dtype[attribute.name])) if attribute.name in dtype else None
