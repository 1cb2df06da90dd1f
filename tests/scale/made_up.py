"""A clock that only a test moves, and sessions that are functions of arrays."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests import patience

X, Y = [("x", ["N", 2])], [("y", ["N", 2])]


class Clock:
    """`waits` has, of each wait for a time, that time: whoever reads it knows that a thread waits. `without_end` is set by a wait
    for no time."""

    def __init__(self) -> None:
        self.time = 0.0
        self.waits: queue.Queue[float] = queue.Queue()
        self.without_end = threading.Event()
        self._conditions: set[threading.Condition] = set()

    def now(self) -> float:
        return self.time

    def wait(self, condition: threading.Condition, until: float | None) -> None:
        self._conditions.add(condition)
        if until is None:
            self.without_end.set()
        else:
            self.waits.put(until)
        condition.wait(patience.SECONDS)

    def advance(self, seconds: float) -> None:
        self.time += seconds
        for condition in tuple(self._conditions):
            with condition:
                condition.notify_all()

    def until_waiting(self, until: float) -> None:
        """Returns when a thread waits for this time."""
        while self.waits.get(timeout=patience.SECONDS) != until:
            pass


class Session:
    """`calculates` makes y of x. Runs are held while `gate` is closed, and `began` has the inputs of each."""

    def __init__(
        self,
        calculates: Callable[[np.ndarray], np.ndarray] = np.square,
        inputs: Sequence[tuple[str, list[Any]]] = X,
        outputs: Sequence[tuple[str, list[Any]]] = Y,
    ) -> None:
        self.calculates, self._inputs, self._outputs = calculates, inputs, outputs
        self.gate = threading.Event()
        self.gate.set()
        self.began: queue.Queue[dict[str, np.ndarray]] = queue.Queue()

    def get_inputs(self) -> list[Any]:
        return [SimpleNamespace(name=name, shape=shape) for name, shape in self._inputs]

    def get_outputs(self) -> list[Any]:
        return [SimpleNamespace(name=name, shape=shape) for name, shape in self._outputs]

    def run(self, _names: object, feeds: dict[str, np.ndarray]) -> list[Any]:
        self.began.put(feeds)
        assert self.gate.wait(patience.SECONDS)
        return [self.calculates(feeds["x"])]

    def next_run(self) -> np.ndarray:
        """x of a run that began."""
        return self.began.get(timeout=patience.SECONDS)["x"]


def rows(*values: float) -> dict[str, np.ndarray]:
    """A request with a row for each value."""
    return {"x": np.repeat(np.array(values, np.float32)[:, None], 2, axis=1)}
