"""Which results are held to the limits of memory while a graph is lowered.

What fusion computes where it is read, or a rule of `rewrite/` does without, is in no memory: the scores of an attention may be
larger than every buffer. Which results these are is known when the kernels are. So a graph is lowered without such
limits first; if a node would have met one, its kernels say which results they store, and it is lowered again with the others
free. A graph that is within all limits, as nearly every one is, is lowered once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...program.target import Target
from ..ir import LoweredGraph
from ..kernels import beyond_limits, kernels_of

Result = TypeVar("Result")


class Limits:
    """`free`: the ONNX nodes, by name, whose results no kernel stores; None for all, as long as that is not known. `met` are
    those that met a limit and were free."""

    def __init__(self, free: frozenset[str] | None = frozenset()) -> None:
        self.free = free
        self.met: set[str] = set()

    def hold(self, origin: tuple[str, ...]) -> bool:
        """Whether a node that meets a limit now is held to it."""
        if self.free is not None and not self.free.issuperset(origin):
            return True
        self.met.update(origin)
        return False


def within_limits(lowered: Callable[[Limits], tuple[Result, LoweredGraph | None]], target: Target) -> Result:
    """What `lowered` gives when everything that is stored, and nothing else, is held to the limits of memory.

    It gives a graph too, or None where a node was refused, and each part of the graph is lowered by itself then.
    """
    limits = Limits(None)
    result, graph = lowered(limits)
    free = frozenset(limits.met)
    while free and graph is not None:
        stored = beyond_limits(kernels_of(graph, target)[1], target)  # the graph is used up
        if limits.free is not None and free.isdisjoint(stored):
            return lowered(limits)[0]
        limits = Limits(free := free - stored)
        result, graph = lowered(limits)
    return result
