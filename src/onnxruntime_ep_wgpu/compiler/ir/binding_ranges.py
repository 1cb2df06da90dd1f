"""Binding ranges: how a tensor larger than a binding is bound.

In: the tensors that a kernel reads and stores, and the target's limit. Out: per tensor the ranges of its memory that are
bindings. Invariant: a range begins at a multiple of RANGE_GRAIN, which every adapter can bind and every element size divides.

A tensor within the limit is bound whole. Of a larger tensor, a kernel binds the elements that its views can reach, as consecutive
ranges. Its accessors select the range. A kernel of maps is instead dispatched once per part of its elements. One range then moves
along each tensor that is stored, or read at the same index.

Only sizes known at compile time get ranges. For others the graph is compiled again (`specialise.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from ...program.target import Target
from ...records import dataclass
from ..dims import Dim, minimum
from .graph import MOST_ELEMENTS, REPETITION, Map
from .view import Node, Read, Storage, Tensor, View

RANGE_GRAIN = 256  # bytes
PART_GRAIN = 512  # elements; a part is whole workgroups, for any element size below a word


def is_storable(tensor: Tensor, target: Target) -> bool:
    """Returns whether a buffer can hold the tensor. An unknown size counts as storable."""
    size = nbytes(tensor.memory)
    return size is None or size <= target.max_buffer_bytes


def is_countable(tensor: Tensor) -> bool:
    """Returns whether kernels can number each element of the tensor. An unknown size counts as countable."""
    return not isinstance(tensor.size, int) or tensor.size < MOST_ELEMENTS


@dataclass(frozen=True)
class BindingRange:
    """A range of a tensor's memory that is one binding, in bytes."""

    offset: Dim
    nbytes: Dim


@dataclass
class KernelBindings:
    """The bindings of a kernel: the ranges of each tensor; none for a tensor that is bound whole.

    With `part`, the kernel is dispatched once per `part` elements of its results. Each tensor of `moving` then has one range per
    part.
    """

    ranges: dict[Tensor, tuple[BindingRange, ...]] = field(default_factory=dict)
    part: int = 0
    moving: set[Tensor] = field(default_factory=set)

    @property
    def bindings(self) -> int:
        return sum(max(1, len(ranges)) for ranges in self.ranges.values())


def nbytes(tensor: Tensor) -> int | None:
    """Returns the bytes of a tensor of known size, else None."""
    size = tensor.size
    return tensor.dtype.nbytes(size) if isinstance(size, int) else None


def is_large(tensor: Tensor, target: Target) -> bool:
    """Returns whether the tensor is known to exceed a binding."""
    size = nbytes(tensor)
    return size is not None and size > target.max_binding_bytes


def placed(
    nodes: Sequence[Node], loads: Mapping[Tensor, Iterable[View]], stores: Sequence[Tensor], target: Target
) -> KernelBindings:
    """Returns how a kernel of these nodes binds the tensors it loads, each through some views, and then the tensors it stores."""
    out = KernelBindings()
    whole = [t for t in stores if t.place is None]
    large = {t for t in [*loads, *whole] if is_large(t, target)}
    if large and all(isinstance(node, Map) for node in nodes):
        out.moving = large & {*whole, *_read_elementwise(nodes, loads, stores)}
    if out.moving:
        bits = [t.dtype.bits for t in out.moving]
        grain = max(PART_GRAIN, RANGE_GRAIN * 8 // min(bits))
        out.part = max(1, target.max_binding_bytes * 8 // max(bits) // grain) * grain
    for tensor in (*loads, *(t.memory for t in stores)):
        if not is_large(tensor, target):
            out.ranges[tensor] = ()
        elif tensor in out.moving:
            out.ranges[tensor] = (_moving_range(tensor, out.part),)
        else:
            places = [t.place for t in stores if t.place is not None and t.memory is tensor]
            out.ranges[tensor] = _fixed_ranges(tensor, [*loads.get(tensor, ()), *places], target)
    return out


def of_node(node: Node, target: Target, calculated: bool = False) -> KernelBindings:
    """Returns how a kernel of this node alone binds its operands and results.

    With `calculated`, the kernel includes operands that only decode weights.
    """
    loads: dict[Tensor, list[View]] = {}
    for read in node.reads:
        producer = read.tensor.producer
        own = calculated and isinstance(producer, Map) and only_decodes_weights(producer)
        for view in producer.reads if own and producer is not None else [read]:
            if not view.tensor.is_literal:
                loads.setdefault(view.tensor, []).append(view)
    return placed([node], loads, node.outputs, target)


def only_decodes_weights(node: Map) -> bool:
    """Returns whether a map only decodes weights: it is inline and reads only weights. Its readers compute it, and it is never
    stored."""
    return node.inline and of_weights(node.operands.values())


def of_weights(reads: Iterable[Read]) -> bool:
    return all(read.view.tensor.storage is Storage.WEIGHT for read in reads)


def _read_elementwise(nodes: Sequence[Node], loads: Iterable[Tensor], stores: Sequence[Tensor]) -> list[Tensor]:
    """Returns the loads that a kernel of maps reads only where it stores: element by element, through whole views."""
    inside = {t: node for node in nodes for t in node.outputs}
    elsewhere: set[Tensor] = set()
    pending = [(tensor, True) for tensor in stores]
    seen = set(pending)
    while pending:
        tensor, here = pending.pop()
        if not here:
            elsewhere.add(tensor)
        node = inside.get(tensor)
        for read in node.operands.values() if node is not None else ():
            own = isinstance(node, Map) and (node.is_pointwise or read.here) and read.view.is_whole
            found = (read.view.tensor, here and own)
            if found not in seen:
                seen.add(found)
                pending.append(found)
    return [t for t in loads if t not in elsewhere]


def parts(stores: Iterable[Tensor], part: int) -> int:
    """Returns the number of dispatches of a kernel that computes `part` elements in each, or 1 if `part` is 0."""
    if not part:
        return 1
    (size,) = {t.size for t in stores}
    assert isinstance(size, int)
    return -(-size // part)


def _moving_range(tensor: Tensor, part: int) -> BindingRange:
    step, size = part * tensor.dtype.bits // 8, nbytes(tensor)
    assert size is not None
    return BindingRange(REPETITION * step, minimum(step, size - REPETITION * step))


def _fixed_ranges(tensor: Tensor, views: Iterable[View], target: Target) -> tuple[BindingRange, ...]:
    """Returns consecutive ranges that cover all elements the views reach, or the whole tensor if it is stored.

    The list ends one range beyond the target's limit, since a model file may claim any size.
    """
    size, bits = nbytes(tensor), tensor.dtype.bits
    assert size is not None
    reached = [reach(view) for view in views]
    first = min((low for low, _ in reached), default=0) * bits // 8 // RANGE_GRAIN * RANGE_GRAIN
    end = min(size, -(-max((high for _, high in reached), default=size * 8 // bits) * bits // 8))
    step = target.max_binding_bytes // RANGE_GRAIN * RANGE_GRAIN
    places = range(first, max(end, first + 1), step)[: target.max_storage_buffers + 1]
    return tuple(BindingRange(at, min(step, end - at)) for at in places)


def reached_bits(*views: View) -> int:
    """Returns the bits of memory between the first and the last element that views of one tensor of known size show."""
    ends = [reach(view) for view in views]
    return (max(high for _, high in ends) - min(low for low, _ in ends)) * views[0].dtype.bits


def reach(view: View) -> tuple[int, int]:
    """Returns the first element that a view shows, and the one after the last. Returns the whole tensor if that is unknown."""
    size = view.tensor.size
    low = high = view.offset
    for factor in view.factors:
        span = (factor.extent - 1) * factor.stride
        if isinstance(span, int) and span < 0:
            low = low + span
        else:
            high = high + span
    assert isinstance(size, int)
    if not isinstance(low, int) or not isinstance(high, int) or view.size == 0:
        return 0, size
    return max(0, low), min(size, high + 1)
