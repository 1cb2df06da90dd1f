"""Tensors of a lowered graph; views, through which operands are read; and the base class of nodes.

A `View` maps the elements of a logical shape to flat indices of a tensor, like numpy strides, with symbolic extents. Each logical
axis has zero or more factors (extent, stride), outermost first. So a reshape that merges transposed axes stays a view.

Transpose, Slice, Expand, Reshape, Squeeze and Split never move data: they become views. The code generator turns a view into
index arithmetic of the kernel that reads through it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

from ...program.dtypes import DType
from ...program.program import Storage as Storage
from ...records import dataclass
from ..dims import Dim, are_dims, broadcast, equal, product, quotient, select

Shape = tuple[Dim, ...]


@dataclass(eq=False)
class Tensor:
    """A value of the lowered graph in row-major order. `data` for weights, `elements` (flat dims) for host values."""

    dtype: DType
    shape: Shape
    storage: Storage = Storage.TEMP
    name: str = ""
    producer: Node | None = None
    data: Any = None
    elements: tuple[Dim, ...] = ()
    kept: bool = False  # in memory even if no kernel reads it
    users: list[Node] = field(default_factory=list)
    place: View | None = None  # the elements of another tensor that are its memory

    def __post_init__(self) -> None:
        assert are_dims(self.shape), f"the shape {self.shape} of {self.name!r} contains a value that is not a dim"

    @property
    def memory(self) -> Tensor:
        """The tensor that owns the memory of its elements: usually itself."""
        return self if self.place is None else self.place.tensor

    @cached_property
    def size(self) -> Dim:
        """The number of elements."""
        return product(self.shape)

    @property
    def is_literal(self) -> bool:
        """Whether it is a weight of one element. Kernels include such a weight as text, which saves a binding."""
        return self.storage is Storage.WEIGHT and self.size == 1 and self.dtype.compute is not None

    @property
    def is_stored(self) -> bool:
        """Whether it is read outside of the graph's kernels."""
        return self.kept or self.storage in (Storage.OUTPUT, Storage.STATE)

    def __repr__(self) -> str:
        return f"{self.name or 'tensor'}:{self.dtype.label}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Factor:
    """A digit of an index: `extent` values, `stride` elements apart."""

    extent: Dim
    stride: Dim


Axis = tuple[Factor, ...]


def coalesce(factors: Sequence[Factor]) -> list[Factor]:
    """Returns the fewest factors with the same indices: without extents of 1, and with contiguous neighbours merged."""
    out: list[Factor] = []
    for f in factors:
        if f.extent == 1:
            continue
        if out and (out[-1].stride == f.extent * f.stride or (out[-1].stride == 0 and f.stride == 0)):
            out[-1] = Factor(out[-1].extent * f.extent, f.stride)
        else:
            out.append(f)
    return out


@dataclass(frozen=True)
class View:
    """Elements of `tensor` in the order of a logical shape, with one entry of `axes` per logical axis."""

    tensor: Tensor
    shape: Shape
    axes: tuple[Axis, ...]
    offset: Dim = 0

    @staticmethod
    def of(tensor: Tensor) -> View:
        return View._rows(tensor, tensor.shape)

    @staticmethod
    def _rows(tensor: Tensor, shape: Shape) -> View:
        axes: list[Axis] = []
        stride: Dim = 1
        for extent in reversed(shape):
            axes.append((Factor(extent, stride),) if extent != 1 else ())
            stride = stride * extent
        return View(tensor, shape, tuple(reversed(axes)))

    @property
    def dtype(self) -> DType:
        return self.tensor.dtype

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Dim:
        return product(self.shape)

    @property
    def factors(self) -> list[Factor]:
        return coalesce([f for axis in self.axes for f in axis])

    @cached_property
    def is_whole(self) -> bool:
        """Whether element i of the view is element i of the tensor, for all its elements."""
        factors = self.factors
        return (
            self.offset == 0
            and self.size == self.tensor.size
            and (not factors or (len(factors) == 1 and factors[0].stride == 1))
        )

    @property
    def permutation(self) -> tuple[int, ...] | None:
        """The order in which it shows the axes of its tensor, or None if it is not only a permutation."""
        whole = View.of(self.tensor)
        left, order = list(range(whole.rank)), []
        for shown in zip(self.shape, self.axes, strict=True):
            axis = next((k for k in left if (whole.shape[k], whole.axes[k]) == shown), None)
            if axis is None:
                return None
            left.remove(axis)
            order.append(axis)
        return tuple(order) if not left and self.offset == 0 else None

    def permute(self, permutation: Sequence[int]) -> View:
        return replace(
            self, shape=tuple(self.shape[k] for k in permutation), axes=tuple(self.axes[k] for k in permutation)
        )

    def reshape(self, shape: Shape) -> View | None:
        """Returns the same elements in another shape of the same size, or None if that needs a copy."""
        if shape == self.shape:
            return self
        if self.is_whole:
            return View._rows(self.tensor, shape)
        axes = distribute(self.factors, shape)
        return None if axes is None else View(self.tensor, shape, axes, self.offset)

    def taken_as(self, shape: Shape) -> View:
        """Returns a whole view in another shape. The sizes must be equal in every run that uses it; this is not checked here."""
        assert self.is_whole
        return View._rows(self.tensor, shape)

    def slice(self, axis: int, start: Dim, step: int, length: Dim) -> View | None:
        """Returns `length` elements of one axis from `start` in steps of `step` (may be negative), or None if that needs a copy."""
        shape = (*self.shape[:axis], length, *self.shape[axis + 1 :])
        if start == 0 and step == 1 and length == self.shape[axis]:
            return self
        factors = coalesce(self.axes[axis])
        inner = product(f.extent for f in factors[1:])
        count, begin = quotient(length, inner), quotient(start, inner)
        if len(factors) > 1 and (step != 1 or count is None or begin is None):
            return None
        stride: Dim = factors[0].stride if factors else 0
        new: Axis = (Factor(length, stride * step),) if length != 1 else ()
        if len(factors) > 1:
            assert count is not None and begin is not None
            new, start = (Factor(count, stride), *factors[1:]), begin
        return View(self.tensor, shape, (*self.axes[:axis], new, *self.axes[axis + 1 :]), self.offset + start * stride)

    def stored_as(self, place: View) -> tuple[View, View] | None:
        """Returns this view's tensor in its own order, and the place of that, for elements that shall be stored at `place`.

        `place` has the shape of this view. Returns None if the view does not show every element of its tensor exactly once.
        """
        if self.is_whole:
            return self, place
        digits: list[tuple[Factor, Dim]] = []  # of the index into this tensor, with the strides in the other one
        for own, there in zip(self.axes, place.axes, strict=True):
            factors = coalesce(there)
            if len(factors) > 1:
                return None
            stride: Dim = factors[0].stride if factors else 0
            for factor in reversed(coalesce(own)):
                digits.append((factor, stride))
                stride = stride * factor.extent
        ordered: list[tuple[Factor, Dim]] = []
        size: Dim = 1
        while digits:
            found = next((k for k, (factor, _) in enumerate(digits) if factor.stride == size), None)
            if found is None:
                return None
            ordered.insert(0, digits.pop(found))
            size = size * ordered[0][0].extent
        if self.offset != 0 or size != self.tensor.size:
            return None
        shape = tuple(factor.extent for factor, _ in ordered)
        axes = tuple((Factor(factor.extent, stride),) for factor, stride in ordered)
        return View._rows(self.tensor, shape), View(place.tensor, shape, axes, place.offset)

    def expand(self, shape: Shape) -> View:
        """Broadcasts to `shape` by the rules of numpy. An extent that may be 1 at run time gets a conditional stride."""
        missing = len(shape) - self.rank
        axes: list[Axis] = [(Factor(d, 0),) if d != 1 else () for d in shape[:missing]]
        for have, want, axis in zip(self.shape, shape[missing:], self.axes, strict=True):
            if have == want:
                axes.append(axis)
            elif have == 1:
                axes.append((Factor(want, 0),))
            else:
                stride = coalesce(axis)[0].stride if axis else 0
                axes.append((Factor(want, select(equal(have, 1), 0, stride)),))
        return View(self.tensor, shape, tuple(axes), self.offset)

    @property
    def fours(self) -> tuple[Dim, ...] | None:
        """The dims that must be multiples of 4 so that every aligned four elements are aligned neighbours in memory, or one
        element.

        None if they never are.
        """
        factors = self.factors
        if not factors:
            return ()
        *outer, last = factors
        if last.stride == 0:
            return (last.extent,)
        if last.stride != 1:
            return None
        return (self.offset, *([last.extent] if outer else []), *(f.stride for f in outer))


def distribute(factors: Sequence[Factor], shape: Shape) -> tuple[Axis, ...] | None:
    """Distributes the factors, outermost first, over the axes of `shape`. Splits a factor if an axis ends inside of it."""
    axes: list[Axis] = []
    rest = list(factors)
    for extent in shape:
        need: Dim = extent
        axis: list[Factor] = []
        while need != 1:
            if not rest:
                return None
            have = rest[0]
            if need == have.extent:
                axis.append(rest.pop(0))
                need = 1
            elif (outer := quotient(need, have.extent)) is not None:
                axis.append(rest.pop(0))
                need = outer
            elif (inner := quotient(have.extent, need)) is not None:
                axis.append(Factor(need, have.stride * inner))
                rest[0] = Factor(inner, have.stride)
                need = 1
            else:
                return None
        axes.append(tuple(axis))
    return tuple(axes) if not rest else None


def broadcast_shapes(*shapes: Shape) -> Shape:
    """Returns the broadcast shape of operands. Mismatches of symbolic dims are checked when a plan is made."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    out: list[Dim] = []
    for dims in zip(*padded, strict=True):
        result: Dim = 1
        for d in dims:
            result = broadcast(result, d)
        out.append(result)
    return tuple(out)


@dataclass(frozen=True)
class Read:
    """An operand: a view, and how its axes are grouped to coordinates of the accessor.

    `groups=(2, 1)` gives `x_at(a, b)`, where a counts over the first two axes and b over the third.

    - `reuse`: a kernel reads an element more than a few times, so an expensive producer must not be recomputed there.
    - `vector`: adds `x_at4(a, b)`, the elements b to b + 3, with b a multiple of 4. It is one load if the layout allows it.
    - `run`: adds `x_run(a, b)`, that many elements from b on, a multiple of it, as vec4s `v` with a common factor `scale`.
    - `here`: a map with a body reads the operand only at its own coordinates, if at all.
    """

    view: View
    groups: tuple[int, ...]
    reuse: bool = False
    vector: bool = False
    run: int = 0
    here: bool = False

    @property
    def extents(self) -> tuple[tuple[Dim, ...], ...]:
        return split_groups(self.view.shape, self.groups)

    @property
    def loads_vectors(self) -> bool:
        """Whether four neighbours along the last coordinate are adjacent in memory, at a multiple of four."""
        return self.loads_together(4)

    def loads_together(self, count: int) -> bool:
        """Like `loads_vectors`, for `count` neighbours."""
        inner = self.view.rank - self.groups[-1]
        outer = [f for axis in self.view.axes[:inner] for f in axis]
        last = coalesce([f for axis in self.view.axes[inner:] for f in axis])
        if (
            not last
            or last[-1].stride != 1
            or quotient(last[-1].extent, count) is None
            or quotient(self.view.offset, count) is None
        ):
            return False
        return all(quotient(f.stride, count) is not None for f in [*outer, *last[:-1]])


def split_groups(shape: tuple[Dim, ...], groups: tuple[int, ...]) -> tuple[tuple[Dim, ...], ...]:
    out, at = [], 0
    for count in groups:
        out.append(tuple(shape[at : at + count]))
        at += count
    if at != len(shape):
        raise ValueError(f"groups {groups} do not cover a shape of rank {len(shape)}")
    return tuple(out)


class Node:
    """The base class of nodes, which compute tensors from tensors; `graph` has the kinds. Nodes compare by identity.

    `origin` names the ONNX nodes that it calculates, whole or in part.
    """

    operands: dict[str, Read]
    origin: tuple[str, ...]

    @property
    def reads(self) -> list[View]:
        """The views through which it reads tensors."""
        return [read.view for read in self.operands.values()]

    @property
    def outputs(self) -> list[Tensor]:
        """The tensors that it computes."""
        raise NotImplementedError
