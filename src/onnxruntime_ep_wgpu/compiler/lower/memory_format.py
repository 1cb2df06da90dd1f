"""Memory formats: propagates the channels-last layout to results that are computed element by element.

In: views of operands. Out: the memory order of a result, and the result as a view in ONNX's order. Invariant: the format
affects memory alone. Shapes, and what an operator reads and returns, are those of ONNX, which puts channels before positions.
A reader that needs another order than an operand's reads it through a view.

The layout begins at convolutions where `channels_last` is chosen (`docs/tuning.md`). The elements of a window that one tap
reads are then neighbours, and the images of a batch are rows of one matrix.
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
    """The tensors of a graph that are stored channels-last: their last axis is axis 1 of the values in them."""

    def __init__(self) -> None:
        self._tensors: set[Tensor] = set()

    def of(self, views: Iterable[View]) -> MemoryFormat:
        """Returns the format of a result that has the shape of these operands. It is channels-last if an operand has
        contiguous channels in a channels-last tensor."""
        for view in views:
            if view.tensor in self._tensors and not view.is_whole and len(view.tensor.shape) == view.rank:
                channels = coalesce(view.axes[1])
                if len(channels) == 1 and channels[0].stride == 1:
                    return self.channels_last(view.rank)
        return MemoryFormat(self, ())

    def name(self, value: Operand, name: str) -> None:
        """Names the tensor that contains exactly this value with its channels last. The first name stays."""
        tensor, memory = value.view.tensor, self.of([value.view])
        if memory.permutation and not tensor.name and memory.permuted(value.view) == View.of(tensor):
            tensor.name = name_in_order(name, memory.permutation)

    def channels_last(self, rank: int) -> MemoryFormat:
        """The channels-last format for a result of rank `rank`, at least 3."""
        return MemoryFormat(self, (0, *range(2, rank), 1))

    def note(self, view: View) -> None:
        """Registers the tensor of a view if the view is all of it and the tensor's last axis is the view's axis 1."""
        if len(view.tensor.shape) == view.rank > 2 and self.channels_last(view.rank).permuted(view) == View.of(
            view.tensor
        ):
            self._tensors.add(view.tensor)

    def add(self, tensor: Tensor) -> View:
        """Registers a channels-last tensor. Returns the view of it in ONNX's order."""
        rank = len(tensor.shape)
        self._tensors.add(tensor)
        return View.of(tensor).permute((0, rank - 1, *range(1, rank - 1)))


@dataclass(frozen=True)
class MemoryFormat:
    """The memory order of a result: its axes from the outermost to the contiguous one; () for ONNX's order."""

    known: MemoryFormats
    permutation: tuple[int, ...]

    def permuted(self, view: View) -> View:
        """Permutes a view of the result's shape to memory order."""
        return view.permute(self.permutation) if self.permutation else view

    def by_axis(self, those: Sequence[T]) -> tuple[T, ...]:
        """Permutes a sequence with one entry per axis of the result to memory order."""
        return tuple(those[axis] for axis in self.permutation) if self.permutation else tuple(those)

    def place(self, axis: int) -> int:
        """The position of an axis of the result in memory order."""
        return self.permutation.index(axis) if self.permutation else axis

    def in_result_order(self, made: Operand) -> Operand:
        """Returns a tensor that was created in memory order as a value of the result's shape."""
        if not self.permutation:
            return made
        assert made.view == View.of(made.view.tensor) and made.rank == len(self.permutation), (
            "what was made is a tensor of its own"
        )
        view = self.known.add(made.view.tensor)
        return Operand(made.dtype, view.shape, view)
