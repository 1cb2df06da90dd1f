"""Types that a decision inferred and ONNX Runtime cannot, as plain data that is stored with the claim.

In: a graph, its parent node if it is a body, and types. Out: `InferredTypes`, and the `GraphPlace` that they belong to.
Invariant: imports nothing of the compiler. A session that finds its claims in the cache also finds these types, and infers
nothing.
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
    """Identifies a graph of a model.

    `outputs`: the names of its outputs. `operator`, `around`: operator and outputs of the parent node; "" and () for the main
    graph.
    """

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
    """Types of the values of one graph.

    `values`: those that ONNX Runtime does not have, by name. `results`: those of the graph's outputs. `of_model`: some of them
    come from the model's file, not from graphs of ONNX Runtime.
    """

    values: Mapping[str, PlainInfo] = field(default_factory=dict)
    results: Sequence[PlainInfo] = ()
    of_model: bool = False


def made_by(nodes: Iterable[ShownNode]) -> frozenset[str]:
    """Returns the names of all outputs of nodes."""
    return frozenset(value.name for node in nodes for value in node.outputs)


def fill_in(values: Iterable[ShownValue], known: Mapping[str, PlainInfo]) -> None:
    """Sets types and ranks that values lack, by name."""
    for it in values:
        code, shape = known.get(it.name, (None, None))
        if it.code is None:
            it.code = code
        if it.shape is None and shape is not None and it.code == code:
            it.shape = shape
