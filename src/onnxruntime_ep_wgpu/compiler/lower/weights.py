"""The constants of a graph as weights of its Program. Each is stored once, however many views there are of it.

In: numpy arrays and onnx_ir tensors, which are read when the Program is loaded on a device. Out: operands. Invariant: a
constant is one tensor per axis order that kernels need.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...program.dtypes import DType
from ...program.weights import Permuted
from ..dims import floordiv, product
from ..ir import Shape, Storage, Tensor, View
from .operand import LARGEST_HOST_VALUE, Operand
from .requirements import Requirements


class Weights:
    """The weights of one graph."""

    def __init__(self, requirements: Requirements) -> None:
        self._check_size = requirements.check_size
        self._literals: dict[tuple[DType, Shape, bytes], Tensor] = {}  # created during lowering; equal ones share one
        self._bits: dict[tuple[Tensor, DType], Tensor] = {}
        self._permuted: dict[tuple[Tensor, tuple[int, ...]], Tensor] = {}

    def constant(self, value: Any, name: str = "") -> Operand:
        """Returns a weight for a numpy array, or for an onnx_ir tensor, which is read when the program is loaded on a device."""
        dtype, shape = (
            DType.of_numpy(value.dtype if isinstance(value, np.ndarray) else value.dtype.numpy()),
            tuple(map(int, value.shape)),
        )
        tensor = Tensor(dtype, shape, Storage.WEIGHT, name, data=value)
        if isinstance(value, np.ndarray) and value.size == 1 and not name:
            tensor = self._literals.setdefault((dtype, shape, value.tobytes()), tensor)
        self._check_size(tensor, f"the weight {name!r}")
        view, size = View.of(tensor), math.prod(shape)
        if (dtype.is_integer or dtype is DType.BOOL) and size <= LARGEST_HOST_VALUE:
            array = np.asarray(value if isinstance(value, np.ndarray) else value.numpy())
            return Operand(dtype, shape, view, host=lambda: array.astype(object), known=True)
        return Operand(dtype, shape, view)

    def is_memory(self, x: Operand) -> bool:
        """Whether x is a weight in its memory order."""
        return x.view.tensor.storage is Storage.WEIGHT and x.view.is_whole

    def bits(self, weight: Operand, dtype: DType, shape: Shape) -> Operand:
        """Returns the memory of a weight as elements of another type, the first element in the low bits."""
        tensor = weight.view.tensor
        if dtype is not tensor.dtype and (tensor, dtype) not in self._bits:
            count = product(tensor.shape) * tensor.dtype.bits
            self._bits[tensor, dtype] = Tensor(
                dtype, (floordiv(count, dtype.bits),), Storage.WEIGHT, tensor.name, data=tensor.data
            )
        view = View.of(self._bits.get((tensor, dtype), tensor)).reshape(tuple(shape))
        assert view is not None
        return Operand(dtype, tuple(shape), view)

    def contiguous(self, x: Operand) -> Operand | None:
        """Returns a weight with permuted axes as a weight stored in that order; None for any other operand."""
        tensor, permutation = x.view.tensor, x.view.permutation
        if permutation is None or tensor.storage is not Storage.WEIGHT or tensor.dtype.bits < 8:
            return None
        key = tensor, permutation
        if key not in self._permuted:
            data = Permuted(tensor.name, permutation, tensor.data)
            self._permuted[key] = Tensor(tensor.dtype, x.shape, Storage.WEIGHT, data.name, data=data)
        return Operand(x.dtype, x.shape, View.of(self._permuted[key]))
