"""Samples token ids from logits on the device, and starts the steps that follow.

In: logits, then the picked ids. Out: ids. The decoder's next step and the sampling of its logits need only tensors on the
device. So both run before the previous ids reach the host, and their results are used if the text continues. If C code has
records of both, it executes them in one submission, with the readback of the ids.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .memory import BoundRun, chain
from .sampler import Sampling
from .state import BoundSteps, State

if TYPE_CHECKING:
    from ...plugin.chained import ChainedRuns

Picking = Callable[[], list[int]]
"""Waits for ids that are being downloaded."""

_TRIES = 8  # failed attempts to chain a step in C code, before giving up


class Picker:
    """Owns the tensors between decoder and sampler, which do not move: `ids`, `positions` and `mask` of the next step."""

    def __init__(self, sampler: Any, settings: Sampling, state: State) -> None:
        batch, decoder = state.batch, state.decoder
        self._memory, self._state, self._sampler = decoder.memory, state, sampler
        self.ids = self._memory.empty([batch, 1], np.int64)
        self.positions = self._memory.empty([batch, 1], np.int64)
        self.mask: Any = None
        self._random = np.random.default_rng(secrets.randbits(64) if settings.seed is None else settings.seed)
        # Random numbers from 0 to 1 for each sequence: on the host, and their tensor.
        self._drawn = np.empty((batch, 1), np.float32)
        self._uniform = None if settings.is_greedy else self._memory.empty([batch, 1], np.float32)
        # State of the sampler, double-buffered: a step reads one copy and writes the other. In place, it would be copied first.
        carried: dict[str, np.ndarray[Any, Any]] = {"lengths": state.used}
        if settings.remembers:
            seen = np.zeros((batch, decoder.vocabulary), np.float32)
            for row, ids in zip(seen, state.ids, strict=True):
                row[ids] = 1
            carried["seen"] = seen
        self._carried = [{name: self._memory.put(it) for name, it in carried.items()} for _ in range(2)]
        self._given: tuple[Any, Any] = (None, None)  # logits and columns
        self._turns: list[BoundRun] = []  # the sampler's runs, one per copy of its state
        self._turn = 0
        self._is_drawn = False
        # The next step, if it has started: the wait for its ids, or its logits.
        self._picking: Picking | None = None
        self._logits: Any = None
        self._steps: BoundSteps | None = None  # the steps that `_chains` belongs to
        self._chains: dict[tuple[BoundRun, BoundRun], ChainedRuns] = {}
        self._tries = _TRIES
        self._reading: ChainedRuns | None = None  # a readback of the ids alone

    def pick(self, logits: Any) -> Picking:
        """Samples the next id of every sequence. The ids also stay on the device for the next step."""
        given = (logits, self._state.columns)
        if given != self._given:  # these objects compare by identity
            self._turns = self._bound(*given)
            self._given = given
        self._draw()
        if self._uniform is not None:
            self._memory.write(self._uniform, self._drawn)
        self._turns[self._turn].run()
        self._picked()
        if self._reading is None or not self._reading.is_in_place:
            self._reading = chain((), self.ids)
        if self._reading is not None and self._reading.submit():
            return self._reading.wait
        found: list[int] = self._memory.read(self.ids)[:, 0].tolist()
        return lambda: found

    def start_next(self) -> None:
        """Starts the next step before the last ids reach the host, if the caches have room."""
        steps = self._state.next_step(self.ids, self.positions, self.mask)
        if steps is None:
            return
        if steps is not self._steps:
            self._steps, self._chains = steps, {}
        both = steps.bound, self._turns[self._turn]
        chain = self._chains.get(both) or self._chain(steps, both)
        if chain is not None:
            self._draw()
            if chain.submit():
                self._picked()
                self._picking, self._tries = chain.wait, _TRIES
                return
            del self._chains[both]
        steps.bound.run()
        self._logits = steps.logits

    def continue_with(self, picked: Sequence[int]) -> Picking:
        """Continues the text with these ids, the last ones, and samples the next."""
        picking, logits = self._picking, self._logits
        self._picking = self._logits = None
        if picking is None and logits is None:
            return self.pick(self._state.step(picked, self.ids, self.positions, self.mask))
        self._state.accept(picked)
        return picking or self.pick(logits)

    def _draw(self) -> None:
        """Draws random numbers for the next ids, once until these are picked."""
        if self._uniform is not None and not self._is_drawn:
            self._random.random(None, np.float32, self._drawn)
            self._is_drawn = True

    def _picked(self) -> None:
        self._is_drawn = False
        self._turn ^= 1

    def _chain(self, steps: BoundSteps, both: tuple[BoundRun, BoundRun]) -> ChainedRuns | None:
        """Returns a step and the sampling of its logits as one chain in C code; None if it has no record of them."""
        if not self._tries or None in (it.known for it in both) or both[1].inputs["logits"] is not steps.logits:
            return None
        self._tries -= 1
        made = chain(both, self.ids, None if self._uniform is None else (self._uniform, self._drawn))
        if made is not None:
            self._chains[both] = made
        return made

    def _bound(self, logits: Any, columns: Any) -> list[BoundRun]:
        if columns is not self._given[1] or self.mask is None:
            self.mask = self._memory.empty([self.ids.shape()[0], columns.shape()[0]], np.int64)
        turns = []
        for reads, writes in zip(self._carried, reversed(self._carried), strict=True):
            inputs = {"logits": logits, "columns": columns} | reads
            if self._uniform is not None:
                inputs["uniform"] = self._uniform
            bound = BoundRun(self._sampler, inputs)
            outputs = {"ids": self.ids, "mask": self.mask}
            if self._state.decoder.has_positions:
                outputs["positions"] = self.positions
            for name, value in (outputs | {f"{name}_next": it for name, it in writes.items()}).items():
                bound.write(name, value)
            turns.append(bound)
        return turns
