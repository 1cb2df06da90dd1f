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

    `exempt`: the names of nodes with results that no kernel stores; None exempts all nodes, until this is known.
    `exceeded`: the names of exempt nodes that exceeded a limit.
    """

    def __init__(self, exempt: frozenset[str] | None = frozenset()) -> None:
        self.exempt = exempt
        self.exceeded: set[str] = set()

    def applies(self, origin: tuple[str, ...]) -> bool:
        """Whether the limit applies to a node that exceeds it now."""
        if self.exempt is not None and not self.exempt.issuperset(origin):
            return True
        self.exceeded.update(origin)
        return False


def within_limits(lowered: Callable[[Limits], tuple[Result, LoweredGraph | None]], target: Target) -> Result:
    """Returns the result of `lowered` when the limits of memory apply to all stored results, and to nothing else.

    `lowered` also returns a graph. It returns None if a node was refused; then each part of the graph is lowered separately.
    """
    limits = Limits(None)
    result, graph = lowered(limits)
    exempt = frozenset(limits.exceeded)
    while exempt and graph is not None:
        stored = beyond_limits(kernels_of(graph, target)[1], target)  # this consumes the graph
        if limits.exempt is not None and exempt.isdisjoint(stored):
            return lowered(limits)[0]
        limits = Limits(exempt := exempt - stored)
        result, graph = lowered(limits)
    return result
