"""The body of a Loop as a graph to compile: the role of each of its inputs and outputs.

In: the graph that ONNX Runtime shows as the body, and its node. Out: a `LoopBody`, or UnsupportedError with the difference.
The compiler is not needed for that. Invariants: the graph is changed, so nothing else may read it. Equal graphs stay equal. A
node makes each output of the graph, and no output occurs twice.
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
_NUMBER, _CONDITION, _STATES = 0, 1, 2  # indices of inputs, of a Loop and of its body


@dataclass(frozen=True)
class LoopBody:
    """The names of a body's values, by their role.

    - `number`, which has one element, `states` and `captured` are inputs. The captured ones are from the surrounding graph.
    - `next` has for each state the result that replaces it in the next iteration, or the state itself.
    - `rows` has for each joined output (scan output) the result or state that an iteration adds to it.
    - `condition` is the result that decides whether another iteration follows. It is "" if one always follows, and if `once` is
      true, because then none follows.
    - `types` and `extents` are those declared for `rows`; an extent that is not declared is 0.
    - `made` has the names that nodes make in the graph before it is changed.
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
    """A graph as ONNX Runtime showed it: the names that its nodes made, and the extents of its outputs.

    An unknown extent is 0.
    """

    made: frozenset[str]
    extents: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, graph: ShownGraph) -> Shown:
        return cls(made_by(graph), tuple([_extents(it.shape) for it in graph.outputs]))


def body_of(node: ShownNode, graph: ShownGraph, shown: Shown) -> LoopBody:
    """Returns the body of a Loop and changes its graph, which was `shown` before. Raises UnsupportedError."""
    outside = {it.name for it in node.implicit_inputs}
    declared = [it for it in graph.inputs if it.name not in outside]
    count = len(node.inputs) - _STATES
    if len(declared) != count + _STATES or len(graph.outputs) <= count:
        raise UnsupportedError(
            f"its body has {len(declared)} inputs and {len(graph.outputs)} outputs for {count} states"
        )
    if missing := [it.name for it in (*declared, *graph.outputs) if it.code is None]:
        raise UnsupportedError(f"the type of {missing[0]!r} is unknown, or is not a tensor type")
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
        """Returns the name under which a result is read: an output of a node, or a state in `own`."""
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
    # Without iterations a joined output has the rank that ONNX Runtime declares, not one that was inferred here.
    extents = shown.extents[count + 1 :]
    shape = (1,) * len(number.shape or ())
    return LoopBody(number.name, shape, names, captured, following, joined, decides, once, kinds, extents, shown.made)


def source_of(value: ShownValue) -> ShownValue:
    """Follows Identity nodes back to the value that this one equals."""
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
    """Removes nodes with results that nothing reads."""
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
