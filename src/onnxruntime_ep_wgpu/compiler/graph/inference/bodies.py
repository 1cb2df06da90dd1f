"""What If, Loop and Scan make: what their bodies make.

In: a node, what is known of its operands, and a way to ask what a body makes of its inputs. Out: what enters each body, and what
the node makes. A state of a loop has a rank where the body keeps the one that it begins with: what is known of the initial value
is assumed of the state, the body says what it makes of that, and what both have in common is assumed next, until nothing changes.
Invariant: what is said of a state holds in every iteration, the result of none included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

import onnx_ir as ir

from ....records import dataclass
from .value_info import UNKNOWN, ValueInfo, joined

Run = Callable[[str, Sequence[ValueInfo]], Sequence[ValueInfo] | None]
"""What the body in an attribute makes, for what is known of its inputs; None when that is unknown."""

Known = Callable[[ir.Value], ValueInfo]
Control = Callable[[ir.Node, Sequence[ValueInfo], Known, str | None], Sequence[ValueInfo] | None]
"""What a node with bodies makes, for what is known of its operands and of the graph that it is in; None when nothing is. The last
argument names the branch of an If that runs in every run."""

_ROUNDS = 4  # a state that changes for longer has no known rank

_COUNTER = ValueInfo(ir.DataType.INT64, ())
_CONDITION = ValueInfo(ir.DataType.BOOL, ())


@dataclass(frozen=True)
class Solved:
    """`results` of the node; `inputs` of the body of a loop."""

    results: Sequence[ValueInfo] = ()
    inputs: Sequence[ValueInfo] = field(default=())


def solved(node: ir.Node, operands: Sequence[ValueInfo], run: Run, branch: str | None = None) -> Solved | None:
    """None when nothing is known, or for a node without a body. `branch` is that of an If that runs in every run."""
    if node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type == "If":
        return _branches(run, branch)
    if node.op_type == "Loop":
        return _loop(operands[2:], run)
    if node.op_type == "Scan" and "num_scan_inputs" in node.attributes and (node.version or 9) >= 9:
        return _scan(node, operands, run)
    return None


def _branches(run: Run, branch: str | None) -> Solved | None:
    first, second = (run(branch or name, ()) for name in ("then_branch", "else_branch"))
    return None if first is None or second is None else Solved(list(map(joined, first, second)))


def _loop(initial: Sequence[ValueInfo], run: Run) -> Solved | None:
    states = _CONDITION, *initial
    found = _kept(states, lambda assumed: run("body", (_COUNTER, *assumed)))
    if found is None:
        return None
    assumed, made = found
    stacked = [ValueInfo(it.dtype, None if it.shape is None else (None, *it.shape)) for it in made[len(states) :]]
    return Solved([*assumed[1:], *stacked], (_COUNTER, *assumed))


def _scan(node: ir.Node, operands: Sequence[ValueInfo], run: Run) -> Solved | None:
    count = len(operands) - node.attributes["num_scan_inputs"].as_int()
    initial, sequences = operands[:count], operands[count:]
    axes = axes_of(node, "scan_input_axes", len(sequences))
    slices = [_without(it, axis) for it, axis in zip(sequences, axes, strict=True)]
    found = _kept(initial, lambda assumed: run("body", (*assumed, *slices)))
    if found is None:
        return None
    assumed, made = found
    stacked = made[count:]
    outputs = zip(stacked, axes_of(node, "scan_output_axes", len(stacked)), strict=True)
    return Solved([*assumed, *(_stacked(it, axis) for it, axis in outputs)], (*assumed, *slices))


def _kept(
    initial: Sequence[ValueInfo], run: Callable[[Sequence[ValueInfo]], Sequence[ValueInfo] | None]
) -> tuple[Sequence[ValueInfo], Sequence[ValueInfo]] | None:
    """What holds of states in all iterations, and what a body makes of them, the states first."""
    assumed, rounds = list(initial), 0
    while (made := run(assumed)) is not None and len(made) >= len(assumed):
        both = list(map(joined, assumed, made))
        if both == assumed:
            return assumed, made
        rounds += 1
        if rounds > _ROUNDS:
            both = [now if now == before else ValueInfo(now.dtype) for now, before in zip(both, assumed, strict=True)]
        assumed = both
    return None


def has_body(node: ir.Node) -> bool:
    return any(it.type == ir.AttributeType.GRAPH for it in node.attributes.values())


def axes_of(node: ir.Node, name: str, count: int) -> Sequence[int]:
    """`count` axes or directions of a Scan, by default 0."""
    attribute = node.attributes.get(name)
    axes = list(attribute.as_ints()) if attribute is not None else []
    return axes if len(axes) == count else [0] * count


def _without(info: ValueInfo, axis: int) -> ValueInfo:
    shape = info.shape
    if shape is None or not -len(shape) <= axis < len(shape):
        return ValueInfo(info.dtype)
    place = axis % len(shape)
    return ValueInfo(info.dtype, shape[:place] + shape[place + 1 :])


def _stacked(info: ValueInfo, axis: int) -> ValueInfo:
    if info.shape is None:
        return info
    rank = len(info.shape) + 1
    if not -rank <= axis < rank:
        return UNKNOWN
    place = axis % rank
    return ValueInfo(info.dtype, (*info.shape[:place], None, *info.shape[place:]))
