"""A constant pad: as a map, which checks the position of each element, or as fill around its operand in memory.

In: a `Pad`. Out: the map; or, if the operand is stored in place, the `strips` around it and a call that fills them. The call also
fills strips of other pads in the same tensor. Strips lie before and after the operand along the first axis, over the whole of the
other axes. Then they lie along the next axis between these, and so on, so that each element is in exactly one strip.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...program.target import Target
from ...records import dataclass
from ..dims import Dim, ceildiv
from ..ir import Body, Call, Constant, Map, Pad, Read, Tensor, Variant, View, Write
from .coordinates import named, separate_coordinates

_WORKGROUP = 64
_MOST_STRIPS = 32  # per kernel; the text has a function for each


def padding(pad: Pad) -> Map:
    """Returns the map that computes the result."""
    x, shape = pad.operands["x"].view, pad.output.shape
    axes = [a for a in range(x.rank) if x.shape[a] != shape[a] or pad.begins[a] != 0]
    groups, numbers = separate_coordinates(x.rank, axes)
    parameters = {f"begin{numbers[a]}": pad.begins[a] for a in axes} | {f"extent{numbers[a]}": x.shape[a] for a in axes}
    constants: dict[str, Constant] = {"RANK": len(groups), "MODE": "constant"}
    constants |= {f"PADDED{k}": k in numbers.values() for k in range(len(groups))}
    pad.output.producer = made = Map(
        pad.output,
        {"x": Read(x, tuple(groups)), "fill": pad.operands["fill"]},
        body=Body.made("pad", constants),
        coordinates=named("at", groups),
        groups=tuple(groups),
        parameters=parameters,
        cost=4 * len(axes),
        origin=pad.origin,
    )
    return made


def inside(pad: Pad, place: View) -> View:
    """Returns the place of the operand if the result is at `place`."""
    for axis, (begin, extent) in enumerate(zip(pad.begins, pad.operands["x"].view.shape, strict=True)):
        place = _cut(place, axis, begin, extent)
    return place


@dataclass(frozen=True)
class Strip:
    """A place that is filled with one element."""

    place: View
    fill: Read


def strips(pad: Pad, place: View) -> list[Strip]:
    """Returns the strips around the operand if the result is at `place`."""
    out = []
    for axis, (begin, extent) in enumerate(zip(pad.begins, pad.operands["x"].view.shape, strict=True)):
        end = begin + extent
        for start, length in ((0, begin), (end, place.shape[axis] - end)):
            if length != 0:
                out.append(Strip(_cut(place, axis, start, length), pad.operands["fill"]))
        place = _cut(place, axis, begin, extent)
    return out


def filled(around: Sequence[Strip], origin: tuple[str, ...], target: Target) -> list[Call]:
    """Returns calls that fill strips of one tensor. Usually one call is enough."""
    calls: list[Call] = []
    begin, buffers = 0, set[Tensor]()
    for end, strip in enumerate(around, 1):
        following = around[end].fill.view.tensor if end < len(around) else None
        buffers |= {strip.fill.view.tensor} if not strip.fill.view.tensor.is_literal else set()
        more = len(buffers | {following}) if following is not None and not following.is_literal else len(buffers)
        if following is None or end - begin == _MOST_STRIPS or more >= target.max_storage_buffers:
            calls.append(_fill_call(around[begin:end], origin))
            begin, buffers = end, set()
    return calls


def _fill_call(around: Sequence[Strip], origin: tuple[str, ...]) -> Call:
    tensors = [Tensor(it.place.dtype, it.place.shape, place=it.place) for it in around]
    total = sum((tensor.size for tensor in tensors), start=0)
    call = Call(
        "fill",
        {f"fill{k}": strip.fill for k, strip in enumerate(around)},
        {f"y{k}": Write(tensor, (len(tensor.shape),)) for k, tensor in enumerate(tensors)},
        (Variant(ceildiv(total, _WORKGROUP), _WORKGROUP),),
        {"STRIPS": len(tensors)},
        {f"size{k}": tensor.size for k, tensor in enumerate(tensors)},
        origin=origin,
    )
    for tensor in tensors:
        tensor.producer = call
    return call


def _cut(place: View, axis: int, start: Dim, length: Dim) -> View:
    part = place.slice(axis, start, 1, length)
    assert part is not None  # an axis that is cut has one stride (checked by `passes/place.py`)
    return part
