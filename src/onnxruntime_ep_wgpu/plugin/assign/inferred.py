"""What a decision found out of types that ONNX Runtime does not know, as plain data that is kept with the claim.

In: a graph, the node that it is a body of, and types. Out: `InferredTypes`, and where these belong. Invariant: imports nothing of
the compiler. A session that finds its claims in the cache has these, and does not infer anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from ...records import dataclass
from .shown import Extent, ShownGraph, ShownNode, ShownValue

PlainInfo = tuple[int | None, tuple[Extent, ...] | None]
"""The ONNX code of an element type, None for an unknown one; a shape, None for an unknown rank."""


@dataclass(frozen=True)
class GraphPlace:
    """A graph of a model: the names of its outputs; operator and outputs of the node that it is a body of, "" and none for the main
    graph."""

    outputs: tuple[str, ...]
    operator: str = ""
    around: tuple[str, ...] = ()

    @classmethod
    def of(cls, graph: ShownGraph, parent: ShownNode | None) -> GraphPlace:
        outputs = tuple(it.name for it in graph.outputs)
        if parent is None:
            return cls(outputs)
        return cls(outputs, parent.op_type, tuple(it.name for it in parent.outputs))


@dataclass(frozen=True)
class InferredTypes:
    """`values` is what ONNX Runtime does not know of values, by name; `results` is what is known of the graph's outputs. Where the
    types are not all from graphs that were shown, they are `of_model`: its file was read."""

    values: Mapping[str, PlainInfo] = field(default_factory=dict)
    results: Sequence[PlainInfo] = ()
    of_model: bool = False


def made_by(nodes: Iterable[ShownNode]) -> frozenset[str]:
    """The names of what nodes make."""
    return frozenset(value.name for node in nodes for value in node.outputs)


def fill_in(values: Iterable[ShownValue], known: Mapping[str, PlainInfo]) -> None:
    """Gives values the types and ranks that ONNX Runtime does not know, by name."""
    for it in values:
        code, shape = known.get(it.name, (None, None))
        if it.code is None:
            it.code = code
        if it.shape is None and shape is not None and it.code == code:
            it.shape = shape
