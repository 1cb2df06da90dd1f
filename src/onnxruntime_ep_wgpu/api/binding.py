"""IOBinding with an alias check for sessions of several groups, where a later group may read an input after an output is written.

In: the tensors that a caller binds. Out: InputError with the names of both tensors, before anything runs. Invariant: a binding
that passes the check gives the same results as one with separate memory for each tensor.
"""

from __future__ import annotations

import math
from typing import Any

import onnxruntime as ort

from ..errors import InputError
from ..plugin.memory.space import space
from ..program.dtypes import DType

Range = tuple[int, int]
"""(begin, end) addresses; end is exclusive."""


class Binding(ort.IOBinding):  # type: ignore[misc,unused-ignore]
    """Records the addresses of bound device tensors. `pairs` are (output, input) names that must not share memory."""

    def __init__(self, session: ort.InferenceSession, pairs: frozenset[tuple[str, str]]) -> None:
        super().__init__(session)
        self._pairs = sorted(pairs)
        self._inputs: dict[str, Range] = {}
        self._outputs: dict[str, Range] = {}
        self._checked = True

    def check(self) -> None:
        """Raises InputError if an output overlaps an input that is read after the output is written."""
        if self._checked:
            return
        for output, name in self._pairs:
            first, second = self._outputs.get(output), self._inputs.get(name)
            if first and second and first[0] < second[1] and second[0] < first[1]:
                raise InputError(
                    f"the output {output!r} is bound to memory of the input {name!r}, which is read when {output!r} has been"
                    " written, since not all nodes run as one group (see report(session)): bind it to memory of its own"
                )
        self._checked = True

    def _note(self, places: dict[str, Range], name: str, at: int | None, nbytes: int = 0) -> None:
        self._checked = False
        places.pop(name, None)
        if at and nbytes and space().owns(at):
            places[name] = at, at + nbytes

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        super().bind_cpu_input(name, arr_on_cpu)
        self._note(self._inputs, name, None)

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Any, buffer_ptr: int
    ) -> None:
        super().bind_input(name, device_type, device_id, element_type, shape, buffer_ptr)
        self._note(self._inputs, name, buffer_ptr, _bytes(element_type, shape))

    def bind_ortvalue_input(self, name: str, ortvalue: Any) -> None:
        super().bind_ortvalue_input(name, ortvalue)
        self._note(self._inputs, name, *_place(ortvalue))

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Any = None,
        buffer_ptr: int | None = None,
    ) -> None:
        super().bind_output(name, device_type, device_id, element_type, shape, buffer_ptr)
        self._note(self._outputs, name, buffer_ptr, 0 if buffer_ptr is None else _bytes(element_type, shape))

    def bind_ortvalue_output(self, name: str, ortvalue: Any) -> None:
        super().bind_ortvalue_output(name, ortvalue)
        self._note(self._outputs, name, *_place(ortvalue))

    def clear_binding_inputs(self) -> None:
        super().clear_binding_inputs()
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        super().clear_binding_outputs()
        self._outputs.clear()


def _bytes(element_type: Any, shape: Any) -> int:
    """Returns the bytes of a tensor. Its type is a numpy type or an ONNX type number."""
    dtype = DType.of(element_type) if isinstance(element_type, int) else DType.of_numpy(element_type)
    return dtype.nbytes(math.prod(shape))


def _place(value: Any) -> tuple[int, int]:
    """Returns the address and bytes of an OrtValue on this provider's devices, else (0, 0)."""
    if not value.is_tensor() or not value.has_value() or not space().owns(value.data_ptr()):
        return 0, 0
    return value.data_ptr(), _bytes(value.element_type(), value.shape())
