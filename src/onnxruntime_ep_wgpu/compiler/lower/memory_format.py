"""Memory formats: which results have their channels last in memory, and that what is made of them element by element has them there
too.

In: views of operands. Out: the order in which the elements of a result lie, and the result seen in its own order. Invariant: the
order is one of memory alone; shapes, and what an operator reads and makes, are those of ONNX, whose images have their channels
before their positions. A reader that needs another order than an operand has reads it as any view.

Convolutions begin it where `channels_last` is chosen (`docs/tuning.md`): the elements of a window that one tap reads are neighbours
then, and the images of a batch are rows of one matrix.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from ...program.axes import name_in_order
from ...records import dataclass
from ..ir import Tensor, View, coalesce
from .operand import Operand

T = TypeVar("T")


class MemoryFormats:
    """The tensors of a graph whose last axis is what the values they hold have second."""

    def __init__(self) -> None:
        self._tensors: set[Tensor] = set()

    def of(self, views: Iterable[View]) -> MemoryFormat:
        """How the result for such operands, all of its shape, lies: with its channels last where those of one are neighbours in a
        tensor that has them last."""
        for view in views:
            if view.tensor in self._tensors and not view.is_whole and len(view.tensor.shape) == view.rank:
                channels = coalesce(view.axes[1])
                if len(channels) == 1 and channels[0].stride == 1:
                    return self.channels_last(view.rank)
        return MemoryFormat(self, ())

    def name(self, value: Operand, name: str) -> None:
        """Names the tensor that holds exactly this value with its channels last; the first name stays."""
        tensor, memory = value.view.tensor, self.of([value.view])
        if memory.permutation and not tensor.name and memory.permuted(value.view) == View.of(tensor):
            tensor.name = name_in_order(name, memory.permutation)

    def channels_last(self, rank: int) -> MemoryFormat:
        """The order of a result of so many axes, at least 3, whose channels are last."""
        return MemoryFormat(self, (0, *range(2, rank), 1))

    def note(self, view: View) -> None:
        """Notes the tensor of which this is all, if its last axis is the second one here."""
        if len(view.tensor.shape) == view.rank > 2 and self.channels_last(view.rank).permuted(view) == View.of(
            view.tensor
        ):
            self._tensors.add(view.tensor)

    def add(self, tensor: Tensor) -> View:
        """Notes a tensor whose channels are last. Returns it as its value is seen."""
        rank = len(tensor.shape)
        self._tensors.add(tensor)
        return View.of(tensor).permute((0, rank - 1, *range(1, rank - 1)))


@dataclass(frozen=True)
class MemoryFormat:
    """How a result lies in memory: its axes from the outermost to that of neighbours; () as they are."""

    known: MemoryFormats
    permutation: tuple[int, ...]

    def permuted(self, view: View) -> View:
        """A view of the result's shape in the order of memory."""
        return view.permute(self.permutation) if self.permutation else view

    def by_axis(self, those: Sequence[T]) -> tuple[T, ...]:
        """What there is one of for each axis of the result, in the order of memory."""
        return tuple(those[axis] for axis in self.permutation) if self.permutation else tuple(those)

    def place(self, axis: int) -> int:
        """Where an axis of the result is in the order of memory."""
        return self.permutation.index(axis) if self.permutation else axis

    def seen(self, made: Operand) -> Operand:
        """What was made in the order of memory, as a value of the result's shape."""
        if not self.permutation:
            return made
        assert made.view == View.of(made.view.tensor) and made.rank == len(self.permutation), (
            "what was made is a tensor of its own"
        )
        view = self.known.add(made.view.tensor)
        return Operand(made.dtype, view.shape, view)
