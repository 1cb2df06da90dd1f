"""A layout on a device: its numbers as buffers, bind groups and the list of dispatches.

A Plan owns everything that depends on shapes alone. Buffers that the caller owns (inputs, outputs) come with each run. Bind
groups with such buffers are cached for a few sets of them. All others are made once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, compress, count, islice
from operator import attrgetter, is_not, ne
from typing import Protocol

import numpy as np

from ..device import BindGroup, Buffer, BufferBinding, Device, Pipeline, Place, Recording
from ..device.sizes import padded
from ..live import LiveSet
from ..program.dtypes import DType
from ..program.layout import Layout, Range, Step
from ..program.program import Program, Storage
from ..program.series import Block, Numbers, Series
from . import checks
from .pipelines import Variant
from .planned import PlannedDispatch
from .runs.key import Callers
from .runs.record import BindGroups, LastRun, Recordings
from .temps import Temps
from .uniforms import UniformBuffers

BoundDispatch = tuple[Pipeline, BindGroup, tuple[int, int, int]]
_uniforms = attrgetter("uniforms")


class Repeater(Protocol):
    """Code that submits a plan's work without the plan; see `plugin/memo.py`."""

    @property
    def hits(self) -> int:
        """The number of submissions."""

    def end(self) -> bool:
        """Ends the repeater. Returns whether no thread runs in it; otherwise call again."""


class Plan:
    """The buffers, bind groups and dispatches for one set of sizes, or for all sizes of a `series`.

    For a series the `layout` is that of the last sizes. `rows` are the contents that buffers need before each run, from their
    beginning on, as (sizes, bytes).

    - `pipelines` has all variants that the layout uses, by kernel and variant. `plan_checks`: sizes and aliasing are checked (see
      `checks`).
    - `base_plan` is another plan. Parts that are equal (`Layout.changed_since`) are taken from it. So dispatches, also bound ones,
      are identical objects exactly if they are equal.
    - The Executable and its callers use the following. `runs`: the runs that use the plan. `last_run`: the number of the last
      one. `captures`: the captures that replay it. `repeaters`: the code that submits its work without it. `submits`: the
      number of submissions by the Executable.
    """

    buffers: dict[int, Buffer | None]
    temps: frozenset[Buffer]
    _uniforms: set[UniformBuffers]

    def __init__(
        self,
        program: Program,
        device: Device,
        *,
        temps: Temps,
        weights: Sequence[Buffer | None],
        states: Mapping[int, Buffer],
        layout: Layout,
        pipelines: Mapping[Variant, Pipeline],
        groups: BindGroups,
        plan_checks: bool = True,
        base_plan: Plan | None = None,
        series: Series | None = None,
    ) -> None:
        self.program, self.device, self.plan_checks, self.layout = program, device, plan_checks, layout
        self.series, self._blocks = series, {} if series is None else series.blocks
        self.last_run = 0
        # A user of the plan holds an object during the use. There is no count, which an interrupt could leave wrong.
        self.runs: LiveSet[object] = LiveSet()
        self.captures: LiveSet[object] = LiveSet()
        self.repeaters: LiveSet[Repeater] = LiveSet()
        self.submits = self._hits = 0
        self.shapes, self.nbytes = layout.shapes, layout.nbytes
        self.output_shapes = tuple(layout.shapes[v] for v in program.outputs)
        self._lock = threading.Lock()
        self.recordings: Recordings = Recordings(None if base_plan is None else base_plan.recordings.last)
        self._scratch: dict[int, Buffer] = {}
        self._groups = groups
        self._host_values: list[Buffer] = []
        if base_plan is not None and layout.slots is base_plan.layout.slots:
            # From a plan that may still run, so these buffers were not returned.
            buffers, self.temps, moved = base_plan.buffers.copy(), base_plan.temps, list[int]()
        else:
            buffers = self._temps(temps)
            self.temps = frozenset(buffer for buffer in buffers.values() if buffer is not None)
            buffers |= {v: weights[it.weight] for v, it in enumerate(program.values) if it.storage is Storage.WEIGHT}
            buffers |= states
            moved = [v for v, buffer in buffers.items() if base_plan is None or base_plan.buffers.get(v) is not buffer]
        for index, elements in layout.elements.items():
            buffers[index] = self._host_value(program.values[index].dtype, elements)
        self.buffers = buffers
        self.dispatches: list[PlannedDispatch]
        if base_plan is None:
            self.dispatches, uniforms = self._planned_steps(layout.steps, pipelines)
        else:
            since = layout.changed_since(base_plan.layout, (*moved, *layout.elements))
            changed = sorted(since.union(self._blocks), reverse=True)
            steps = [layout.steps[layout.places(number)] for number in changed]
            new, uniforms = self._planned_steps([*chain.from_iterable(steps)], pipelines)
            made = iter(new)
            self.dispatches = base_plan.dispatches.copy()
            for number, own in zip(changed, steps, strict=True):  # in reverse order, so that earlier places stay valid
                self.dispatches[base_plan.layout.places(number)] = islice(made, len(own))
        self.rows = [] if series is None else [*uniforms.rows(series.count), *self._element_rows(series)]
        # From the device's caches. They are kept while a plan with such dispatches lives.
        self._uniforms = {uniforms, *filter(None, map(_uniforms, self.dispatches))}
        for it in self._uniforms:
            it.users.add(self)

    @property
    def in_use(self) -> bool:
        """Whether its buffers must be kept: a run uses them, or a capture will."""
        return bool(self.runs) or bool(self.captures)

    def note_repeats(self, run: int) -> None:
        """Call this when the run with the number `run` ends. All repeats since the last call count as part of that run."""
        hits = sum([it.hits for it in self.repeaters]) if self.repeaters else 0
        if hits != self._hits:
            self._hits, self.last_run = hits, run

    def end_repeats(self) -> bool:
        """Ends the code that submits its work without it. Returns whether no thread runs in that code now."""
        ended = [it.end() for it in self.repeaters]
        return all(ended)

    # ---- memory

    def _temps(self, temps: Temps) -> dict[int, Buffer | None]:
        """Takes the buffers of intermediate values, one per slot. Messages name the largest value of a slot."""
        slots, slot_of = self.layout.slots, self.layout.slot_of
        labels = [""] * len(slots)
        for arg, slot in slot_of.items():
            if self.nbytes[arg] == slots[slot]:
                labels[slot] = f"the intermediate result {self.program.values[arg].name!r}"
        buffers = temps.take(slots, labels)
        return {arg: buffers[slot] for arg, slot in slot_of.items()}

    def _host_value(self, dtype: DType, elements: Sequence[int]) -> Buffer:
        data = np.array(elements, dtype.numpy).tobytes()
        buffer = self.device.caches.storage.take(max(len(data), 16), "a shape or other small value")
        self._host_values.append(buffer)
        if data:
            self.device.upload(buffer, 0, data)
        return buffer

    def _element_rows(self, series: Series) -> Iterator[tuple[Buffer, Numbers]]:
        """Yields the contents of the buffers of HOST values for each of the sizes, in whole words."""
        for value, elements in series.elements.items():
            data = elements.astype(self.program.values[value].dtype.numpy).view(np.uint8)
            buffer = self.buffers[value]
            assert buffer is not None
            yield buffer, np.pad(data, ((0, 0), (0, -data.shape[1] % 4)))

    def retire(self) -> None:
        """Returns the plan's own buffers to the caches. It must not run again. Its intermediate buffers belong to `Temps`."""
        storage = self.device.caches.storage
        with self._lock:
            own = [*self._host_values, *self._scratch.values()]
            # Drop our own references before the buffers are available to others. An interrupt in between only costs the reuse
            # of a buffer.
            self._host_values, self._scratch, self.dispatches = [], {}, []
            self.recordings.clear()
            for buffer in own:
                storage.give(buffer)
            for uniforms in self._uniforms:
                uniforms.leave(self)

    # ---- dispatches

    def _planned_steps(
        self, steps: Sequence[Step], pipelines: Mapping[Variant, Pipeline]
    ) -> tuple[list[PlannedDispatch], UniformBuffers]:
        """Makes dispatches for these steps, and the uniforms that they share."""
        blocks = {
            self._block(step): step.uniforms for step in sorted(steps, key=lambda it: it.dispatch not in self._blocks)
        }
        uniforms = UniformBuffers(self.device, blocks)
        return [self._planned(step, pipelines, uniforms) for step in steps], uniforms

    def _block(self, step: Step) -> Block | tuple[int, ...]:
        """The block of uniforms that a step reads."""
        return self._blocks.get(step.dispatch, step.uniforms)

    def _planned(self, step: Step, pipelines: Mapping[Variant, Pipeline], uniforms: UniformBuffers) -> PlannedDispatch:
        dispatch = self.program.dispatches[step.dispatch]
        kernel, args = self.program.kernels[dispatch.kernel], dispatch.args
        ranges = step.ranges or (None,) * len(args)
        entries = [self._entry(arg, byte_range) for arg, byte_range in zip(args, ranges, strict=True)]
        if kernel.uniforms:
            entries.append(uniforms.entry(self._block(step)))
        pipeline = pipelines[dispatch.kernel, step.variant]
        theirs = tuple(arg for arg, entry in zip(args, entries, strict=False) if entry is None)
        own = uniforms if kernel.uniforms else None
        planned = PlannedDispatch(step, kernel.label, pipeline, args, entries, None, own, theirs)
        if None not in entries:
            planned.group = self._group(planned, entries)
        return planned

    def _entry(self, arg: int, byte_range: Range | None) -> BufferBinding | None:
        buffer = self.buffers.get(arg)
        return None if buffer is None else self._part(arg, byte_range, Place(buffer, 0))

    def _part(self, arg: int, byte_range: Range | None, where: Place) -> BufferBinding:
        """The binding of a tensor at `where`, or of a range of it."""
        (buffer, offset), (first, nbytes) = where, byte_range or (0, self.nbytes[arg])
        return BufferBinding(buffer, offset + first, min(padded(nbytes), buffer.size - offset - first))

    def scratch(self, value: int) -> Buffer:
        """Returns a buffer in place of a caller's, the same one in every run, because the queue runs work in order."""
        with self._lock:
            if value not in self._scratch:
                self._scratch[value] = self.device.caches.storage.take(
                    max(16, self.nbytes[value]), f"a copy of {self.program.values[value].name!r}"
                )
            return self._scratch[value]

    def bind(self, callers: Callers) -> Recording:
        """Returns a recording of the dispatches with the callers' buffers."""
        known, last = self.recordings.get(callers.at), self.recordings.last
        if known is not None:
            return known
        recording = self._recorded(last, callers)
        # It is kept until the first of the callers' buffers is freed.
        self.recordings.keep(self.dispatches, callers, recording)
        return recording

    def _recorded(self, last: LastRun | None, callers: Callers) -> Recording:
        """Makes the recording for `callers`. Takes over the equal rows of the last recording."""
        before = None if last is None else last.bound.recording
        if last is None or before is None or len(last.dispatches) != len(self.dispatches):
            return self.device.record(self.bound(callers))
        moved = [*compress(callers, map(ne, callers.at, last.at))]
        rows = self.layout.places_with(moved)
        if last.dispatches is not self.dispatches:
            rows.update(compress(count(), map(is_not, self.dispatches, last.dispatches)))
        return before.changed({place: self._bound(self.dispatches[place], callers) for place in rows})

    def bound(self, callers: Mapping[int, Place]) -> list[BoundDispatch]:
        """Returns pipeline, bind group and grid of every dispatch, with the callers' buffers."""
        return [self._bound(planned, callers) for planned in self.dispatches]

    def _bound(self, planned: PlannedDispatch, callers: Mapping[int, Place]) -> BoundDispatch:
        group = planned.group
        if group is None:
            places = tuple([(callers[arg][0].number, callers[arg][1]) for arg in planned.theirs])
            group = self._groups.get(planned, places)
            if group is None:
                group = self._group_with(planned, callers)
                self._groups.keep(planned, places, group, (callers[arg][0] for arg in planned.theirs))
        return planned.pipeline, group, planned.step.grid

    def _group_with(self, planned: PlannedDispatch, callers: Mapping[int, Place]) -> BindGroup:
        args = planned.args
        ranges = planned.step.ranges or (None,) * len(args)
        entries = [
            entry or self._part(arg, byte_range, callers[arg])
            for arg, byte_range, entry in zip(args, ranges, planned.entries, strict=False)
        ]
        entries += [e for e in planned.entries[len(args) :] if e is not None]
        return self._group(planned, entries)

    def _group(self, planned: PlannedDispatch, entries: Sequence[BufferBinding | None]) -> BindGroup:
        given = [entry for entry in entries if entry is not None]
        if self.series is not None:
            written = [kind == "read_write" for kind in planned.pipeline.bindings]
            given = [_before_others(entry, given) if it else entry for entry, it in zip(given, written, strict=True)]
        if self.plan_checks:
            args = planned.args
            tensors = given[: len(args)]  # without the uniforms
            wanted = [self.nbytes[arg] for arg in args]
            for place, byte_range in enumerate(planned.step.ranges):
                wanted[place] = byte_range[1] if byte_range else wanted[place]
            if self.series is not None:  # the last sizes may never occur
                wanted = [*map(min, wanted, (it.size for it in tensors))]
            checks.bindings(planned, self.program, tensors, wanted)
        return self.device.bind_group(planned.pipeline, given)


def _before_others(entry: BufferBinding, entries: Sequence[BufferBinding]) -> BufferBinding:
    """Ends a binding before the next one in the same buffer.

    Callers' adjacent tensors have room for the sizes of this run, and not for the last sizes of a series.
    """
    begins = [it.offset for it in entries if it.buffer is entry.buffer and it.offset > entry.offset]
    return entry._replace(size=min([entry.size, *(begin - entry.offset for begin in begins)]))
