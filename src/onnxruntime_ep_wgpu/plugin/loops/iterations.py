"""The iterations of one run of a Loop on the device.

In: a compiled body, the tensors that the Loop begins with. Out: its states and joined outputs, on the device. States alternate
between two places: an iteration reads them from one and writes them to the other. If iterations are alike, `steady` submits
many of them at once. Otherwise each is planned here, and a condition that the device makes is read back after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...program.dtypes import DType
from ...records import dataclass
from ...runtime.inputs import DeviceTensor
from .joined import JoinedOutput

if TYPE_CHECKING:
    from ...runtime.executable import Run
    from ..node import Runnable, RunnableGroup
    from ..step_memory import StepMemory
    from .body import LoopBody

Array = np.ndarray[Any, Any]
Result = tuple[DType, tuple[int, ...]]


class RemainingIterations(Protocol):
    """All remaining iterations of a run."""

    def bind(self) -> bool:
        """Prepares the iterations. Returns whether they can be submitted together."""

    def run(self) -> bool:
        """Submits the iterations. Returns whether another one follows."""


@dataclass(frozen=True)
class LoopStep:
    """A compiled body.

    `inputs` and `outputs` are names of the Program's values in its order, without the outputs that are shapes. `sized` maps the
    index of each output with a data-dependent size to the index of the output that is its shape.
    """

    name: str
    body: LoopBody
    group: RunnableGroup
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    sized: Mapping[int, int]


class Iterations:
    """The iterations of one run. `states` are the current states of the Loop, `number` is the count of finished iterations."""

    def __init__(
        self,
        step: LoopStep,
        live: Runnable,
        memory: StepMemory,
        captured: Mapping[str, DeviceTensor],
        states: Sequence[DeviceTensor],
        trips: int | None,
        remaining: Callable[[Iterations, Run, Mapping[str, Result]], RemainingIterations | None],
    ) -> None:
        """`trips` is the largest number of iterations, None if it is unlimited.

        `remaining` returns an object that runs all remaining iterations if they are alike, else None.
        """
        self.step, self.memory, self.captured = step, memory, captured
        self.states, self.trips, self.number = list(states), trips, 0
        self._live, self._remaining = live, remaining
        all_run = not (step.body.condition or step.body.once)
        self.rows = [
            JoinedOutput(memory, f"joined result {k} of {step.name!r}", trips, all_run)
            for k in range(len(step.body.rows))
        ]

    def run(self) -> None:
        """Runs all iterations. An interrupt leaves the results of the last one."""
        more = True
        while more and self.trips_left != 0:
            more = self._next() and not self.step.body.once

    @property
    def trips_left(self) -> int | None:
        """How many iterations may follow; None if the number is unlimited."""
        return None if self.trips is None else max(0, self.trips - self.number)

    def joined(self, k: int) -> DeviceTensor:
        """Returns the joined output with index `k`."""
        body = self.step.body
        return (
            self.rows[k].tensor(self.number)
            if self.number
            else DeviceTensor(body.types[k], (0, *body.extents[k]), None)
        )

    def _next(self) -> bool:
        """Runs the next iteration, or all remaining ones if they are alike. Returns whether another one follows."""
        step, values = self.step, dict[str, Array]()

        def given(valued: frozenset[int]) -> list[DeviceTensor]:
            return [self._given(name, k in valued, values) for k, name in enumerate(step.inputs)]

        with self._live.prepare(given) as run:
            results = dict(zip(step.outputs, run.outputs, strict=False))
            remaining = self._remaining(self, run, results)
            if remaining is not None and remaining.bind():
                return remaining.run()
            made = {name: self.place(name, self.number + 1, *results[name]) for name in step.outputs}
            shapes = {k: self.memory.kept((k, "shape"), *run.outputs[at], "a shape") for k, at in step.sized.items()}
            by_place = [*made.values(), *(shapes[k] for k in sorted(step.sized, key=step.sized.__getitem__))]
            run.submit([it.place for it in by_place])
        for k, shape in shapes.items():
            name = step.outputs[k]
            made[name] = made[name]._replace(shape=tuple(self.read(shape).tolist()))
        self._finish_iteration(made)
        return not step.body.condition or bool(self.read(made[step.body.condition]).reshape(-1)[0])

    def _given(self, name: str, valued: bool, values: dict[str, Array]) -> DeviceTensor:
        body = self.step.body
        if name == body.number:
            return self.memory.upload(np.full(body.number_shape, self.number), "the number of an iteration")
        tensor = self.captured[name] if name in self.captured else self.states[body.states.index(name)]
        if not valued or tensor.value is not None:
            return tensor
        if name not in values:
            values[name] = self.read(tensor)
        return tensor._replace(value=values[name])

    def read(self, tensor: DeviceTensor) -> Array:
        """Waits for a tensor and returns its elements."""
        data = bytearray(tensor.dtype.nbytes(math.prod(tensor.shape)))
        if tensor.buffer is not None:
            self.memory.device.download(tensor.buffer, tensor.offset, data)
        return np.frombuffer(data, tensor.dtype.numpy).reshape(tensor.shape)

    def place(self, name: str, number: int, dtype: DType, shape: tuple[int, ...]) -> DeviceTensor:
        """Returns where a result lies that iteration `number` reads."""
        following = self.step.body.next
        known = self.states[following.index(name)] if name in following else None
        key = name, number & 1 if known is not None else 0
        grows = known is not None and known.shape != shape
        return self.memory.kept(key, dtype, shape, f"a result of {self.step.name!r}", grows)

    def _finish_iteration(self, made: Mapping[str, DeviceTensor]) -> None:
        body = self.step.body
        before = dict(zip(body.states, self.states, strict=True))
        copies = [
            copy
            for joined, name in zip(self.rows, body.rows, strict=True)
            for copy in joined.add(self.number, made[name] if name in made else before[name])
        ]
        if copies:
            self.memory.device.submit((), copies)
        self.states = [
            before[own] if name == own else made[name] for own, name in zip(body.states, body.next, strict=True)
        ]
        self.number += 1
