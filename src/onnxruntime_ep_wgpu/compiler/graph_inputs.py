"""The inputs of a graph as operands. Their extents are symbols, and so are elements of small integers, to which a run gives values.

In: values of the ONNX graph that no node makes, and values of symbols that are known already. Out: operands, the tensors behind
them and the symbols, each with the input and the axis or element that tells it. Invariant: extents are one symbol only where the
model gives them one name, which is none that says nothing ("?", a number).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from ..errors import UnsupportedError
from ..program.dtypes import DType
from ..program.program import NO_EXTENT
from .dims import Dim, symbol
from .ir import Storage, Tensor, View
from .messages import unknown_rank
from .operand import LARGEST_HOST_VALUE, Operand
from .requirements import Requirements


class GraphInputs:
    """Those of one graph. `fixed` gives values to symbols, by label."""

    def __init__(self, requirements: Requirements, fixed: Mapping[str, int]) -> None:
        self._check_size, self._fixed = requirements.check_size, fixed
        self.tensors: list[Tensor] = []
        self.symbols: dict[str, tuple[str, int, int, bool]] = {}

    def operand(self, value: ir.Value) -> Operand:
        """An input of the graph, or a value that a node on another provider produces."""
        if value.dtype is None:
            raise UnsupportedError(f"the type of {value.name!r} is unknown, or no tensor's")
        if not isinstance(value.type, ir.TensorType):
            raise UnsupportedError(f"{value.name!r} is not a tensor")
        if value.shape is None:
            raise unknown_rank(value)
        dtype, name, index = _dtype(value.dtype), value.name or "", len(self.tensors)
        shape = tuple(self._dim(name, index, axis, d) for axis, d in enumerate(value.shape))
        tensor = Tensor(dtype, shape, Storage.INPUT, name)
        self._check_size(tensor, f"the input {name!r}")
        self.tensors.append(tensor)
        # An extent of 0 beside one that the run decides is a size of 0, and no shape.
        known = [dim for dim in shape if isinstance(dim, int)]
        if (
            dtype.is_integer
            and dtype.bits >= 8
            and len(known) == len(shape)
            and math.prod(known) <= LARGEST_HOST_VALUE // 2
        ):
            return Operand(dtype, shape, View.of(tensor), host=lambda: self._elements(name, index, shape, dtype))
        return Operand(dtype, shape, View.of(tensor))

    def _dim(self, name: str, index: int, axis: int, dim: Any) -> Dim:
        if isinstance(dim, int) and dim >= 0:
            return dim
        label = extent_label(name, axis, dim)
        if label in self._fixed:
            return self._fixed[label]
        self.symbols.setdefault(label, (label, index, axis, False))
        return symbol(label)

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


def label_of(dim: Any) -> str | None:
    """The name of an extent that the run decides. Names that say nothing ("?", a number) must not make two extents equal."""
    label = dim.value if isinstance(dim, ir.SymbolicDim) else None
    return label if isinstance(label, str) and label.isidentifier() else None


def extent_label(name: str, axis: int, dim: Any) -> str:
    """What an extent of the input `name` that the run decides is called, alone or with others that the model calls the same."""
    return label_of(dim) or f"{name}.shape[{axis}]"


def _dtype(dtype: Any) -> DType:
    try:
        return DType.of(int(dtype))
    except KeyError:
        raise UnsupportedError(f"tensors of type {dtype.name.lower()} are not supported") from None
