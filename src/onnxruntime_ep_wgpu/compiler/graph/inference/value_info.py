"""What is known of a tensor before a run: its element type and its shape, as far as they are known.

Invariant: a type and a rank hold in every run. Extents are hints, as ONNX Runtime's are: a run may show otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from ....records import dataclass

Extent = int | str | None
"""A number, the name of an extent that the run decides, or None for one without a name."""

Shape = tuple[Extent, ...]


@dataclass(frozen=True)
class ValueInfo:
    """`dtype` is None for an unknown type, or for what is no tensor; `shape` is None for an unknown rank."""

    dtype: ir.DataType | None = None
    shape: Shape | None = None

    @property
    def complete(self) -> bool:
        """Whether type and rank are known."""
        return self.dtype is not None and self.shape is not None


UNKNOWN = ValueInfo()


def of_value(value: ir.Value) -> ValueInfo:
    """What a graph says of a value."""
    if value.dtype is None:
        return UNKNOWN
    return ValueInfo(value.dtype, None if value.shape is None else tuple(map(_extent, value.shape)))


def _extent(dim: int | ir.SymbolicDim) -> Extent:
    if isinstance(dim, int):
        return dim if dim >= 0 else None
    return label_of(dim)


def label_of(dim: int | ir.SymbolicDim) -> str | None:
    """The name of an extent that the run decides. Names that say nothing ("?", a number) must not make two extents equal."""
    label = dim.value if isinstance(dim, ir.SymbolicDim) else None
    return label if isinstance(label, str) and label.isidentifier() else None


def merged(first: ValueInfo, second: ValueInfo) -> ValueInfo:
    """What is known of a tensor by two sources. The first one is believed."""
    return ValueInfo(first.dtype or second.dtype, second.shape if first.shape is None else first.shape)


def joined(first: ValueInfo, second: ValueInfo) -> ValueInfo:
    """What holds of a tensor that is the one or the other."""
    dtype = first.dtype if first.dtype == second.dtype else None
    if first.shape is None or second.shape is None or len(first.shape) != len(second.shape):
        return ValueInfo(dtype)
    return ValueInfo(dtype, tuple(a if a == b else None for a, b in zip(first.shape, second.shape, strict=True)))


def fill(graph: ir.Graph, known: Mapping[str, ValueInfo]) -> dict[str, ValueInfo]:
    """Gives the values of a graph the types and shapes that it does not state, by name. Returns those."""
    found: dict[str, ValueInfo] = {}
    if known:
        for value in {*graph.inputs, *(it for node in graph for it in (*node.inputs, *node.outputs) if it is not None)}:
            info = known.get(value.name or "")
            if info is not None and _fill(value, info):
                found[value.name or ""] = info
    return found


def _fill(value: ir.Value, info: ValueInfo) -> bool:
    """Whether something was not known."""
    dtype, shape = value.type is None and info.dtype is not None, value.shape is None and info.shape is not None
    if dtype and info.dtype is not None:
        value.type = ir.TensorType(info.dtype)
    if shape and info.shape is not None and value.dtype == info.dtype:
        value.shape = ir.Shape(info.shape)
    return dtype or shape
