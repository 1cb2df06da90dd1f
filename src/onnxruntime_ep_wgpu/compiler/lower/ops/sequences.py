"""Sequences and optional values: SequenceConstruct, SequenceAt, SplitToSequence, Optional and others.

If their structure is known when a model is loaded, these operators compute nothing: they pass operands on (`structures`).
"""

from __future__ import annotations

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ...dims import Dim, equal, floordiv
from ..builder import Builder, Operand
from ..structures import OptionalValue, SequenceValue, Structure
from .choices import Flag
from .named_axes import axis_of
from .parts import concat
from .registry import ANY, INTEGERS, op

MOST_PARTS = 1024  # of a tensor that is split: with more, the parts are data, not structure


@op("SequenceConstruct", types=ANY)
def sequence_construct(b: Builder, *elements: Operand) -> SequenceValue:
    return SequenceValue(elements)


@op("SequenceEmpty")
def sequence_empty(b: Builder, *, dtype: int = 1) -> SequenceValue:
    return SequenceValue(())


@op("SequenceLength")
def sequence_length(b: Builder, sequence: SequenceValue) -> Operand:
    return b.host(DType.INT64, len(sequence.elements))


@op("SequenceAt", position=INTEGERS)
def sequence_at(b: Builder, sequence: SequenceValue, position: Operand) -> Operand:
    return sequence.elements[_position(b, sequence, position, 0)]


@op("SequenceInsert", tensor=ANY, position=INTEGERS)
def sequence_insert(
    b: Builder, sequence: SequenceValue, tensor: Operand, position: Operand | None = None
) -> SequenceValue:
    """Inserts before the element at `position`, or at the end."""
    place = len(sequence.elements) if position is None else _position(b, sequence, position, 1)
    return SequenceValue((*sequence.elements[:place], tensor, *sequence.elements[place:]))


@op("SequenceErase", position=INTEGERS)
def sequence_erase(b: Builder, sequence: SequenceValue, position: Operand | None = None) -> SequenceValue:
    """Removes the element at `position`, or the last one."""
    place = _position(b, sequence, position, 0)
    return SequenceValue((*sequence.elements[:place], *sequence.elements[place + 1 :]))


def _position(b: Builder, sequence: SequenceValue, position: Operand | None, more: int) -> int:
    """Returns a valid position; negative ones count from the end. There are `more` positions than elements. Without
    `position` it is that of the last element."""
    count = len(sequence.elements)
    place = -1
    if position is not None:
        position.check_one("the position in a sequence")
        (place,) = b.assumed_ints(
            position.dims("the position in a sequence"), "the position in a sequence", lambda _: [0]
        )
    if not -count <= place < count + more:
        raise UnsupportedError(f"the position {place} is not in a sequence of {count} elements")
    return place + count if place < 0 else place


@op("SplitToSequence", types=ANY, split=INTEGERS)
def split_to_sequence(
    b: Builder, x: Operand, split: Operand | None = None, *, axis: int = 0, keepdims: Flag = 1
) -> SequenceValue:
    """Returns parts along an axis: of the sizes in a list `split`; of one size, except the last part; or of one element each.
    The latter have no such axis without `keepdims`."""
    axis, what = axis_of(axis, x.rank), "the size of the parts of a split"
    extent = x.shape[axis]
    if split is not None and split.rank:
        sizes: list[Dim] = split.dims("the sizes of a split")
        total = sum(sizes, start=0)
        b.require(equal(total, extent), f"the sizes {{}} of the split do not add up to axis {axis} of {{}}", sizes, x)
    else:
        size = 1
        if split is not None:
            (size,) = b.assumed_ints(split.dims(what), what, lambda _: [1])
        if size < 1:
            raise UnsupportedError(f"{what} is {size}, and must be 1 or more")
        extent = b.assume(extent, size, "the extent of an axis that is split into a sequence")
        _check_count(floordiv(extent + size - 1, size))
        sizes = [min(size, extent - start) for start in range(0, extent, size)]
    _check_count(len(sizes))
    parts, start = [], 0  # type: list[Operand], Dim
    for length in sizes:
        part = b.slice(x, axis, start, 1, length)
        if split is None and not keepdims:
            part = b.reshape(part, [*part.shape[:axis], *part.shape[axis + 1 :]])
        parts.append(part)
        start = start + length
    return SequenceValue(tuple(parts))


def _check_count(count: object) -> None:
    if isinstance(count, int) and count > MOST_PARTS:
        raise UnsupportedError(f"a split into {count} parts, more than {MOST_PARTS}")


@op("ConcatFromSequence")
def concat_from_sequence(b: Builder, sequence: SequenceValue, *, axis: int, new_axis: Flag = 0) -> Operand:
    """Returns the elements concatenated along an axis, which is an existing or a new one."""
    elements = sequence.elements
    if not elements:
        raise UnsupportedError("an empty sequence has nothing to concatenate")
    if new_axis:
        axis = axis_of(axis, elements[0].rank + 1)
        elements = tuple(b.reshape(it, [*it.shape[:axis], 1, *it.shape[axis:]]) for it in elements)
    joined: Operand = concat(b, *elements, axis=axis)
    return joined


# ---- optional values


@op("Optional", types=ANY)
def optional(b: Builder, content: Operand | SequenceValue | None = None, *, type: object = None) -> OptionalValue:
    return OptionalValue(content)


@op("OptionalHasElement", types=ANY)
def optional_has_element(b: Builder, x: Operand | Structure | None = None) -> Operand:
    """Whether an optional value is not empty. A tensor or a sequence is never empty."""
    empty = x is None or (isinstance(x, OptionalValue) and x.content is None)
    return b.host(DType.BOOL, not empty)


@op("OptionalGetElement", types=ANY)
def optional_get_element(b: Builder, x: Operand | Structure) -> Operand | SequenceValue:
    content = x.content if isinstance(x, OptionalValue) else x
    if content is None:
        raise UnsupportedError("an empty optional value has no element")
    return content
