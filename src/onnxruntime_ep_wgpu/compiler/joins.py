"""A join as maps: each element picks its operand by the coordinate along the axis. Elements of many operands are picked in
steps, so that no kernel needs more bindings than there are."""

from __future__ import annotations

from collections.abc import Iterator

from ..program.target import Target
from .dims import Dim
from .ir import Join, Map, Read, Tensor, View


def picked(join: Join, target: Target) -> Iterator[Map]:
    """The maps, in order; the last one makes the output."""
    most, axis = max(2, target.max_storage_buffers - 1), join.axis
    views = [read.view for read in join.operands.values()]
    while len(views) > 1:
        steps = [views[k : k + most] for k in range(0, len(views), most)]
        views = []
        for step in steps:
            if len(step) == 1:
                views += step
                continue
            output = join.output
            if len(steps) > 1:
                extent = sum((view.shape[axis] for view in step), start=0)
                output = Tensor(output.dtype, (*output.shape[:axis], extent, *output.shape[axis + 1 :]))
            output.producer = node = _picking(step, axis, output, join.origin)
            yield node
            views.append(View.of(output))


def _picking(views: list[View], axis: int, output: Tensor, origin: tuple[str, ...]) -> Map:
    lines, start = [], 0  # type: list[str], Dim
    parameters: dict[str, Dim] = {}
    for k, view in enumerate(views):
        parameters[f"start{k}"] = start
        start = start + view.shape[axis]
        parameters[f"end{k}"] = start
        read = f"return x{k}_at(outer, axis - $start{k}, inner);"
        lines.append(f"  if (axis < $end{k}) {{ {read} }}" if k + 1 < len(views) else f"  {read}")
    groups = (axis, 1, len(output.shape) - axis - 1)
    return Map(
        output,
        {f"x{k}": Read(view, groups) for k, view in enumerate(views)},
        body="\n".join(lines),
        coordinates=("outer", "axis", "inner"),
        groups=groups,
        parameters=parameters,
        cost=len(views),
        origin=origin,
    )
