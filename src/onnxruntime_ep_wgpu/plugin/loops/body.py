"""The body of a Loop as a graph to compile: what each input and output of it is for.

In: the graph that ONNX Runtime shows as the body, and its node. Out: a `LoopBody`, or UnsupportedError that says what differs.
Nothing of the compiler is needed for that. Invariants: the graph is changed, so it has to be one that nothing else reads; graphs
that are equal before are equal after. Every output of the graph is made by a node, once.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...program.dtypes import DType
from ...records import dataclass
from ..assign.editing import constant, drop_unread_constants, drop_unread_inputs, node_of, replace_reads
from ..assign.inferred import made_by
from ..assign.shown import Extent, ShownGraph, ShownNode, ShownValue

_TRUE, _NAMED = "loop/true", "loop/result"
_NUMBER, _CONDITION, _STATES = 0, 1, 2  # places of inputs, of a Loop and of its body


@dataclass(frozen=True)
class LoopBody:
    """`number`, of one element, and `states` are inputs of the graph, by name, `captured` those from the graph around. `next` has
    for each state what the next iteration reads in its place, `rows` what an iteration adds to each joined output: the name of a
    result or of a state. `condition` is the result that says whether another iteration follows, "" where one always does; `once`
    where none does.

    `types` and `extents` are those of `rows`, as far as they are declared: of an extent that is not, 0. `made` are the names of
    what nodes make in the graph as it was.
    """

    number: str
    number_shape: tuple[int, ...]
    states: tuple[str, ...]
    captured: tuple[str, ...]
    next: tuple[str, ...]
    rows: tuple[str, ...]
    condition: str
    once: bool
    types: tuple[DType, ...]
    extents: tuple[tuple[int, ...], ...]
    made: frozenset[str]


class Shown(NamedTuple):
    """What a graph was when ONNX Runtime showed it: the names that its nodes `made`, and the `extents` of its outputs, 0 where they
    are unknown."""

    made: frozenset[str]
    extents: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, graph: ShownGraph) -> Shown:
        return cls(made_by(graph), tuple([_extents(it.shape) for it in graph.outputs]))


def body_of(node: ShownNode, graph: ShownGraph, shown: Shown) -> LoopBody:
    """The body of a Loop, whose graph is changed, and was `shown` before. Raises UnsupportedError."""
    outside = {it.name for it in node.implicit_inputs}
    declared = [it for it in graph.inputs if it.name not in outside]
    count = len(node.inputs) - _STATES
    if len(declared) != count + _STATES or len(graph.outputs) <= count:
        raise UnsupportedError(
            f"its body has {len(declared)} inputs and {len(graph.outputs)} outputs for {count} states"
        )
    if missing := [it.name for it in (*declared, *graph.outputs) if it.code is None]:
        raise UnsupportedError(f"the type of {missing[0]!r} is unknown, or is no tensor type")
    number, condition, *states = declared
    decided = source_of(graph.outputs[0])
    results = list(graph.outputs)
    replace_reads(graph, condition, _true(graph, condition))
    names = tuple(it.name for it in states)
    after, rows = results[1 : count + 1], results[count + 1 :]
    always = decided is condition or (decided.constant is not None and bool(decided.constant.raw[0]))
    once = decided.constant is not None and not always
    makers: dict[str, ShownValue] = {}

    def result(value: ShownValue, own: Collection[str]) -> str:
        """What is read of a result: that of a node, or a state among `own`, where it is."""
        if value.name in own:
            return value.name
        if value.maker is None:
            if value is condition:
                value = _true(graph, condition)
            value = _identity(graph, value, f"{_NAMED}/{value.name}")
        makers[value.name] = value
        return value.name

    following = tuple(result(value, {name}) for value, name in zip(after, names, strict=True))
    joined = tuple(result(value, names) for value in rows)
    decides = "" if always or once else result(graph.outputs[0], ())
    graph.outputs[:] = makers.values()
    _drop_dead(graph)
    drop_unread_inputs(graph)
    captured = tuple(it.name for it in graph.inputs if it.name in outside)
    kinds = tuple(DType.of(it.code) for it in rows if it.code is not None)
    # Without an iteration a result has the rank that ONNX Runtime knows, and not one that was found.
    extents = shown.extents[count + 1 :]
    shape = (1,) * len(number.shape or ())
    return LoopBody(number.name, shape, names, captured, following, joined, decides, once, kinds, extents, shown.made)


def source_of(value: ShownValue) -> ShownValue:
    """What a value is the same as, through Identities."""
    while value.maker is not None and value.maker.op_type == "Identity" and value.maker.inputs[0] is not None:
        value = value.maker.inputs[0]
    return value


def _true(graph: ShownGraph, like: ShownValue) -> ShownValue:
    return constant(graph, _TRUE, np.full((1,) * len(like.shape or ()), True))


def _identity(graph: ShownGraph, value: ShownValue, name: str) -> ShownValue:
    made = next((it for node in graph for it in node.outputs if it.name == name), None)
    if made is None:
        made = ShownValue(name, value.code, value.shape)
        graph.nodes.append(node_of(graph, "Identity", [value], made))
    return made


def _drop_dead(graph: ShownGraph) -> None:
    """Leaves out nodes whose results nothing reads."""
    wanted = {id(it) for it in graph.outputs}
    kept = []
    for node in reversed(graph.nodes):
        if any(id(it) in wanted for it in node.outputs):
            kept.append(node)
            wanted.update(id(it) for it in (*node.inputs, *node.implicit_inputs) if it is not None)
    graph.nodes[:] = reversed(kept)
    drop_unread_constants(graph)


def _extents(shape: tuple[Extent, ...] | None) -> tuple[int, ...]:
    return tuple(it if isinstance(it, int) else 0 for it in shape or ())
