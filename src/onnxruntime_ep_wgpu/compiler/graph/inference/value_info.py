"""The element type and shape of a tensor, as far as they are known before a run.

Invariant: a type and a rank hold in every run. Extents are hints, as in ONNX Runtime: a run may have others.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from ....records import dataclass

Extent = int | str | None
"""A number, the name of an extent that the run decides, or None for an unnamed one."""

Shape = tuple[Extent, ...]


@dataclass(frozen=True)
class ValueInfo:
    """`dtype` is None for an unknown type or a value that is no tensor; `shape` is None for an unknown rank."""

    dtype: ir.DataType | None = None
    shape: Shape | None = None

    @property
    def complete(self) -> bool:
        """Whether type and rank are known."""
        return self.dtype is not None and self.shape is not None


UNKNOWN = ValueInfo()


def of_value(value: ir.Value) -> ValueInfo:
    """Returns the type and shape of a value as stated in the graph."""
    if value.dtype is None:
        return UNKNOWN
    return ValueInfo(value.dtype, None if value.shape is None else tuple(map(_extent, value.shape)))


def _extent(dim: int | ir.SymbolicDim) -> Extent:
    if isinstance(dim, int):
        return dim if dim >= 0 else None
    return label_of(dim)


def label_of(dim: int | ir.SymbolicDim) -> str | None:
    """Returns the name of an extent that the run decides. Meaningless names ("?", a number) must not make two extents equal."""
    label = dim.value if isinstance(dim, ir.SymbolicDim) else None
    return label if isinstance(label, str) and label.isidentifier() else None


def merged(first: ValueInfo, second: ValueInfo) -> ValueInfo:
    """Merges two descriptions of the same tensor. The first one has priority."""
    return ValueInfo(first.dtype or second.dtype, second.shape if first.shape is None else first.shape)


def joined(first: ValueInfo, second: ValueInfo) -> ValueInfo:
    """Returns what holds for both of two tensors."""
    dtype = first.dtype if first.dtype == second.dtype else None
    if first.shape is None or second.shape is None or len(first.shape) != len(second.shape):
        return ValueInfo(dtype)
    return ValueInfo(dtype, tuple(a if a == b else None for a, b in zip(first.shape, second.shape, strict=True)))


def fill(graph: ir.Graph, known: Mapping[str, ValueInfo]) -> dict[str, ValueInfo]:
    """Adds missing types and shapes to the values of a graph, by name. Returns the added ones."""
    found: dict[str, ValueInfo] = {}
    if known:
        for value in {*graph.inputs, *(it for node in graph for it in (*node.inputs, *node.outputs) if it is not None)}:
            info = known.get(value.name or "")
            if info is not None and _fill(value, info):
                found[value.name or ""] = info
    return found


def _fill(value: ir.Value, info: ValueInfo) -> bool:
    """Returns whether anything was added."""
    dtype, shape = value.type is None and info.dtype is not None, value.shape is None and info.shape is not None
    if dtype and info.dtype is not None:
        value.type = ir.TensorType(info.dtype)
    if shape and info.shape is not None and value.dtype == info.dtype:
        value.shape = ir.Shape(info.shape)
    return dtype or shape
