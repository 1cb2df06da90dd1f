"""Describes the dispatches of a plan for profiles. In: a Program, its plans. Out: a name and arguments per dispatch.

Invariant: nothing is calculated before it is requested, so runs without a profile have no cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..live import WeakAttributes
from ..program.postfix import compile_dims
from ..program.program import REPETITION, Program
from ..trace import Described
from .pipelines import dispatch_label
from .plan import Plan
from .planned import PlannedDispatch


class Descriptions:
    """Describes the plans of one Program, each once."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._evaluate: Callable[[Sequence[int]], list[int]] | None = None
        self._known: WeakAttributes[Plan, list[Described]] = WeakAttributes()

    def of(self, plan: Plan) -> list[Described]:
        """Returns (name, arguments) of every step: nodes, operators, kernel, shapes, operations and bytes."""
        known = self._known.get(plan)
        if known is None:
            program = self._program
            if self._evaluate is None:
                dims = [d for it in program.dispatches for d in (it.flops, it.traffic)]
                self._evaluate = compile_dims(
                    dims, [*(s.name for s in program.symbols), REPETITION], program.definitions
                )
            numbers = self._evaluate([*plan.layout.symbols, 0])
            known = [
                self._describe(plan, it, *numbers[2 * it.step.dispatch : 2 * it.step.dispatch + 2])
                for it in plan.dispatches
            ]
            self._known.set(plan, known)
        return known

    def _describe(self, plan: Plan, planned: PlannedDispatch, flops: int, traffic: int) -> Described:
        step = planned.step
        dispatch = self._program.dispatches[step.dispatch]
        kernel = self._program.kernels[dispatch.kernel]
        shapes: dict[str, list[str]] = {"read": [], "read_write": []}
        for value, access in zip(planned.args, kernel.bindings, strict=True):
            shapes[access].append(self._shape(plan, value))
        args: dict[str, Any] = {
            "operators": ", ".join(dispatch.operators),
            "nodes": ", ".join(dispatch.origin),
            "kernel": kernel.label,
            "partition": self._program.name,
            "dispatch": step.dispatch,
            "inputs": ", ".join(shapes["read"]),
            "outputs": ", ".join(shapes["read_write"]),
            "workgroups": "x".join(map(str, step.grid)),
            "flops": flops // step.repeats,
            "bytes": traffic // step.repeats,
            "device": plan.device.adapter.name,
        }
        return dispatch_label(kernel.label, dispatch), args

    def _shape(self, plan: Plan, value: int) -> str:
        return f"{self._program.values[value].dtype.label}{list(plan.shapes[value])}"
