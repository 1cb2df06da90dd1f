"""Positions: the element that a piece of generated code refers to.

A `Position` is one row-major element number in one function, independent of its notation: coordinates over some grouping of axes,
or the number itself. Tensors of different shapes with a one-to-one correspondence of elements, such as a fused chain with
reshapes, have their elements at the same position. So the lookup of known values compares objects, never texts of indices. Values
derived from a position (its number, a digit of it, the position of an element in a view) are written once, on first use.

A position of `width` 4 is that element, which has a number that is a multiple of 4, and the next three. `lanes` are its elements.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..dims import Dim, product, quotient
from ..ir import Factor, Tensor, View, coalesce, distribute
from .uniforms import UniformBlock, literal
from .value import TypedValue

Extents = tuple[tuple[Dim, ...], ...]


class FunctionScope:
    """The straight-line statements of one function, and the elements known in it.

    `uniforms` returns the text of a dim. Each name is defined once, before all uses. `fours` are dims that are multiples of
    4 where the function runs, in addition to those that always are.
    """

    def __init__(self, uniforms: UniformBlock, fours: frozenset[Dim] = frozenset()) -> None:
        self.dim, self.begin, self.fours = uniforms.text, uniforms.begin, fours
        self.lines: list[str] = []
        self.known: dict[tuple[Tensor, Position], TypedValue] = {}
        self._names = 0

    def let(self, prefix: str, text: str) -> str:
        """Returns a name for the value of an expression; a name or a number is returned as it is. A prefix with a number must not
        be a type (i32)."""
        if re.fullmatch(r"\w+", text):
            return text
        self._names += 1
        name = f"{prefix}{self._names}"
        self.lines.append(f"let {name} = {text};")
        return name

    def is_four(self, dim: Dim) -> bool:
        """Returns whether a dim is a multiple of 4."""
        return dim in self.fours or quotient(dim, 4) is not None


class Position:
    """An element. Its `coordinates[k]`, WGSL of type u32, count over the axes with `extents[k]`.

    With `width` 4 the last coordinate is a multiple of 4, and so is the product of its extents. `part_of` is the position of
    which this is a lane, and the number of the lane.
    """

    def __init__(
        self,
        scope: FunctionScope,
        coordinates: Sequence[str],
        extents: Extents,
        width: int = 1,
        part_of: tuple[Position, int] | None = None,
    ) -> None:
        self.scope, self._coordinates, self._extents = scope, tuple(coordinates), extents
        self.width, self.part_of = width, part_of
        self._number: str | None = None
        self._lanes: dict[tuple[tuple[Factor, ...], Dim], tuple[Position, ...]] = {}
        self._digits: dict[tuple[str, Dim, Dim | None], str] = {}
        self._shown: dict[tuple[tuple[Factor, ...], Dim], Position] = {}

    @property
    def number(self) -> str:
        """The row-major number of the element."""
        if self._number is None:
            text = self._coordinates[0] if self._coordinates else "0u"
            for coordinate, extents in zip(self._coordinates[1:], self._extents[1:], strict=True):
                text = f"({text} * {self.scope.dim(product(extents))} + {coordinate})"
            self._number = self.scope.let("at", text)
        return self._number

    def coordinates(self, extents: Extents) -> list[str]:
        """Returns the coordinates over another grouping of axes of the same size."""
        if extents == self._extents:
            return list(self._coordinates)
        sizes = [product(e) for e in extents]
        # Coordinate k is the index of this element in an array that varies only along group k.
        return [
            self._place(coalesce([Factor(size, int(j == k)) for j, size in enumerate(sizes)]), 0)
            for k in range(len(sizes))
        ]

    def through(self, view: View) -> Position | None:
        """Returns the position, in its tensor, of the element that a view shows here. Returns `self` if the view shows elements
        in order.

        For four elements it is a position of four if they are neighbours in the tensor, a position of one if they are the same
        element, and None otherwise.
        """
        factors, offset = tuple(view.factors), view.offset
        if offset == 0 and (not factors or (len(factors) == 1 and factors[0].stride == 1)):
            return self
        width = 1 if self.width == 1 else self._width_in_tensor(factors, offset)
        if width is None:
            return None
        if (factors, offset) not in self._shown:
            along = self._along_axes(view) if getattr(view.tensor.producer, "inline", False) else None
            if along is not None:
                self._shown[factors, offset] = Position(self.scope, *along, width)
            else:
                number = self.scope.let("at", self._place(factors, offset))
                self._shown[factors, offset] = Position(self.scope, (number,), (view.tensor.shape,), width)
        return self._shown[factors, offset]

    def _along_axes(self, view: View) -> tuple[tuple[str, ...], Extents] | None:
        """Returns the coordinates here as those of the tensor's axes, with their extents, or None.

        This requires that a view shows its axes, or beginnings of them, in another order, and that each coordinate counts along
        one axis. Further index arithmetic then needs no division. A coordinate over several consecutive axes has the stride of
        the last one, but counts beyond it, so it is no coordinate of an axis.
        """
        where: dict[Dim, tuple[str, Dim]] = {}
        axes = distribute(view.factors, tuple(product(e) for e in self._extents)) if view.offset == 0 else None
        for coordinate, axis in zip(self._coordinates, axes or (), strict=True) if axes is not None else ():
            factors = coalesce(axis)
            if len(factors) > 1 or (factors and (factors[0].stride == 0 or factors[0].stride in where)):
                return None
            where |= {factor.stride: (coordinate, factor.extent) for factor in factors}
        stride: Dim = 1
        found: list[tuple[str, Dim]] = []
        for extent in reversed(view.tensor.shape):
            if extent != 1:
                coordinate, count = where.pop(stride, ("0u", extent))
                within = isinstance(count, int) and isinstance(extent, int) and count <= extent
                if count != extent and not within:
                    return None
                found.insert(0, (coordinate, extent))
            stride = stride * extent
        if axes is None or where or len(found) < 2:
            return None
        return tuple(name for name, _ in found), tuple((extent,) for _, extent in found)

    def show(self, view: View, number: str) -> Position:
        """Registers `number` as the number, in its tensor, of the single element that a view shows here."""
        at = Position(self.scope, (number,), (view.tensor.shape,))
        self._shown[tuple(view.factors), view.offset] = at
        return at

    def _width_in_tensor(self, factors: Sequence[Factor], offset: Dim) -> int | None:
        """Returns how many neighbours the four elements are: 4, 1, or None."""
        is_four = self.scope.is_four
        if not factors:
            return 1
        *outer, last = factors
        if last.stride == 0 and is_four(last.extent):
            return 1
        contiguous = last.stride == 1 and (not outer or is_four(last.extent))
        return 4 if contiguous and is_four(offset) and all(is_four(f.stride) for f in outer) else None

    def lanes(self, view: View | None = None) -> tuple[Position, ...]:
        """Returns the four elements that begin here, or those that a view shows, each as a position."""
        factors, offset = (tuple(view.factors), view.offset) if view else ((), 0)
        if (factors, offset) not in self._lanes:
            if view is None:
                *outer, last = self._coordinates
                found = [
                    Position(self.scope, (*outer, f"({last} + {k}u)" if k else last), self._extents, 1, (self, k))
                    for k in range(4)
                ]
            elif factors and self.scope.is_four(factors[-1].extent):
                first, step = self.scope.let("at", self._place(factors, offset)), factors[-1].stride
                places = [first, *(f"({first} + {k}u * {self.scope.dim(step)})" for k in range(1, 4))]
                found = [Position(self.scope, (place,), (view.tensor.shape,)) for place in places]
            else:
                found = [p for lane in self.lanes() if (p := lane.through(view)) is not None]
            self._lanes[factors, offset] = tuple(found)
        return self._lanes[factors, offset]

    def _place(self, factors: Sequence[Factor], offset: Dim) -> str:
        """Returns the offset plus the sum of digits times strides. Digits are taken from the coordinates if the factors match
        them."""
        parts = [] if offset == 0 else [self.scope.begin(offset)]
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
                rest = factors[k + 1 :]
                repeats = bool(rest) and all(f.stride == 0 for f in rest)
                digit = self._digit(coordinate, product(f.extent for f in rest), factor.extent if k else None, repeats)
                out.append(digit if factor.stride == 1 else f"{digit} * {self.scope.dim(factor.stride)}")
        return out

    def _digit(self, coordinate: str, below: Dim, extent: Dim | None, repeats: bool = False) -> str:
        """Returns a digit of a coordinate, with `below` values per step. The outermost digit, with extent None, is not reduced.

        If elements repeat, their number is a constant in the text: sizes of blocks are cheap divisors.
        """
        if below == 1 and extent is None:
            return coordinate
        if below == 0 or extent == 0:
            return "0u"  # an empty tensor is never read, and WGSL rejects a division by a constant 0
        key = (coordinate, below, extent)
        if key not in self._digits:
            size = literal(below) if repeats and isinstance(below, int) else self.scope.dim(below)
            text = coordinate if below == 1 else f"{coordinate} / {size}"
            if extent is not None:
                text = f"{text} % {self.scope.dim(extent)}"
            self._digits[key] = self.scope.let("at", text)
        return self._digits[key]
