"""Bindings for the tensors of a caller, and the copies that they need.

In: the places of a run's tensors. Out: a buffer and an offset for each value. Invariant: tensors are bound in place, except those
that WebGPU cannot bind, which are copied.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..device import Copy, Device, Place
from ..program.layout import written
from ..program.program import Program
from .plan import Plan
from .runs.key import Callers


class Binder:
    """Binds tensors for the runs of a Program on a device."""

    def __init__(self, program: Program, device: Device) -> None:
        self._program, self._device = program, device
        self._empty = device.buffer(256, "empty tensor")
        self._read_beside = _read_beside(program)

    def callers(self, plan: Plan, places: Sequence[Place | None]) -> tuple[Callers, list[Copy], list[Copy]]:
        """Returns the bindings of the callers' tensors, and the copies before and after the dispatches that they need."""
        count = len(self._program.inputs)
        # An empty result needs a buffer that is bound to no other tensor of its kernel.
        bound = [
            place or Place(self._empty if k < count else self._device.buffer(16, "empty tensor"), 0)
            for k, place in enumerate(places)
        ]
        callers = dict(zip(self._program.inputs, bound[:count], strict=True))
        results = dict(zip(self._program.outputs, bound[count:], strict=True))
        in_place = {it for output, it in plan.layout.aliases if callers[it] == results[output]}
        before = self._separate(plan, callers, {id(b) for b, _ in results.values()}, in_place)
        after = self._elsewhere(plan, results)
        for output, it in plan.layout.aliases:
            if callers[it] != results[output]:
                before.append((*callers[it], *results[output], plan.nbytes[output]))
        return Callers(callers | results), before, after

    def _separate(self, plan: Plan, callers: dict[int, Place], stored: set[int], in_place: set[int]) -> list[Copy]:
        """Replaces inputs by copies if they share a buffer with an output or if the adapter cannot bind their offset.

        WebGPU forbids reading and writing one buffer in a dispatch, even disjoint ranges. No dispatch reads the inputs
        `in_place`.
        """
        copies = []
        alignment = self._device.target.offset_alignment
        for value, (buffer, offset) in list(callers.items()):
            if value not in in_place and buffer is not self._empty and (id(buffer) in stored or offset % alignment):
                nbytes = plan.nbytes[value]
                copy = plan.scratch(value)
                copies.append((buffer, offset, copy, 0, -(-nbytes // 4) * 4))
                callers[value] = Place(copy, 0)
        return copies

    def _elsewhere(self, plan: Plan, results: dict[int, Place]) -> list[Copy]:
        """Replaces outputs by temporary buffers, which are copied to the outputs after the dispatches.

        These are outputs at an offset that the adapter cannot bind, and outputs that a dispatch reads while it writes another
        output in the same buffer.
        """
        copies = []
        for value, (buffer, offset) in list(results.items()):
            beside = any(results[it].buffer is buffer for it in self._read_beside.get(value, ()))
            if beside or offset % self._device.target.offset_alignment:
                temporary = plan.scratch(value)
                copies.append((temporary, 0, buffer, offset, plan.nbytes[value]))
                results[value] = Place(temporary, 0)
        return copies


def _read_beside(program: Program) -> dict[int, set[int]]:
    """Returns, for each output that a dispatch reads, the outputs that such dispatches write."""
    outputs, found = set(program.outputs), dict[int, set[int]]()
    for dispatch in program.dispatches:
        stored = outputs.intersection(written(program, dispatch))
        for value in outputs.intersection(dispatch.args) - stored:
            found.setdefault(value, set()).update(stored)
    return found
