"""What a rule is: a function of one call of a lowered graph, and what it may answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...program.target import Target
from ...records import dataclass
from ..ir import Call, Node


@dataclass(frozen=True)
class Replace:
    """`instead` stands where `nodes` stood and writes the tensors that they gave to the rest of the graph.

    So no reader changes. Those of `nodes` that nothing reads afterwards are dead. Where exactly it stands the engine finds: behind
    what it reads, before what reads it.
    """

    nodes: tuple[Node, ...]
    instead: tuple[Node, ...]


MatchResult = Replace | str | None
"""A replacement; the reason why there is none, which `explain` shows; None when the call is nothing for the rule."""


@dataclass(frozen=True)
class Rule:
    """`match` is asked about every call of the template `anchor`, of a graph whose tensors know their users."""

    name: str
    anchor: str
    match: Callable[[Call, Target], MatchResult]


def origin_of(nodes: Iterable[Node]) -> tuple[str, ...]:
    """Names of the ONNX nodes that nodes are made of, in order, each once."""
    return tuple(dict.fromkeys(name for node in nodes for name in node.origin))
