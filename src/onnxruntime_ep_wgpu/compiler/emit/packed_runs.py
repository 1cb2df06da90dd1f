"""Runs of packed weights, several of which share a word of memory: loaded as words, unpacked where they are used.

In: a map of packed weights and a position. Out: the loads of a run there, and the WGSL of its elements without their common
factor.
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
    """A run of elements of a map of packed weights.

    - `members`, `loaded`: the members of a struct with its words and the common values of its operands, and their values.
    - `words`, `same`: these parts of such a struct `it`.
    - `rest`, `factor`: the map's expression, in which the elements are `name`, split into a product.
    - `zero`: the zero point that `rest` subtracts, if it is known to be a whole number.
    """

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
        """The type of an element in memory."""
        return self.node.operands[self.name].view.dtype


def packed_run_of(
    node: Map,
    at: Position,
    run: int,
    scalars: Scalars,
    element: Callable[[View, Position], TypedValue],
    word: Callable[[Tensor, str], str],
) -> PackedRun:
    """Returns the run at a position. `element` accesses an element, `word` a word of a tensor's memory at an index."""
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
    """Returns statements, and the elements of a run in fours, without their factor."""
    dtype, zero = run.dtype, run.zero
    floats, excess, flip = mantissas(run.words, dtype)
    lines, texts = [], []
    for k, (text, beyond) in enumerate(zip(floats, excess, strict=True)):
        if zero is not None:  # both are subtracted at once, which is exact for whole numbers
            lines.append(f"let z{k} = vec4<f32>({', '.join(map(repr, beyond))}) + vec4<f32>({zero} + {float(flip)!r});")
            texts.append(f"({text} - z{k})")
            continue
        q = f"({text} - vec4<f32>({', '.join(repr(x + flip) for x in beyond)}))"
        known = {**run.same, run.name: TypedValue(q, "f32", 4)}
        texts.append(scalars.spread(to_wgsl(run.rest, known, run.node.constants, scalars, "f32")).text)
    return lines, texts


def _zero_point(expression: str, name: str, node: Map, same: Mapping[str, TypedValue]) -> str | None:
    """Returns the zero point in `f32(name) - zero`, an f32, if it is known to be a whole number, else None."""
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
