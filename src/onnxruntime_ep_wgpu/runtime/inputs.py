"""The inputs of a run: tensors on the device, and a check that the program was compiled for them.

In: the caller's inputs. Out: the values of the program's symbols, or InputError that names the input. Invariant: the device is
not used here. The caller has read the values that set shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from ..device import Buffer, Place
from ..errors import ExtentError, InputError
from ..program.dtypes import DType
from ..program.postfix import Postfix, compile_dims
from ..program.program import Program


class DeviceTensor(NamedTuple):
    """An input: elements at a byte offset of a buffer. `value` has them as numpy if they set shapes or select kernels."""

    dtype: DType
    shape: tuple[int, ...]
    buffer: Buffer | None  # None for an empty tensor
    offset: int = 0
    value: np.ndarray[Any, Any] | None = None

    @property
    def place(self) -> Place | None:
        """Its place on the device; None if it is empty."""
        return None if self.buffer is None else Place(self.buffer, self.offset)


class InputChecks:
    """Checks that the program was compiled for the inputs of a run, and extracts the values of its symbols."""

    def __init__(self, program: Program) -> None:
        self._symbols = program.symbols
        self._elements = [s for s in program.symbols if s.is_element]
        self.valued = frozenset(s.input for s in self._elements)  # the inputs with values that set shapes
        self._values = [program.values[v] for v in program.inputs]
        self.dtypes = [it.dtype for it in self._values]
        self._ranks = [len(it.shape) for it in self._values]
        self._dims: list[tuple[int, int, Postfix]] = [
            (k, axis, d) for k, v in enumerate(self._values) for axis, d in enumerate(v.shape)
        ]
        self._evaluate = compile_dims([d for _, _, d in self._dims], [s.name for s in program.symbols])

    def elements(self, inputs: Sequence[DeviceTensor]) -> tuple[int, ...]:
        """Returns the elements of inputs that set a shape."""
        return tuple([_element(inputs[s.input], s.index) for s in self._elements])

    def symbols(
        self, dtypes: Sequence[DType], shapes: Sequence[tuple[int, ...]], elements: tuple[int, ...]
    ) -> list[int]:
        """Returns the values of the program's symbols, in its order.

        Raises InputError for inputs that it is not compiled for, and ExtentError if only the extents differ.
        """
        self._check_types(shapes, dtypes)
        values = iter(elements)
        symbols = [next(values) if s.is_element else shapes[s.input][s.index] for s in self._symbols]
        self._check_extents(shapes, symbols)
        return symbols

    def _check_types(self, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[DType]) -> None:
        if dtypes == self.dtypes and list(map(len, shapes)) == self._ranks:
            return
        if len(shapes) != len(self._values):
            raise InputError(f"{len(shapes)} inputs are given, the program has {len(self._values)}")
        for value, shape, dtype in zip(self._values, shapes, dtypes, strict=True):
            if len(shape) != len(value.shape):
                raise ExtentError(
                    f"input {value.name!r} has rank {len(shape)} {list(shape)}, the model needs rank {len(value.shape)}"
                )
            if dtype is not value.dtype:
                raise InputError(f"input {value.name!r} is {dtype.label}, the model needs {value.dtype.label}")

    def _check_extents(self, shapes: Sequence[tuple[int, ...]], symbols: Sequence[int]) -> None:
        extents = self._evaluate(symbols)
        if extents == list(chain.from_iterable(shapes)):
            return
        for (k, axis, dim), wanted in zip(self._dims, extents, strict=True):
            if shapes[k][axis] != wanted:
                name = dim if isinstance(dim, int) else " ".join(map(str, dim)).replace("$", "")
                raise ExtentError(
                    f"input {self._values[k].name!r} has {shapes[k][axis]} elements along axis {axis}, "
                    f"the model needs {wanted} ({name})"
                )


def _element(tensor: DeviceTensor, index: int) -> int:
    if tensor.value is None:
        raise InputError("an input that sets a shape has no value on the host")
    if index >= tensor.value.size:
        raise InputError(
            f"the element {index} of an input that sets a shape does not exist: it has {tensor.value.size}"
        )
    values = tensor.value.reshape(-1)
    return int(values[index] if tensor.dtype.is_integer else values.view(f"u{values.itemsize}")[index])
