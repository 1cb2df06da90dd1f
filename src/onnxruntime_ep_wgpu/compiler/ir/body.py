"""The body of a map: WGSL statements with a slot at each read of an operand's element.

In: text without directives that reads by `<name>_at(coordinates...)`. Out: text and slots with their operand and coordinates.
Invariant: code that inspects or changes the reads of a body uses the slots, and never parses the text between them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from itertools import chain

from ...records import dataclass
from ..templates.files import map_body
from ..templates.preprocess import Constant, declared, preprocess

_READ = re.compile(r"\b(\w+)_at\(")
_RETURN = re.compile(r"\breturn $")


@dataclass(frozen=True)
class Element:
    """A slot: the element of an operand at coordinates. These are WGSL and may contain slots. A `returned` slot is the whole
    return statement, not only a value."""

    operand: str
    coordinates: tuple[Body, ...]
    returned: bool = False


@dataclass(frozen=True)
class Body:
    """The statements of a map, or part of them, as text and slots. A pointwise map has an empty body."""

    parts: tuple[str | Element, ...] = ()

    @staticmethod
    def made(body: str, constants: Mapping[str, Constant], names: Collection[str] = ()) -> Body:
        """Returns a body from a file of `wgsl/bodies/`, by name, or from a text. Directives use `constants`, and those that the
        text declares.

        `names` are the operands and parameters. Raises the errors of `preprocess`.
        """
        return Body.of(preprocess(*declared(map_body(body) if body.isidentifier() else body, constants, names)))

    @staticmethod
    def of(text: str) -> Body:
        """Returns the body of a text. Raises ValueError for unbalanced parentheses."""
        return _body(text)

    def elements(self, operand: str) -> Iterator[Element]:
        """Yields the slots of an operand."""
        for it in self.parts:
            if isinstance(it, Element):
                if it.operand == operand:
                    yield it
                for coordinate in it.coordinates:
                    yield from coordinate.elements(operand)

    def changed(self, operand: str, change: Callable[[Element], Body]) -> Body:
        """Returns the body with each slot of an operand replaced."""

        def now(part: str | Element) -> tuple[str | Element, ...]:
            if isinstance(part, str):
                return (part,)
            inside = tuple(it.changed(operand, change) for it in part.coordinates)
            slot = Element(part.operand, inside, part.returned)
            return change(slot).parts if slot.operand == operand else (slot,)

        return Body(tuple(chain.from_iterable(map(now, self.parts))))

    def text(self, accessor: Callable[[str], str]) -> str:
        """Returns the WGSL. `accessor` maps an operand to the name of the function that reads it."""

        def shown(part: str | Element) -> str:
            if isinstance(part, str):
                return part
            call = f"{accessor(part.operand)}({', '.join(it.text(accessor) for it in part.coordinates)})"
            return f"return {call};" if part.returned else call

        return "".join(map(shown, self.parts))


@lru_cache(maxsize=1024)
def _body(text: str) -> Body:
    parts: list[str | Element] = []
    done = 0
    while (found := _READ.search(text, done)) is not None:
        before, (coordinates, end) = text[done : found.start()], _coordinates(text, found.end())
        returned = text.startswith(";", end) and _RETURN.search(before) is not None
        parts += [before.removesuffix("return ") if returned else before, Element(found[1], coordinates, returned)]
        done = end + returned
    return Body(tuple(it for it in (*parts, text[done:]) if it))


def _coordinates(text: str, begin: int) -> tuple[tuple[Body, ...], int]:
    """Returns the comma-separated parts from `begin` to the closing parenthesis, and the position after that."""
    found: list[Body] = []
    depth = 1
    for at in range(begin, len(text)):
        depth += (text[at] == "(") - (text[at] == ")")
        if depth == 0 or (depth == 1 and text[at] == ","):
            found.append(_body(text[begin:at].strip()))
            begin = at + 1
        if depth == 0:
            return tuple(it for it in found if it.parts), at + 1
    raise ValueError(f"a parenthesis of {text!r} is open")
