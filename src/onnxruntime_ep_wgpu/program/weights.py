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
    """A weight that is the model's weight `of` with its axes permuted: its axis k is axis `permutation[k]` of that one. `data`, an
    array or lazy tensor, has the elements of that one where they are at hand."""

    of: str
    permutation: tuple[int, ...]
    data: Any = None

    @property
    def name(self) -> str:
        """What it is called."""
        return name_in_order(self.of, self.permutation)

    def numpy(self) -> Any:
        """The weight as a view of what the model has."""
        return weight_array(self.data).transpose(self.permutation)

    def transposed(self) -> tuple[int, int, int] | None:
        """(rows, columns, bits) of the matrices that follow each other in the model's weight, if the permutation transposes each of
        them; `bits` are those of an element. None for other permutations, and elements that are no part of 32 bits."""
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
    """The numpy array of a weight, which may be a lazy onnx_ir tensor; elements narrower than a byte as packed bytes."""
    if hasattr(weight, "numpy_packed"):
        return weight.numpy_packed().reshape(-1)  # as it lies in memory, of which `numpy` would make an element a byte
    array = np.asarray(weight.numpy() if hasattr(weight, "numpy") else weight)
    return packed(array) if DType.of_numpy(array.dtype).bits < 8 else array


def weight_names(program: Program) -> list[str]:
    """The name of every weight in the model, "" for one that was calculated."""
    names = {value.weight: value.name for value in program.values}
    return [names.get(number, "") for number in range(len(program.weights))]


def weight_sizes(program: Program) -> list[int]:
    """Bytes of every weight."""
    values = {value.weight: value for value in program.values if value.storage is Storage.WEIGHT}
    sizes = {k: it.dtype.nbytes(math.prod(d for d in it.shape if isinstance(d, int))) for k, it in values.items()}
    return [sizes.get(number, 0) for number in range(len(program.weights))]


def weight_bytes(array: Any) -> memoryview:
    """The memory of an array in row-major order, as bytes."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
