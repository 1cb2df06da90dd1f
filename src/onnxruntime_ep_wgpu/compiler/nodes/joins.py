"""A join as maps: each element selects its operand by the coordinate along the axis.

Many operands are selected in steps, so that no kernel lacks bindings. Operands at the beginning or end that another join already
stores next to each other are read from it as one operand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...program.target import Target
from ..dims import Dim
from ..ir import Body, Join, Map, Read, Tensor, View


def picked(join: Join, target: Target) -> Iterator[Map]:
    """Yields the maps, in order; the last one computes the output."""
    most, axis = _max_operands(target), join.axis
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
            output.producer = node = _selection(step, axis, output, join.origin)
            yield node
            views.append(View.of(output))


def count_of_maps(operands: int, target: Target) -> int:
    """Returns how many maps `picked` yields for a number of operands."""
    most, maps = _max_operands(target), 0
    while operands > 1:
        full, rest = divmod(operands, most)
        maps += full + (rest > 1)
        operands = full + (rest > 0)
    return maps


def _max_operands(target: Target) -> int:
    return max(2, target.max_storage_buffers - 1)


class Shared:
    """Joins with all operands of an earlier join at their beginning or end. Each layer of a DenseNet joins the results of all
    previous layers.

    A lookup follows the operands from either end, in time proportional to their number.
    """

    def __init__(self, joins: Sequence[Join]) -> None:
        self._within: dict[Join, list[tuple[bool, Join]]] = {join: [] for join in joins}
        for at_end in (False, True):
            steps: dict[tuple[int, int, View], int] = {}
            whole: dict[int, Join] = {}
            for join in joins:
                views = [read.view for read in join.operands.values()]
                step = -1 - join.axis
                for view in reversed(views) if at_end else views:
                    step = steps.setdefault((join.axis, step, view), len(steps))
                    if step in whole:
                        self._within[join].append((at_end, whole[step]))
                if len(views) > 1:
                    whole.setdefault(step, join)

    def shortened(self, join: Join, usable: set[Join], target: Target) -> tuple[Join, Join | None]:
        """Returns the equal join with the fewest operands, and the join of `usable` that it reads in place of some operands.

        It does so only if that saves a map. An operand with other readers must be stored, which may cost a map.
        """
        count = len(join.operands)
        among = [it for it in self._within[join] if it[1] in usable and len(it[1].operands) < count]
        at_end, best = max(among, key=lambda it: len(it[1].operands), default=(False, None))
        if best is None:
            return join, None
        left = count - len(best.operands)
        if count_of_maps(left + 1, target) >= count_of_maps(count, target):
            return join, None
        whole = Read(View.of(best.output), (len(best.output.shape),))
        reads = list(join.operands.values())
        reads = [*reads[:left], whole] if at_end else [whole, *reads[-left:]]
        return replace(join, operands={f"x{k}": read for k, read in enumerate(reads)}), best


def _selection(views: list[View], axis: int, output: Tensor, origin: tuple[str, ...]) -> Map:
    start: Dim = 0
    parameters: dict[str, Dim] = {}
    for k, view in enumerate(views):
        parameters[f"start{k}"] = start
        start = start + view.shape[axis]
        parameters[f"end{k}"] = start
    groups = (axis, 1, len(output.shape) - axis - 1)
    return Map(
        output,
        {f"x{k}": Read(view, groups) for k, view in enumerate(views)},
        body=Body.made("join", {"PARTS": len(views)}),
        coordinates=("outer", "axis", "inner"),
        groups=groups,
        parameters=parameters,
        cost=len(views),
        origin=origin,
    )
