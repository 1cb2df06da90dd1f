"""Runs of elements of packed weights, several of which a word of memory has: loaded as words, taken apart where they are used.

In: a map of packed weights and a position. Out: what is loaded there for a run, and the WGSL of its elements, but for a factor that
they have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...program.dtypes import DType
from ...records import dataclass
from ..ir import Map, Tensor, View
from ..ir.expression import factored
from .expression import to_wgsl
from .position import Position
from .scalar import Scalars
from .storage import mantissas
from .value import TypedValue


@dataclass(frozen=True)
class PackedRun:
    """A run of elements of a map of packed weights: the members of a struct of its words and of what its operands have in common
    for them, and the values of these; and of such a struct `it` the words, what is in common, and how elements are made: the
    `rest` of the map's expression of them, which are `name` there, and a factor. `zero` is the zero point that the rest
    subtracts, where it is known to be a whole number."""

    node: Map
    name: str
    members: str
    loaded: str
    words: list[str]
    same: Mapping[str, TypedValue]
    rest: str
    factor: str
    zero: str | None

    @property
    def dtype(self) -> DType:
        """Of an element in memory."""
        return self.node.operands[self.name].view.dtype


def packed_run_of(
    node: Map,
    at: Position,
    run: int,
    scalars: Scalars,
    element: Callable[[View, Position], TypedValue],
    word: Callable[[Tensor, str], str],
) -> PackedRun:
    """Of a map of packed weights: what is loaded for a run, and what becomes of it. `element` is the access to one, `word` a word
    of a tensor's memory at an index."""
    same = {n: element(r.view, at) for n, r in node.operands.items() if not r.view.is_whole}
    (name,) = (n for n, r in node.operands.items() if r.view.is_whole and not r.view.tensor.is_literal)
    same |= {n: element(r.view, at) for n, r in node.operands.items() if n not in same and n != name}
    rest, factor = factored(node.expression, frozenset(same))
    tensor = node.operands[name].view.tensor
    bits = tensor.dtype.bits
    begin = at.scope.let("at", f"{at.number} / {32 // bits}u")
    count = run * bits // 32
    loads = [word(tensor, f"{begin} + {k}u" if k else begin) for k in range(count)]
    members = [f"words: array<u32, {count}>", *(f"{n}: {scalars.type(it.kind)}" for n, it in same.items())]
    loaded = [f"array({', '.join(loads)})", *(it.text for it in same.values())]
    same = {n: TypedValue(f"it.{n}", it.kind) for n, it in same.items()}
    words = [f"it.words[{k}]" for k in range(count)]
    factor = same[factor].text if factor else "1f"
    zero = _zero_point(rest, name, node, same)
    return PackedRun(node, name, ", ".join(members), ", ".join(loaded), words, same, rest, factor, zero)


def numbers(run: PackedRun, scalars: Scalars) -> tuple[list[str], list[str]]:
    """Statements, and the elements of a run in fours but for their factor."""
    dtype, zero = run.dtype, run.zero
    floats, excess, flip = mantissas(run.words, dtype)
    lines, texts = [], []
    for k, (text, beyond) in enumerate(zip(floats, excess, strict=True)):
        if zero is not None:  # the two are subtracted at once, which is exact for whole numbers
            lines.append(f"let z{k} = vec4<f32>({', '.join(map(repr, beyond))}) + vec4<f32>({zero} + {float(flip)!r});")
            texts.append(f"({text} - z{k})")
            continue
        q = f"({text} - vec4<f32>({', '.join(repr(x + flip) for x in beyond)}))"
        known = {**run.same, run.name: TypedValue(q, "f32", 4)}
        texts.append(scalars.spread(to_wgsl(run.rest, known, run.node.constants, scalars, "f32")).text)
    return lines, texts


def _zero_point(expression: str, name: str, node: Map, same: Mapping[str, TypedValue]) -> str | None:
    """The zero point in `f32(name) - zero`, an f32, where it is known to be a whole number; else None."""
    if expression == f"f32({name})":
        return "0.0"
    before, _, zero = expression.partition(" - ")
    if before != f"f32({name})":
        return None
    if zero in node.constants and float(node.constants[zero]).is_integer():
        return repr(float(node.constants[zero]))
    operand = zero.removeprefix("f32(").removesuffix(")")
    if operand in same and node.operands[operand].view.dtype.is_integer:
        return f"f32({same[operand].text})"
    return None
