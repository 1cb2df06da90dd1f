"""What picks the ids of a text from logits, on the device, and the steps that follow it.

In: logits, then ids that were picked. Out: ids. The decoder's next step and what picks from its logits need nothing but what is
on the device. So both run before the ids in front of them are known, and count when the text goes on. Where C code knows both, it
does them in one submission, with the copy of the ids to the host.
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
"""Waits for ids that are on their way."""

_TRIES = 8  # to have C code do a step, without one that it did


class Picker:
    """The tensors between decoder and sampler, which stay where they are: `ids`, `positions` and `mask` of the next step."""

    def __init__(self, sampler: Any, settings: Sampling, state: State) -> None:
        batch, decoder = state.batch, state.decoder
        self._memory, self._state, self._sampler = decoder.memory, state, sampler
        self.ids = self._memory.empty([batch, 1], np.int64)
        self.positions = self._memory.empty([batch, 1], np.int64)
        self.mask: Any = None
        self._random = np.random.default_rng(secrets.randbits(64) if settings.seed is None else settings.seed)
        # A number from 0 to 1 for each sequence, where ids are drawn: on the host, and its tensor.
        self._drawn = np.empty((batch, 1), np.float32)
        self._uniform = None if settings.is_greedy else self._memory.empty([batch, 1], np.float32)
        # What steps carry on, twice: a step reads one and writes the other, in turns. In one place it would be copied first.
        carried: dict[str, np.ndarray[Any, Any]] = {"lengths": state.used}
        if settings.remembers:
            seen = np.zeros((batch, decoder.vocabulary), np.float32)
            for row, ids in zip(seen, state.ids, strict=True):
                row[ids] = 1
            carried["seen"] = seen
        self._carried = [{name: self._memory.put(it) for name, it in carried.items()} for _ in range(2)]
        self._given: tuple[Any, Any] = (None, None)  # logits and columns
        self._turns: list[BoundRun] = []  # that pick
        self._turn = 0
        self._is_drawn = False
        # The next step where it has begun: what waits for its ids, or its logits.
        self._picking: Picking | None = None
        self._logits: Any = None
        self._steps: BoundSteps | None = None  # of which these are, by what they are of
        self._chains: dict[tuple[BoundRun, BoundRun], ChainedRuns] = {}
        self._tries = _TRIES
        self._reading: ChainedRuns | None = None  # the ids alone, where they lie

    def pick(self, logits: Any) -> Picking:
        """Picks the next id of every sequence, which stay on the device for the next step too."""
        given = (logits, self._state.columns)
        if given != self._given:  # what is compared has no equals but itself
            self._turns = self._bound(*given)
            self._given = given
        self._draw()
        if self._uniform is not None:
            self._memory.write(self._uniform, self._drawn)
        self._turns[self._turn].run()
        self._picked()
        if self._reading is None or not self._reading.stands:
            self._reading = chain((), self.ids)
        if self._reading is not None and self._reading.submit():
            return self._reading.wait
        found: list[int] = self._memory.read(self.ids)[:, 0].tolist()
        return lambda: found

    def ahead(self) -> None:
        """Begins the next step, before the ids that were picked last are known, if caches have room."""
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

    def go_on(self, picked: Sequence[int]) -> Picking:
        """The text goes on with these ids, which were picked last: picks those after them."""
        picking, logits = self._picking, self._logits
        self._picking = self._logits = None
        if picking is None and logits is None:
            return self.pick(self._state.step(picked, self.ids, self.positions, self.mask))
        self._state.took(picked)
        return picking or self.pick(logits)

    def _draw(self) -> None:
        """Numbers for the next ids, the same until these are picked."""
        if self._uniform is not None and not self._is_drawn:
            self._random.random(None, np.float32, self._drawn)
            self._is_drawn = True

    def _picked(self) -> None:
        self._is_drawn = False
        self._turn ^= 1

    def _chain(self, steps: BoundSteps, both: tuple[BoundRun, BoundRun]) -> ChainedRuns | None:
        """A step and what picks from its logits, as C code does both at once; None where it does not know them."""
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
