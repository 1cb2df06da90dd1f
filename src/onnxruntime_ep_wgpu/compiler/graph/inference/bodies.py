"""The results of If, Loop and Scan, from the results of their bodies.

In: a node, the known types of its operands, and a function that infers a body. Out: the inputs of each body, and the results of
the node. The state of a loop has a rank if the body preserves the initial rank. The inference is a fixed point iteration: it
assumes the initial value, infers the body, and assumes next what both have in common, until nothing changes. Invariant: the
result holds in every iteration, also for a loop without iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

import onnx_ir as ir

from ....records import dataclass
from .value_info import UNKNOWN, ValueInfo, joined

Run = Callable[[str, Sequence[ValueInfo]], Sequence[ValueInfo] | None]
"""Infers the results of the body in an attribute from its inputs. None if unknown."""

InfoOf = Callable[[ir.Value], ValueInfo]
Control = Callable[[ir.Node, Sequence[ValueInfo], InfoOf, str | None], Sequence[ValueInfo] | None]
"""Infers the results of a node with bodies from its operands and the values of its graph. None if unknown. The last argument
names the branch that an If takes in every run."""

_ROUNDS = 4  # a state that changes for longer has no known rank

_COUNTER = ValueInfo(ir.DataType.INT64, ())
_CONDITION = ValueInfo(ir.DataType.BOOL, ())


@dataclass(frozen=True)
class Solved:
    """The `results` of the node, and the `inputs` of a loop's body."""

    results: Sequence[ValueInfo] = ()
    inputs: Sequence[ValueInfo] = field(default=())


def solved(node: ir.Node, operands: Sequence[ValueInfo], run: Run, branch: str | None = None) -> Solved | None:
    """Returns None if nothing is known, or for a node without a body. `branch` is the branch that an If takes in every run."""
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
    found = _fixed_point(states, lambda assumed: run("body", (_COUNTER, *assumed)))
    if found is None:
        return None
    assumed, made = found
    stacked = [ValueInfo(it.dtype, None if it.shape is None else (None, *it.shape)) for it in made[len(states) :]]
    return Solved([*assumed[1:], *stacked], (_COUNTER, *assumed))


def _scan(node: ir.Node, operands: Sequence[ValueInfo], run: Run) -> Solved | None:
    count = len(operands) - node.attributes["num_scan_inputs"].as_int()
    initial, sequences = operands[:count], operands[count:]
    axes = axes_of(node, "scan_input_axes", len(sequences))
    slices = [_without_axis(it, axis) for it, axis in zip(sequences, axes, strict=True)]
    found = _fixed_point(initial, lambda assumed: run("body", (*assumed, *slices)))
    if found is None:
        return None
    assumed, made = found
    stacked = made[count:]
    outputs = zip(stacked, axes_of(node, "scan_output_axes", len(stacked)), strict=True)
    return Solved([*assumed, *(_stacked(it, axis) for it, axis in outputs)], (*assumed, *slices))


def _fixed_point(
    initial: Sequence[ValueInfo], run: Callable[[Sequence[ValueInfo]], Sequence[ValueInfo] | None]
) -> tuple[Sequence[ValueInfo], Sequence[ValueInfo]] | None:
    """Returns what holds for the states in all iterations, and the results of the body, the states first."""
    assumed, rounds = list(initial), 0
    while (made := run(assumed)) is not None and len(made) >= len(assumed):
        common = list(map(joined, assumed, made))
        if common == assumed:
            return assumed, made
        rounds += 1
        if rounds > _ROUNDS:
            common = [
                after if after == before else ValueInfo(after.dtype)
                for after, before in zip(common, assumed, strict=True)
            ]
        assumed = common
    return None


def has_body(node: ir.Node) -> bool:
    return any(it.type == ir.AttributeType.GRAPH for it in node.attributes.values())


def axes_of(node: ir.Node, name: str, count: int) -> Sequence[int]:
    """Returns `count` axes or directions of a Scan, by default 0."""
    attribute = node.attributes.get(name)
    axes = list(attribute.as_ints()) if attribute is not None else []
    return axes if len(axes) == count else [0] * count


def _without_axis(info: ValueInfo, axis: int) -> ValueInfo:
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
