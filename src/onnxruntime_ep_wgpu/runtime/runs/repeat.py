"""Runs that are repeated: their bindings (`PlacedRun`), and captured runs (`CapturedRun`).

Other runs are repeated by the `Repeater`s of their plan.

In: a plan, the places of the tensors, and which of them the caller keeps there. Out: why a later run does not match, or the same
work. Invariant: tensors that the caller keeps are read and written in place. A later run with one of them elsewhere is an error,
which `difference()` describes. All other tensors may be anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...device import Copy, Place, Recording
from ..plan import Plan
from .key import Callers


class PlacedRun(NamedTuple):
    """A run with bound tensors: copies, dispatches, copies. `recording` is None if every dispatch is submitted alone."""

    callers: Callers
    recording: Recording | None
    before: Sequence[Copy]
    after: Sequence[Copy]


class CapturedRun:
    """A captured run, made by `Executable.capture`. The plan lives as long as it.

    Tensors are numbered, inputs before outputs. `places[n]` is the place of tensor n, None if it is empty. `kept[n]` says whether
    the caller keeps it there. `bound` is the run if all of them are kept: it needs no new bind group, buffer or pipeline.
    """

    def __init__(
        self, plan: Plan, places: Sequence[Place | None], kept: tuple[bool, ...], bound: PlacedRun | None
    ) -> None:
        self.plan, self.places, self.kept, self.bound = plan, places, kept, bound

    def difference(self, plan: Plan, places: Sequence[Place | None]) -> str | None:
        """Returns why a run of `plan` with its tensors at `places` does not match; None if it matches."""
        program = self.plan.program
        if plan is not self.plan:
            for value in program.inputs:
                was, now = list(self.plan.shapes[value]), list(plan.shapes[value])
                if was != now:
                    return f"input {program.values[value].name!r} has shape {now}, it was captured with {was}"
            return "an integer input that sets a shape has another value than when it was captured"
        for number, (place, known) in enumerate(zip(places, self.places, strict=True)):
            if self.kept[number] and place != known:
                value = (*program.inputs, *program.outputs)[number]
                kind = "input" if number < len(program.inputs) else "output"
                return f"{kind} {program.values[value].name!r} is in other memory than when it was captured"
        return None
