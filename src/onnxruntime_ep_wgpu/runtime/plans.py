"""The plans of a Program on a device, by the shapes of its inputs. They are made when they are new and released when unused.

In: the values of the program's symbols. Out: a plan for a run. Invariant: a plan keeps its buffers while a run uses it. Others
lose them after some runs without a use. These are runs of this Program, and of Programs compiled from the same graph for
certain sizes. Together they have one `GraphPlans`, and their intermediate values are in the same buffers.
"""

from __future__ import annotations

import math
import os
import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from .. import rehearsal
from ..device import Buffer, Device, Turn, release_dead
from ..live import LiveSet
from ..program.layout import Layout
from ..program.program import Program, Storage, Value
from ..program.series import Series
from .pipelines import Pipelines
from .plan import Plan
from .runs.growth import Steps, number_of
from .runs.key import Key
from .runs.record import BindGroups
from .settings import RunSettings
from .temps import Temps

MAX_PLANS = 32  # sets of input shapes with kept plans
MAX_SERIES = 4  # kept series


class InSeries(NamedTuple):
    """The position of a run in a series: run `number` of `runs`.

    `more`: by how much each extent grows per run, of the inputs, then of the outputs.
    """

    number: int
    runs: int
    more: Sequence[tuple[int, ...]]


class PlannedRun:
    """A run before its submission. Its plan keeps its buffers until the `with` ends or this object dies.

    In a series, `number` is the position of its sizes, and `steps` is how much they grow.
    """

    __slots__ = ("__weakref__", "_plans", "key", "number", "plan", "steps")

    def __init__(self, plans: Plans, key: Key, plan: Plan, number: int = 0, steps: Steps | None = None) -> None:
        self._plans, self.key, self.plan, self.number, self.steps = plans, key, plan, number, steps
        plan.runs.add(self)

    @property
    def output_shapes(self) -> Sequence[tuple[int, ...]]:
        """The shapes of the outputs, in the order of the program."""
        series = self.plan.series
        if series is None:
            return self.plan.output_shapes
        return [tuple([a + self.number * by for a, by in zip(*it, strict=True)]) for it in series.outputs]

    @property
    def in_series(self) -> InSeries | None:
        """The position in a series; None for a plan for its sizes alone."""
        series = self.plan.series
        if series is None or self.steps is None:
            return None
        more = dict(self.steps[0])
        inputs = [more.get(k, (0,) * len(shape)) for k, shape in enumerate(self.key[0])]
        return InSeries(self.number, series.count, [*inputs, *(by for _, by in series.outputs)])

    def __enter__(self) -> Plan:
        return self.plan

    def __exit__(self, *_: object) -> None:
        self._plans.end_run(self)


class GraphPlans:
    """The objects that all plans of a graph share, for all sizes that it was compiled for.

    These are `temps`, under `lock` and counted by `runs`, and the `turn`, which orders submissions.
    """

    def __init__(self, device: Device, settings: RunSettings) -> None:
        self.temps = Temps(device.caches.storage)
        # After so many runs without a use, a buffer is returned. With 0, all are returned when a run ends.
        self._generations = settings.temp_generations
        self.lock, self.turn = threading.Lock(), Turn()
        self.runs = 0
        self.members: LiveSet[Plans] = LiveSet()
        self._device = device
        self._states: dict[str, Buffer] = {}

    def states(self, program: Program) -> dict[int, Buffer]:
        """Returns by value number the states, which runs of any sizes leave to later runs.

        They start with the numbers in the Program, or with random bits if it has none.
        """
        found = {number: value for number, value in enumerate(program.values) if value.storage is Storage.STATE}
        with self.lock:
            for value in found.values():
                if value.name not in self._states:
                    self._states[value.name] = self._begun(value)
            return {number: self._states[value.name] for number, value in found.items()}

    def _begun(self, value: Value) -> Buffer:
        nbytes = value.dtype.nbytes(math.prod([it for it in value.shape if isinstance(it, int)]))  # all are numbers
        data = np.array(value.elements, value.dtype.numpy).tobytes() or os.urandom(nbytes)
        buffer = self._device.buffer(max(16, nbytes), f"the state {value.name!r}")
        self._device.upload(buffer, 0, data)
        return buffer

    def end_run(self, plan: Plan) -> None:
        """Call this under the lock when a run was submitted.

        Releases intermediate buffers that no run has used lately, and the plans with these buffers. The plans go first, because
        a returned buffer may be reused at once. A rehearsal does not count as a run: what it made is for later runs.
        """
        if rehearsal.is_on():
            plan.last_run = self.runs
            return
        self.runs += 1
        plan.last_run = self.runs
        if len(plan.temps) == len(self.temps) and self._generations:
            return
        oldest = self.runs - self._generations
        plans = [it for member in self.members for it in member.all]
        for it in plans:
            it.note_repeats(self.runs)
        kept = {buffer for it in plans if it.in_use or it.last_run > oldest for buffer in it.temps}
        gone = self.temps.others(kept)
        busy = [it for it in plans if not it.temps.isdisjoint(gone) and not it.end_repeats()]
        if busy:
            gone = self.temps.others(kept.union(*(it.temps for it in busy)))
        for member in list(self.members):
            member.forget(gone)
        self.temps.give_back(gone)


class Plans:
    """The plans of a Program. Thread safe.

    `kept` has them by key, the most recently used last. `series` has those of growing sizes, by the first key and the steps.
    """

    def __init__(
        self,
        program: Program,
        device: Device,
        settings: RunSettings,
        weights: Sequence[Buffer | None],
        pipelines: Pipelines,
        of_graph: GraphPlans | None = None,
    ) -> None:
        self.kept: OrderedDict[Key, Plan] = OrderedDict()
        self.series: OrderedDict[tuple[Key, Steps], Plan] = OrderedDict()
        self.pipelines = pipelines
        self.of_graph = of_graph or GraphPlans(device, settings)
        self._program, self._device, self._settings, self._weights = program, device, settings, weights
        self._states = self.of_graph.states(program)
        self._groups = BindGroups(max(64, 4 * len(program.dispatches)))
        self._left = False
        with self.of_graph.lock:
            self.of_graph.members.add(self)

    @property
    def all(self) -> list[Plan]:
        """All kept plans."""
        return [*self.kept.values(), *self.series.values()]

    @property
    def states(self) -> Collection[Buffer]:
        """The buffers of the states that runs leave to later runs."""
        return self._states.values()

    def leave(self) -> None:
        """Call this when no more plans will be requested. Releases them when no run uses them."""
        with self.of_graph.lock:
            self._left = True
            self.forget(())

    def latest(self) -> Plan | None:
        """Returns the most recently used plan."""
        with self.of_graph.lock:
            return next(reversed(self.kept.values()), None)

    def known(self, key: Key) -> PlannedRun | None:
        """Returns the plan for these inputs, for a run before its submission; None if it is new."""
        with self.of_graph.lock:
            found = self.kept.get(key)
            if found is None:
                return None
            self.kept.move_to_end(key)
            return PlannedRun(self, key, found)

    def in_series(self, key: Key) -> PlannedRun | None:
        """Returns the plan of a series that contains these inputs, for a run before its submission; None if there is none."""
        with self.of_graph.lock:
            for of, plan in reversed(self.series.items()):
                number = number_of(key, *of)
                if number is not None and plan.series is not None and number < plan.series.count:
                    self.series.move_to_end(of)
                    return PlannedRun(self, key, plan, number, of[1])
        return None

    def made_series(self, key: Key, of: tuple[Key, Steps], series: Series) -> PlannedRun | None:
        """Returns the plan of a series, for a run with these inputs; None if the series does not contain them.

        Raises LimitError.
        """
        number = number_of(key, *of)
        if number is None or number >= series.count:
            return None
        self.pipelines.want(series.last)
        with self.of_graph.lock:
            plan = self.series.get(of)
            if plan is None:
                plan = self.series[of] = self._plan(series.last, series)
                self._drop(self.series, MAX_SERIES)
            return PlannedRun(self, key, plan, number, of[1])

    def made(self, key: Key, layout: Layout) -> PlannedRun:
        """Returns the plan for these inputs. Makes it from their layout if no other thread has. Raises LimitError, InputError."""
        # Outside the lock, because compiling takes long: runs of other shapes continue.
        self.pipelines.want(layout)
        with self.of_graph.lock:
            return PlannedRun(self, key, self.kept.get(key) or self._make(key, layout))

    def _make(self, key: Key, layout: Layout) -> Plan:
        plan = self.kept[key] = self._plan(layout)
        self._drop(self.kept, MAX_PLANS)
        return plan

    def _plan(self, layout: Layout, series: Series | None = None) -> Plan:
        """Makes a plan. No other plan takes over parts of a series."""
        plan = Plan(
            self._program,
            self._device,
            temps=self.of_graph.temps,
            weights=self._weights,
            states=self._states,
            layout=layout,
            pipelines=self.pipelines.made,
            groups=self._groups,
            plan_checks=self._settings.plan_checks,
            base_plan=next(reversed(self.kept.values()), None),
            series=series,
        )
        plan.last_run = self.of_graph.runs
        if self._left and self not in self.of_graph.members:
            self.of_graph.members.add(self)  # a run that began before
        return plan

    @staticmethod
    def _drop(plans: OrderedDict[Any, Plan], most: int) -> None:
        """Evicts the least recently used plans beyond this number."""
        # Only the first keys are visited: an OrderedDict hashes each key that it visits, and a decoder's key has 34 shapes.
        for old in [*islice(plans, max(0, len(plans) - most))]:
            it = plans[old]
            if not it.in_use and it.end_repeats():
                del plans[old]
                it.retire()

    def end_run(self, run: PlannedRun) -> None:
        """Call this when the work of a run is submitted. After an interrupt, the next run releases what is not needed."""
        with self.of_graph.lock:
            run.plan.runs.discard(run)
            self.of_graph.end_run(run.plan)
        self._device.caches.end_of_run()
        release_dead()

    def forget(self, gone: Collection[Buffer]) -> None:
        """Releases the plans with buffers that are `gone`. After `leave`, releases all that no run uses."""
        forgotten = False
        for plans in (self.kept, self.series):
            forgotten |= self._forget(plans, gone)
        if forgotten:
            self._groups.clear()
        if self._left and not self.all:
            self.of_graph.members.discard(self)

    def _forget(self, plans: OrderedDict[Any, Plan], gone: Collection[Buffer]) -> bool:
        stale = [
            key
            for key, it in plans.items()
            if (self._left and not it.in_use and it.end_repeats()) or not it.temps.isdisjoint(gone)
        ]
        for key in stale:
            plans.pop(key).retire()
        return bool(stale)
