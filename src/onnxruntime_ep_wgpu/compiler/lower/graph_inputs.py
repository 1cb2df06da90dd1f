"""The inputs of a graph as operands. These are symbols, which get their values from a run:

* unknown extents,
* elements of small integer inputs,
* bits of short float inputs.

In: values of the ONNX graph that no node produces, and values of symbols that are already known. Out: operands, their
tensors, and the symbols, each with its input and the axis or element that defines it. Invariant: extents share a symbol only
if the model gives them the same name. Placeholders ("?", a number) are not names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from ...errors import UnsupportedError
from ...program.dtypes import DType
from ...program.program import NO_EXTENT
from ..dims import Dim, symbol
from ..graph.inference.value_info import Extent, ValueInfo, label_of, of_value
from ..ir import Storage, Tensor, View
from .operand import LARGEST_HOST_VALUE, Operand
from .requirements import Requirements

MOST_FLOATS = 64  # of an input with bits that decide something: scales and regions are this short
_BITS = {DType.FLOAT32: DType.UINT32, DType.FLOAT16: DType.UINT16}


class GraphInputs:
    """The inputs of one graph. `fixed` maps labels of symbols to values."""

    def __init__(self, requirements: Requirements, fixed: Mapping[str, int]) -> None:
        self._check_size, self._fixed = requirements.check_size, fixed
        self._reads_conditions = requirements.settings.reads_conditions
        self.tensors: list[Tensor] = []
        self.symbols: dict[str, tuple[str, int, int, bool]] = {}
        self.names: dict[Dim, str] = {}  # of extents, as in the model

    def operand(self, value: ir.Value, info: ValueInfo | None = None) -> Operand:
        """Returns the operand for an input of the graph, or for a value that a node on another provider produces. `info` is
        its known type and shape."""
        info = info or of_value(value)
        if value.type is not None and not isinstance(value.type, ir.TensorType):
            raise UnsupportedError(f"{value.name!r} is not a tensor")
        if info.dtype is None:
            raise UnsupportedError(f"the type of {value.name!r} is unknown, or is not a tensor type")
        if info.shape is None:
            raise UnsupportedError(f"the rank of {value.name!r} is unknown")
        dtype, name, index = _dtype(info.dtype), value.name or "", len(self.tensors)
        shape = tuple(self._dim(name, index, axis, extent) for axis, extent in enumerate(info.shape))
        tensor = Tensor(dtype, shape, Storage.INPUT, name)
        self._check_size(tensor, f"the input {name!r}")
        self.tensors.append(tensor)
        # All extents must be known: 0 times an unknown extent would pass the test of the size.
        known = [dim for dim in shape if isinstance(dim, int)]
        is_small = len(known) == len(shape) and math.prod(known) <= LARGEST_HOST_VALUE // 2
        elements = partial(self._elements, name, index, shape, _BITS.get(dtype) or dtype)
        conditions = dtype is DType.BOOL and self._reads_conditions
        if (conditions or (dtype.is_integer and dtype.bits >= 8)) and is_small:
            return Operand(dtype, shape, View.of(tensor), host=elements)
        if dtype.is_integer and dtype.bits >= 8 and len(shape) == 1:
            listed = lambda count: self._elements(name, index, (count,), dtype)  # noqa: E731
            return Operand(dtype, shape, View.of(tensor), listed=listed)
        if dtype in _BITS and is_small and math.prod(known) <= MOST_FLOATS:
            return Operand(dtype, shape, View.of(tensor), bits=elements)
        return Operand(dtype, shape, View.of(tensor))

    def _dim(self, name: str, index: int, axis: int, extent: Extent) -> Dim:
        if isinstance(extent, int):
            return extent
        label = extent or unnamed(name, axis)
        if label in self._fixed:
            return self._fixed[label]
        self.symbols.setdefault(label, (label, index, axis, False))
        found = symbol(label)
        if extent is not None:
            self.names[found] = extent
        return found

    def _elements(self, name: str, index: int, shape: tuple[Dim, ...], dtype: DType) -> Any:
        array: Any = np.empty(tuple(map(int, shape)), object)  # type: ignore[arg-type]
        for k in range(array.size):
            label = f"{NO_EXTENT}{name}[{k}]"
            if label in self._fixed:
                array.reshape(-1)[k] = self._fixed[label]
                continue
            self.symbols.setdefault(label, (label, index, k, True))
            array.reshape(-1)[k] = symbol(label, dtype.limits)
        return array


def extent_label(name: str, axis: int, dim: Any) -> str:
    """The label of an extent of the input `name` that the run decides: the model's name for it, which other extents may share."""
    return label_of(dim) or unnamed(name, axis)


def unnamed(name: str, axis: int) -> str:
    """The label of an extent of the input `name` that has no name in the model."""
    return f"{name}.shape[{axis}]"


def _dtype(dtype: Any) -> DType:
    try:
        return DType.of(int(dtype))
    except KeyError:
        raise UnsupportedError(f"tensors of type {dtype.name.lower()} are not supported") from None
