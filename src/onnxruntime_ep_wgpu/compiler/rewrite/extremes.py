"""The best of rows and where it is: one kernel, where a graph asks for both.

In: a call that finds the place of the largest, or least, of each row, and a reduction to that of the same rows. Out: the first one,
which stores both. They differ in a NaN: the extreme of a row that has one is NaN, and no NaN but the first element is a place.
"""

from __future__ import annotations

from dataclasses import replace

from ...program.target import Target
from ..ir import Call
from .rule import MatchResult, Replace, Rule, origin_of

_COMBINES = {"x > y": "max(x, y)", "x < y": "min(x, y)"}


def extremes(call: Call, target: Target) -> MatchResult:
    """Places and extremes in one call, or None where only places are asked for."""
    read, write, better = call.operands["x"], call.results["y"], call.functions["better"]
    for other in read.view.tensor.users:
        if not isinstance(other, Call) or other.template != "reduce" or other.operands["x"] != read:
            continue
        found, combine = other.results["y"], other.functions["combine"]
        if combine.expression != _COMBINES[better.expression]:
            continue
        if found.tensor.shape != write.tensor.shape or found.groups != write.groups:
            continue
        both = replace(
            call,
            results={"y": replace(write, also=(found.tensor,))},
            functions={**call.functions, **other.functions},
            constants={**call.constants, "EXTREMES": True, "ALIKE": other.constants["TOGETHER"]},
            origin=origin_of((other, call)),
            flops=call.flops + other.flops,
        )
        return Replace((call, other), (both,))
    return None


EXTREMES = Rule("extremes", "argmax", extremes)
