"""The extremes of rows and their indices in one kernel, if a graph needs both.

In: a call that finds the index of the largest or smallest element of each row, and a reduction of the same rows to that extreme.
Out: the first call, which stores both results. They treat NaN differently: a NaN makes the extreme NaN, but its index counts only
if it is the first element.
"""

from __future__ import annotations

from dataclasses import replace

from ...program.target import Target
from ..ir import Call
from .rule import MatchResult, Replace, Rule, origin_of

_COMBINES = {"x > y": "max(x, y)", "x < y": "min(x, y)"}


def extremes(call: Call, target: Target) -> MatchResult:
    """Returns one call for indices and extremes, or None if a graph needs only the indices."""
    read, write, better = call.operands["x"], call.results["y"], call.functions["better"]
    for other in read.view.tensor.users:
        if not isinstance(other, Call) or other.template != "reduce" or other.operands["x"] != read:
            continue
        reduced, combine = other.results["y"], other.functions["combine"]
        if combine.expression != _COMBINES[better.expression]:
            continue
        if reduced.tensor.shape != write.tensor.shape or reduced.groups != write.groups:
            continue
        combined = replace(
            call,
            results={"y": replace(write, also=(reduced.tensor,))},
            functions={**call.functions, **other.functions},
            constants={**call.constants, "EXTREMES": True, "ALIKE": other.constants["TOGETHER"]},
            origin=origin_of((other, call)),
            flops=call.flops + other.flops,
        )
        return Replace((call, other), (combined,))
    return None


EXTREMES = Rule("extremes", "argmax", extremes)
