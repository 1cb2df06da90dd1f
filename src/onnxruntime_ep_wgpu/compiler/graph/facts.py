"""Records which constants of a graph the compiler read. A Program depends on these, besides the structure of the graph.

In: the memory of constants. Out: onnx_ir tensors that record reads of their elements, and the names of those that were read.
Invariant: reading elements always leaves a record, except through `read_unrecorded`. Type and shape are not facts: they are part
of the graph.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

Array = np.ndarray[Any, Any]
_KEY = "facts"
_READING = ("numpy", "numpy_packed", "raw", "__array__", "__dlpack__", "tobytes", "tofile")


class _Recorded(ir.Tensor[Array]):
    """A tensor that records reads of its elements."""

    __slots__ = ("facts",)
    facts: Facts


class _RecordedPacked(ir.PackedTensor[Array]):
    """A packed tensor, with elements narrower than a byte, that records reads of its elements."""

    __slots__ = ("facts",)
    facts: Facts


class Facts:
    """The names of the constants of one graph that were read."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def constant(self, raw: Array, dtype: ir.DataType, shape: tuple[int, ...], name: str) -> ir.TensorProtocol:
        """Returns a constant backed by the bytes `raw`, without a copy."""
        made: _Recorded | _RecordedPacked
        if dtype.bitwidth < 8:
            made = _RecordedPacked(raw, dtype, shape=ir.Shape(shape), name=name)
        else:
            made = _Recorded(raw.view(dtype.numpy()).reshape(shape), dtype, name=name)
        made.facts = self
        return made


def read_unrecorded(tensor: ir.TensorProtocol) -> Array:
    """Returns the elements of a tensor without a record. Elements narrower than a byte are packed.

    The caller must make the results of this read part of a key in another way.
    """
    if isinstance(tensor, ir.PackedTensor):
        return ir.PackedTensor.numpy_packed(tensor)
    return ir.Tensor.numpy(tensor) if isinstance(tensor, ir.Tensor) else tensor.numpy()


def begin(graph: ir.Graph, facts: Facts) -> None:
    """Attaches the record of reads to a graph."""
    graph.meta[_KEY] = facts


def constants_read(graph: ir.Graph) -> frozenset[str]:
    """Returns the names of the constants of a graph that were read so far. Without a record these are all constants."""
    facts = graph.meta.get(_KEY)
    return frozenset(graph.initializers if facts is None else facts.names)


def facts_of(graph: ir.Graph) -> Mapping[str, str]:
    """Returns digests of the constants that were read, by name."""
    return digests(graph, constants_read(graph))


def digests(graph: ir.Graph, names: Iterable[str]) -> dict[str, str]:
    """Returns digests of the named constants that the graph has."""
    found = {name: graph.initializers[name].const_value for name in sorted(names) if name in graph.initializers}
    return {
        name: hashlib.sha256(np.ascontiguousarray(read_unrecorded(it)).reshape(-1).view(np.uint8).data).hexdigest()
        for name, it in found.items()
        if it is not None and it.dtype != ir.DataType.STRING
    }


def _recording(read: Callable[..., Any]) -> Callable[..., Any]:
    def recorded(self: _Recorded | _RecordedPacked, *args: Any, **options: Any) -> Any:
        self.facts.names.add(self.name or "")
        return read(self, *args, **options)

    return recorded


for _kind in (_Recorded, _RecordedPacked):
    for _name in _READING:
        _member = inspect.getattr_static(_kind, _name, None)
        if isinstance(_member, property):
            assert _member.fget is not None
            setattr(_kind, _name, property(_recording(_member.fget)))
        elif _member is not None:
            setattr(_kind, _name, _recording(_member))
