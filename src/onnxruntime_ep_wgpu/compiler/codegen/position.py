"""Positions: which element a piece of generated code is about.

A `Position` is one row-major element number in one function, however it is written down: as coordinates over some
grouping of axes, or as the number itself. Tensors of any shape whose elements correspond one to one, as those of a fused
chain with reshapes in it do, have their elements at the same position; so "is this value known here" is a question about
objects and never about the text of an index. What is derived from a position (its number, a digit of it, the place of an
element that a view shows there) is written once, when it is first asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ..dims import Dim, product
from ..view import Factor, Tensor, View, coalesce, distribute
from .value import Value

Extents = tuple[tuple[Dim, ...], ...]


class Scope:
    """The straight-line statements of one function, and the elements that are known in it.

    `dim` gives the text of a dim. Every name is given once and its statement stands before all uses.
    """

    def __init__(self, dim: Callable[[Dim], str]) -> None:
        self.dim = dim
        self.lines: list[str] = []
        self.known: dict[tuple[Tensor, Position], Value] = {}
        self._names = 0

    def let(self, prefix: str, text: str) -> str:
        """A name for the value of an expression; a name or a number is its own."""
        if re.fullmatch(r"\w+", text):
            return text
        self._names += 1
        name = f"{prefix}{self._names}"
        self.lines.append(f"let {name} = {text};")
        return name


class Position:
    """The element whose `coordinates[k]`, WGSL of type u32, count over the axes with `extents[k]`."""

    def __init__(self, scope: Scope, coordinates: Sequence[str], extents: Extents) -> None:
        self.scope, self._coordinates, self._extents = scope, tuple(coordinates), extents
        self._number: str | None = None
        self._digits: dict[tuple[str, Dim, Dim | None], str] = {}
        self._shown: dict[tuple[tuple[Factor, ...], Dim], Position] = {}

    @property
    def number(self) -> str:
        """The row-major number of the element."""
        if self._number is None:
            text = self._coordinates[0] if self._coordinates else "0u"
            for coordinate, extents in zip(self._coordinates[1:], self._extents[1:], strict=True):
                text = f"({text} * {self.scope.dim(product(extents))} + {coordinate})"
            self._number = self.scope.let("i", text)
        return self._number

    def coordinates(self, extents: Extents) -> list[str]:
        """The coordinates over another grouping of axes of the same size."""
        if extents == self._extents:
            return list(self._coordinates)
        sizes = [product(e) for e in extents]
        # Coordinate k is where an array that varies along group k alone has this element.
        return [
            self._place(coalesce([Factor(size, int(j == k)) for j, size in enumerate(sizes)]), 0)
            for k in range(len(sizes))
        ]

    def through(self, view: View) -> Position:
        """The position, in its tensor, of the element that a view shows here. It is this one when the view shows the
        tensor's elements by their numbers, in whatever shape."""
        factors, offset = tuple(view.factors), view.offset
        if offset == 0 and (not factors or (len(factors) == 1 and factors[0].stride == 1)):
            return self
        if (factors, offset) not in self._shown:
            number = self.scope.let("i", self._place(factors, offset))
            self._shown[factors, offset] = Position(self.scope, (number,), (view.tensor.shape,))
        return self._shown[factors, offset]

    def _place(self, factors: Sequence[Factor], offset: Dim) -> str:
        """The offset and the sum of digits times strides, digits of the coordinates where the factors follow them."""
        parts = [] if offset == 0 else [self.scope.dim(offset)]
        axes = distribute(factors, tuple(product(e) for e in self._extents))
        if axes is None:
            parts += self._terms(self.number, factors)
        else:
            for coordinate, axis in zip(self._coordinates, axes, strict=True):
                parts += self._terms(coordinate, coalesce(axis))
        return " + ".join(parts) or "0u"

    def _terms(self, coordinate: str, factors: Sequence[Factor]) -> list[str]:
        out = []
        for k, factor in enumerate(factors):
            if factor.stride != 0:
                digit = self._digit(
                    coordinate, product(f.extent for f in factors[k + 1 :]), factor.extent if k else None
                )
                out.append(digit if factor.stride == 1 else f"{digit} * {self.scope.dim(factor.stride)}")
        return out

    def _digit(self, coordinate: str, below: Dim, extent: Dim | None) -> str:
        """A digit of a coordinate, `below` values apart; the outermost one, whose extent is None, is not reduced."""
        if below == 1 and extent is None:
            return coordinate
        key = (coordinate, below, extent)
        if key not in self._digits:
            text = coordinate if below == 1 else f"{coordinate} / {self.scope.dim(below)}"
            if extent is not None:
                text = f"{text} % {self.scope.dim(extent)}"
            self._digits[key] = self.scope.let("i", text)
        return self._digits[key]
