"""A Program as boxes and lines: dispatches, inputs and outputs, and the tensors between them.

In: a Program. Out: a `Drawing`. Invariant: a line goes from the last writer of a value to a later reader, so lines point
forward.
"""

from __future__ import annotations

from dataclasses import field
from math import prod
from typing import Any

from ..program.axes import shown_name
from ..program.postfix import Postfix
from ..program.program import Program, Storage, Value
from ..records import dataclass


@dataclass(frozen=True)
class Box:
    """`kind` is "kernel", "input" or "output". A click shows `facts` and `text`, which is WGSL."""

    title: str
    subtitle: str
    kind: str
    facts: dict[str, str] = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True)
class Line:
    """A tensor from box `source` to box `target`, by index. `label` is its type, shape and, if known, its bytes."""

    source: int
    target: int
    label: str


@dataclass(frozen=True)
class Drawing:
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]


def drawn(program: Program) -> Drawing:
    """Returns the drawing: used inputs, dispatches in execution order, and outputs."""
    boxes: list[Box] = []
    lines: dict[tuple[int, int, int], Line] = {}
    writers: dict[int, int] = {}

    def add(box: Box) -> int:
        boxes.append(box)
        return len(boxes) - 1

    def read(value: int, reader: int) -> None:
        if value in writers:
            source = writers[value]
            lines.setdefault((source, reader, value), Line(source, reader, described(program.values[value])))

    for value in program.inputs:
        it = program.values[value]
        writers[value] = add(Box(it.name, described(it), "input"))
    for number, dispatch in enumerate(program.dispatches):
        kernel = program.kernels[dispatch.kernel]
        pairs = list(zip(dispatch.args, kernel.bindings, strict=True))
        weights = [program.values[value] for value, _ in pairs if program.values[value].storage is Storage.WEIGHT]
        operators = ", ".join(dispatch.operators) or kernel.label
        made = [program.values[value] for value, access in pairs if access == "read_write"]
        facts = {
            "kernel": kernel.label,
            "operators": operators,
            "nodes": ", ".join(dispatch.origin),
            "makes": ", ".join(dict.fromkeys(described(it) for it in made)),
            "weights": ", ".join(f"{shown_name(it.name)} {described(it)}" for it in weights),
            "variants": str(len(kernel.wgsl)),
        }
        subtitle = operators if operators != kernel.label else ""
        box = add(Box(f"{number} {kernel.label}", subtitle, "kernel", facts, kernel.wgsl[0]))
        for value, _ in pairs:
            read(value, box)
        for value, access in pairs:
            if access == "read_write":
                writers[value] = box
    for value in program.outputs:
        it = program.values[value]
        read(value, add(Box(it.name, described(it), "output")))
    return _used(boxes, list(lines.values()))


def _used(boxes: list[Box], lines: list[Line]) -> Drawing:
    """Removes inputs that no dispatch reads; only their shapes are used."""
    met = {it.source for it in lines} | {it.target for it in lines}
    kept = [k for k, box in enumerate(boxes) if k in met or box.kind != "input"]
    places = {old: new for new, old in enumerate(kept)}
    return Drawing(
        tuple(boxes[k] for k in kept), tuple(Line(places[it.source], places[it.target], it.label) for it in lines)
    )


def described(value: Value) -> str:
    """Returns `float32[N, 3, 224, 224]`, with the size in bytes if it is known."""
    shape = f"{value.dtype.label}[{', '.join(extent(it) for it in value.shape)}]"
    if not all(isinstance(it, int) for it in value.shape):
        return shape
    return f"{shape}, {in_units(value.dtype.nbytes(prod(it for it in value.shape if isinstance(it, int))))}"


def extent(dim: Postfix) -> str:
    """Returns a number, the name of a symbol, or `?` for a calculated extent."""
    if isinstance(dim, int):
        return str(dim)
    tokens: tuple[Any, ...] = tuple(dim)
    only = tokens[0] if len(tokens) == 1 else None
    return only[1:] if isinstance(only, str) and only.startswith("$") else "?"


def in_units(count: int) -> str:
    """Returns bytes in the largest unit that gives at least 1."""
    for size, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"
