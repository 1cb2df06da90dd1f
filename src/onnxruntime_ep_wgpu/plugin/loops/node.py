"""The node of a Loop with a body of one group, as ONNX Runtime calls it. Its iterations run here.

In: a kernel context with the operator's inputs, and the values that its body reads from the surrounding graph. Out: its
outputs. Invariants: thread safe. Only compiled parts are kept between runs. An interrupt ends a Loop at once, because it may
have no other end. A run of a group, in contrast, finishes first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...device import forget_errors
from ...errors import InputError
from ..abi import Ort
from ..callbacks import defers_interrupt
from ..known_tensors import FusedNode
from ..node import ComputeInfo
from ..step_memory import StepMemory
from ..tensors import Tensors
from .iterations import Iterations, LoopStep
from .steady import remaining

if TYPE_CHECKING:
    from ...runtime.inputs import DeviceTensor
    from ..node import Runnable

Array = np.ndarray[Any, Any]


class LoopNode(ComputeInfo, struct="OrtNodeComputeInfo", kind="Node"):
    """A compiled Loop.

    `read` has the names of its inputs: trip count, condition, states. The name is "" for an omitted one. `constants` has the
    values of constant inputs. `made` has the indices of the outputs that are read, among states and joined outputs.
    """

    def __init__(
        self,
        ort: Ort,
        step: LoopStep,
        signature: FusedNode,
        read: tuple[str, ...],
        constants: Mapping[str, Array],
        made: tuple[int, ...],
    ) -> None:
        super().__init__(ort, step.group, signature)
        self._step, self._read, self._constants, self._made = step, read, constants, made
        names = signature.input_names
        self._places = {name: names.index(name) for name in (*read, *step.body.captured) if name in names}
        self._decide = frozenset(self._places[name] for name in read[:2] if name in self._places)

    def run(self, _state: Any, context: Any) -> None:
        forget_errors()
        live = self._step.group.on_device()
        names = (self._step.inputs[k] for k in live.executable.valued_inputs)
        valued = self._decide | {self._places[name] for name in names if name in self._places}
        tensors = Tensors(self.ort, self._signature, live.device, context)
        try:
            given = tensors.inputs(valued)
            with StepMemory(live.device) as memory:
                results = self._results(live, memory, given)
                wanted = [results[k] for k in self._made]
                places = tensors.outputs([(it.dtype, it.shape) for it in wanted])
                copies = [
                    (it.buffer, it.offset, *place, it.dtype.nbytes(math.prod(it.shape)))
                    for it, place in zip(wanted, places, strict=True)
                    if place is not None and it.buffer is not None
                ]
                if copies:
                    live.device.submit((), copies)
            tensors.copy_outputs()
        finally:
            tensors.close()

    def _results(self, live: Runnable, memory: StepMemory, given: list[DeviceTensor]) -> list[DeviceTensor]:
        """Returns the final states and the joined outputs."""
        trips, condition = (self._scalar(name, given) for name in self._read[:2])
        captured = {name: given[self._places[name]] for name in self._step.body.captured}
        states = [
            given[self._places[name]]
            if name in self._places
            else memory.upload(self._constants[name], f"constant {name}")
            for name in self._read[2:]
        ]
        most = 0 if condition is False else None if trips is None else int(trips)
        iterations = Iterations(self._step, live, memory, captured, states, most, remaining)
        try:
            iterations.run()
        except KeyboardInterrupt as interrupt:
            # It is raised again after ONNX Runtime has returned, or else here.
            if not defers_interrupt(interrupt):
                raise
        return [*iterations.states, *(iterations.joined(k) for k in range(len(iterations.rows)))]

    def _scalar(self, name: str, given: list[DeviceTensor]) -> int | bool | None:
        """Returns the trip count or the condition; None for an omitted one. Raises InputError."""
        if not name:
            return None
        value = self._constants[name] if name not in self._places else given[self._places[name]].value
        if value is None or value.size != 1:
            shape = None if value is None else list(value.shape)
            raise InputError(f"{self._step.name!r}: {name!r} has the shape {shape}; a Loop requires one element")
        found: int | bool = value.reshape(-1)[0].item()
        return found
