"""The type of a rule: a function of one call of a lowered graph, and its possible results."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...program.target import Target
from ...records import dataclass
from ..ir import Call, Node


@dataclass(frozen=True)
class Replace:
    """Replaces `nodes` by `instead`, which writes the tensors that the rest of the graph reads from `nodes`.

    So no reader changes. Those of `nodes` without readers are dead afterwards. The engine chooses the position of `instead`:
    after its operands, before its readers.
    """

    nodes: tuple[Node, ...]
    instead: tuple[Node, ...]


MatchResult = Replace | str | None
"""A replacement; the reason why there is none, which `explain` shows; or None if the rule does not apply to the call."""


@dataclass(frozen=True)
class Rule:
    """A rule. `match` is called with every call of the template `anchor`, in a graph with `users`."""

    name: str
    anchor: str
    match: Callable[[Call, Target], MatchResult]


def origin_of(nodes: Iterable[Node]) -> tuple[str, ...]:
    """Returns the names of the ONNX nodes that the nodes come from, in order, without duplicates."""
    return tuple(dict.fromkeys(name for node in nodes for name in node.origin))
