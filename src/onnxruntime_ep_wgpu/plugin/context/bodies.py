"""Whether ONNX Runtime can write the bodies of a compiled model.

In: a body as ONNX Runtime shows it after its optimiser, and the model. Out: the name of a constant that stands against it.
ONNX Runtime writes the nodes that a body had before the optimiser, and the constants that it has afterwards. Invariant: a body
is accepted only where each of these constants has the value that the model gives it, and none is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ..assign.forced import loaded
from ..assign.shown import Constant, ShownGraph, ShownNode

_WAYS_OUT = (
    "compile with ort.ModelCompiler, which leaves the optimiser out, or set SessionOptions.graph_optimization_level to"
    " ORT_DISABLE_ALL"
)
CHANGED = (
    "the compiled model would be wrong: of the body of {node}, ONNX Runtime writes the nodes as they were before its optimiser and"
    " the constant {constant} as it is afterwards; "
) + _WAYS_OUT
UNKNOWN = (
    "the compiled model may be wrong: of the body of {node}, ONNX Runtime writes the nodes as they were before its optimiser and"
    " the constant {constant} as it is afterwards, and nothing says which value it had: compile the model from a file, or, where"
    " the node is of a function, what a session on the CPU provider writes to SessionOptions.optimized_model_filepath"
)


class WrittenBodies:
    """Those of one model, which is read when the first body is asked about."""

    def __init__(self, source: str | bytes) -> None:
        self._source = source
        self._known: dict[tuple[str, ...], list[Any]] | None = None

    def wrong(self, body: ShownGraph, parent: ShownNode) -> tuple[str, str] | None:
        """CHANGED with the name of a constant of a body that the optimiser changed, added or took out; UNKNOWN with that of any
        where the model has no such body; None where nothing is wrong."""
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
    """The graphs in attributes of these nodes, and those in them."""
    for node in nodes:
        for attribute in node.attribute:
            for it in (attribute.g, *attribute.graphs):
                if it.node or it.output:
                    yield it
                    yield from _bodies(it.node)


def _difference(constants: dict[str, Constant], body: ShownGraph, original: Any) -> str:
    """The name of the first constant that is another one in the model; "" where there is none."""
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
    """Whether an initializer or a Constant of the model has these elements."""
    if original.DESCRIPTOR.name == "TensorProto" and original.data_location == original.EXTERNAL:
        return shown.raw.ctypes.data in body.in_files  # it is read from the file
    tensor = _tensor_of(original)
    return (
        tensor is not None
        and (tensor.dtype.value, tuple(tensor.shape.numpy())) == (shown.code, shown.shape)
        and bool(np.array_equal(np.frombuffer(tensor.tobytes(), np.uint8), shown.raw))
    )


def _tensor_of(original: Any) -> Any:
    """As one of onnx_ir; None for a kind of constant that is not compared."""
    import onnx_ir as ir

    if original.DESCRIPTOR.name == "TensorProto":
        return ir.serde.deserialize_tensor(original)
    (attribute,) = original.attribute
    value = ir.serde.deserialize_attribute(attribute).value
    dtype = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
    if attribute.name == "value":
        return value
    return ir.tensor(np.array(value, dtype[attribute.name])) if attribute.name in dtype else None
