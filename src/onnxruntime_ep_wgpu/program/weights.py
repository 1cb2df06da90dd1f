"""The weights of a Program as memory. In: arrays, or lazy tensors of onnx_ir. Out: numpy arrays, their bytes, their names."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..records import dataclass
from .axes import name_in_order
from .dtypes import DType, packed
from .program import Program, Storage


@dataclass(frozen=True)
class Permuted:
    """The model's weight `of` with permuted axes: axis k is axis `permutation[k]` of that one.

    `data`, an array or lazy tensor, has the elements of that one if they are available.
    """

    of: str
    permutation: tuple[int, ...]
    data: Any = None

    @property
    def name(self) -> str:
        """The name in the Program."""
        return name_in_order(self.of, self.permutation)

    def numpy(self) -> Any:
        """The weight as a view of the model's data."""
        return weight_array(self.data).transpose(self.permutation)

    def transposed(self) -> tuple[int, int, int] | None:
        """Returns (rows, columns, bits) of the consecutive matrices in the model's weight, if the permutation transposes each
        of them.

        `bits` are those of an element. None for other permutations, and for elements of more than 32 bits.
        """
        axes = [it for it in self.permutation if self.data.shape[it] != 1]
        count = next(
            (k for k, (axis, first) in enumerate(zip(axes, sorted(axes), strict=True)) if axis != first), len(axes)
        )
        moved = axes[count:]
        if not moved or (bits := weight_array(self.data).itemsize * 8) > 32:
            return None
        cut = moved.index(min(moved))
        if moved[cut:] + moved[:cut] != sorted(moved):
            return None
        rows, columns = (math.prod(int(self.data.shape[it]) for it in part) for part in (moved[cut:], moved[:cut]))
        return rows, columns, bits


def weight_array(weight: Any) -> Any:
    """Returns the numpy array of a weight, which may be a lazy onnx_ir tensor.

    Elements narrower than a byte are packed into bytes.
    """
    if hasattr(weight, "numpy_packed"):
        return weight.numpy_packed().reshape(-1)  # as in memory; `numpy` would unpack each element to a byte
    array = np.asarray(weight.numpy() if hasattr(weight, "numpy") else weight)
    return packed(array) if DType.of_numpy(array.dtype).bits < 8 else array


def weight_names(program: Program) -> list[str]:
    """Returns the name of every weight in the model, "" for calculated ones."""
    names = {value.weight: value.name for value in program.values}
    return [names.get(number, "") for number in range(len(program.weights))]


def weight_sizes(program: Program) -> list[int]:
    """Returns the bytes of every weight."""
    values = {value.weight: value for value in program.values if value.storage is Storage.WEIGHT}
    sizes = {k: it.dtype.nbytes(math.prod(d for d in it.shape if isinstance(d, int))) for k, it in values.items()}
    return [sizes.get(number, 0) for number in range(len(program.weights))]


def weight_bytes(array: Any) -> memoryview:
    """Returns the memory of an array in row-major order, as bytes."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
