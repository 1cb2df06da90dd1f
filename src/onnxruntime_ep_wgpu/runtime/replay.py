"""A run that is repeated: its recorded dispatches, and where its inputs and outputs lay when it was recorded.

In: a plan, the places of the callers' tensors, which of them the caller keeps in place. Out: `CapturedRun`; `replay()` is one
submit and makes nothing: no bind group, no buffer, no pipeline. Invariants: a tensor that is kept in place is read and
written there, so a replay with that tensor elsewhere would be wrong and `difference()` says so; every other tensor is
copied from and to a buffer of the capture's own within the same submit, so threads may replay one capture at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..device import Buffer, Copy, Place, Submission

if TYPE_CHECKING:
    from .plan import Plan


class CapturedRun:
    """Made by `Executable.capture`. Tensors are numbered, inputs before outputs.

    `places[n]` is where tensor n lay, None when it is empty; `staged` are the capture's own buffers, by number.
    """

    def __init__(
        self,
        plan: Plan,
        places: Sequence[Place | None],
        staged: Mapping[int, Buffer],
        dispatches: int,
        submit: Callable[[Sequence[Copy], Sequence[Copy]], Submission | None],
    ) -> None:
        """`submit(before, after)` runs the recording of `dispatches` dispatches between copies."""
        self.plan, self.places, self.dispatches = plan, places, dispatches
        self._staged, self._submit = staged, submit

    def difference(self, plan: Plan, places: Sequence[Place | None]) -> str | None:
        """What keeps a run of `plan` with its tensors at `places` from being a replay; None when it is one."""
        program = self.plan.program
        if plan is not self.plan:
            for value in program.inputs:
                was, now = list(self.plan.shapes[value]), list(plan.shapes[value])
                if was != now:
                    return f"input {program.values[value].name!r} has shape {now}, it was captured with {was}"
            return "an integer input that sets a shape has another value than when it was captured"
        for number, (place, known) in enumerate(zip(places, self.places, strict=True)):
            if number not in self._staged and place != known:
                value = (*program.inputs, *program.outputs)[number]
                kind = "input" if number < len(program.inputs) else "output"
                return f"{kind} {program.values[value].name!r} lies in other memory than when it was captured"
        return None

    def replay(self, places: Sequence[Place | None]) -> Submission | None:
        """Runs again. `places` are where the tensors lie this time; there is no `difference`. Gives what was submitted as
        `Executable.submit` does; with these places it is the same each time."""
        program = self.plan.program
        before: list[Copy] = []
        after: list[Copy] = []
        for number, own in self._staged.items():
            place = places[number]
            assert place is not None
            if number < len(program.inputs):
                before.append((*place, own, 0, self.plan.nbytes[program.inputs[number]]))
            else:
                after.append((own, 0, *place, self.plan.nbytes[program.outputs[number - len(program.inputs)]]))
        return self._submit(before, after)
