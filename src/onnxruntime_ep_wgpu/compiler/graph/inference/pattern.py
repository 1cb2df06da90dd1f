"""Result shapes as patterns over operand shapes: `"bnm,bmk->bnk"`, in the style of einsum.

In: a pattern, a node, and the known types of its operands. Out: the known types of its results. The tokens are:

- a letter: one extent; the run decides it if no operand has it
- `...`: any number of axes
- `~`: as many axes, with extents that the run decides
- a digit: this extent
- `{name}`: the number in an attribute
- `()`: a scalar

Examples:

- `"...,c->...c"`: one operand with an additional axis.
- `"nc->n:INT64 nk:0"`: two results. A type is an ONNX type, the number of an operand, or `@` and a name of `TYPES`.
- `"c->1k; nc->nk"`: cases, by the rank of the operands. Without a known rank, the facts common to all cases hold.

An operand with another rank than its pattern provides no extents. A result without a type has the type of operand 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import onnx_ir as ir

from .value_info import UNKNOWN, Extent, Shape, ValueInfo, joined

_TOKEN = re.compile(r"\.\.\.|~|[a-z]|\d|\{\w+\}")
REST, REST_RESIZED = "...", "~"

TypeOf = Callable[[ir.Node, Sequence[ValueInfo]], ir.DataType | None]


class _Result(NamedTuple):
    axes: tuple[str, ...]
    dtype: str


class _Case(NamedTuple):
    operands: tuple[tuple[str, ...], ...]
    results: tuple[_Result, ...]


def results(pattern: str, node: ir.Node, operands: Sequence[ValueInfo], types: Mapping[str, TypeOf]) -> list[ValueInfo]:
    """Returns the known types of a node's results by a pattern."""
    cases = _cases(pattern)
    fitting = [case for case in cases if _fits(case, operands)] or cases
    first, *others = (_results(case, node, operands, types) for case in fitting)
    for other in others:
        first = list(map(joined, first, other))
    return first


@cache
def _cases(pattern: str) -> tuple[_Case, ...]:
    found = []
    for case in pattern.split(";"):
        left, right = case.split("->")
        operands = tuple(tuple(_TOKEN.findall(it)) for it in left.split(","))
        texts = [it.partition(":") for it in right.split()]
        found.append(
            _Case(operands, tuple(_Result(tuple(_TOKEN.findall(axes)), dtype or "0") for axes, _, dtype in texts))
        )
    return tuple(found)


def _fits(case: _Case, operands: Sequence[ValueInfo]) -> bool:
    """Returns whether the ranks of operands may match a case."""
    return all(
        info.shape is None or not axes or _bound(axes, info.shape) is not None
        for axes, info in zip(case.operands, operands, strict=False)
    )


def _bound(axes: tuple[str, ...], shape: Shape) -> dict[str, Shape] | None:
    """Returns the extents that each token stands for, or None if the rank differs."""
    if REST not in axes:
        return {axis: (extent,) for axis, extent in zip(axes, shape, strict=True)} if len(axes) == len(shape) else None
    rest = len(shape) - (len(axes) - 1)
    if rest < 0:
        return None
    found: dict[str, Shape] = {}
    place = 0
    for axis in axes:
        size = rest if axis == REST else 1
        found[axis] = shape[place : place + size]
        place += size
    return found


def _results(case: _Case, node: ir.Node, operands: Sequence[ValueInfo], types: Mapping[str, TypeOf]) -> list[ValueInfo]:
    bound: dict[str, Shape] = {}
    for axes, info in zip(case.operands, operands, strict=False):
        if info.shape is not None:
            bound = {**(_bound(axes, info.shape) or {}), **bound}

    def extents(axis: str) -> Shape | None:
        if axis in (REST, REST_RESIZED):
            rest = bound.get(REST)
            return (None,) * len(rest) if rest is not None and axis == REST_RESIZED else rest
        if axis.startswith("{"):
            return (_number(node, axis[1:-1]),)
        return (int(axis),) if axis.isdigit() else bound.get(axis, (None,))

    found = []
    for result in case.results:
        parts = [extents(axis) for axis in result.axes]
        shape = None if None in parts else tuple(it for part in parts if part is not None for it in part)
        found.append(ValueInfo(_dtype(result.dtype, node, operands, types), shape))
    return found


def _number(node: ir.Node, name: str) -> Extent:
    attribute = node.attributes.get(name)
    value = attribute.value if attribute is not None else None
    return value if isinstance(value, int) and value >= 0 else None


def _dtype(text: str, node: ir.Node, operands: Sequence[ValueInfo], types: Mapping[str, TypeOf]) -> ir.DataType | None:
    if text.startswith("@"):
        return types[text[1:]](node, operands)
    if text.isdigit():
        return (operands[int(text)] if int(text) < len(operands) else UNKNOWN).dtype
    return ir.DataType[text]
