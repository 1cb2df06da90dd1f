"""Decides which results must fit the limits of memory while a graph is lowered.

A result is not stored if fusion recomputes it in its readers, or if a rule of `rewrite/` removes it. Attention scores may
thus be larger than every buffer. The stored results are known only after the kernels are. So a graph is first lowered without
these limits. If a node exceeds one, its kernels show which results they store, and the graph is lowered again with the limits
for those alone. A graph within all limits, as nearly every graph is, is lowered once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...program.target import Target
from ..ir import LoweredGraph
from ..kernels import beyond_limits, kernels_of

Result = TypeVar("Result")


class Limits:
    """The ONNX nodes that are exempt from the limits of memory.

    `free`: the names of nodes with results that no kernel stores; None exempts all nodes, until this is known. `met`: the
    names of exempt nodes that exceeded a limit.
    """

    def __init__(self, free: frozenset[str] | None = frozenset()) -> None:
        self.free = free
        self.met: set[str] = set()

    def hold(self, origin: tuple[str, ...]) -> bool:
        """Whether the limit applies to a node that exceeds it now."""
        if self.free is not None and not self.free.issuperset(origin):
            return True
        self.met.update(origin)
        return False


def within_limits(lowered: Callable[[Limits], tuple[Result, LoweredGraph | None]], target: Target) -> Result:
    """Returns the result of `lowered` when the limits of memory apply to all stored results, and to nothing else.

    `lowered` also returns a graph. It returns None if a node was refused; then each part of the graph is lowered separately.
    """
    limits = Limits(None)
    result, graph = lowered(limits)
    free = frozenset(limits.met)
    while free and graph is not None:
        stored = beyond_limits(kernels_of(graph, target)[1], target)  # this consumes the graph
        if limits.free is not None and free.isdisjoint(stored):
            return lowered(limits)[0]
        limits = Limits(free := free - stored)
        result, graph = lowered(limits)
    return result
