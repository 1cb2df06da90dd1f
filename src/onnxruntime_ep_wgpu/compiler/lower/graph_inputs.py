"""The inputs of a graph as operands. Their extents are symbols, and so are elements of small integers, and bits of short
inputs of floats: a run gives them values.

In: values of the ONNX graph that no node makes, and values of symbols that are known already. Out: operands, the tensors behind
them and the symbols, each with the input and the axis or element that gives it. Invariant: extents are one symbol only where the
model gives them one name, which is none that says nothing ("?", a number).
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

MOST_FLOATS = 64  # of an input whose bits decide: scales and regions are this short
_BITS = {DType.FLOAT32: DType.UINT32, DType.FLOAT16: DType.UINT16}


class GraphInputs:
    """Those of one graph. `fixed` gives values to symbols, by label."""

    def __init__(self, requirements: Requirements, fixed: Mapping[str, int]) -> None:
        self._check_size, self._fixed = requirements.check_size, fixed
        self._reads_conditions = requirements.settings.reads_conditions
        self.tensors: list[Tensor] = []
        self.symbols: dict[str, tuple[str, int, int, bool]] = {}
        self.names: dict[Dim, str] = {}  # of extents, as the model has them

    def operand(self, value: ir.Value, info: ValueInfo | None = None) -> Operand:
        """An input of the graph, or a value that a node on another provider produces. `info` is what is known of it."""
        info = info or of_value(value)
        if value.type is not None and not isinstance(value.type, ir.TensorType):
            raise UnsupportedError(f"{value.name!r} is not a tensor")
        if info.dtype is None:
            raise UnsupportedError(f"the type of {value.name!r} is unknown, or no tensor's")
        if info.shape is None:
            raise UnsupportedError(f"the rank of {value.name!r} is unknown")
        dtype, name, index = _dtype(info.dtype), value.name or "", len(self.tensors)
        shape = tuple(self._dim(name, index, axis, extent) for axis, extent in enumerate(info.shape))
        tensor = Tensor(dtype, shape, Storage.INPUT, name)
        self._check_size(tensor, f"the input {name!r}")
        self.tensors.append(tensor)
        # An extent of 0 beside one that the run decides is a size of 0, and no shape.
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
    """What an extent of the input `name` that the run decides is called, alone or with others that the model calls the same."""
    return label_of(dim) or unnamed(name, axis)


def unnamed(name: str, axis: int) -> str:
    """What an extent of the input `name` is called that the model gives no name."""
    return f"{name}.shape[{axis}]"


def _dtype(dtype: Any) -> DType:
    try:
        return DType.of(int(dtype))
    except KeyError:
        raise UnsupportedError(f"tensors of type {dtype.name.lower()} are not supported") from None
