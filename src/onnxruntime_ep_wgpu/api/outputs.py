"""The error of model outputs against the CPU provider, and the kernels that cause it.

In: a session with groups that can be replaced (`stand_in.py`), its inputs, and the compared kernels. Out: an `Output` each. The
session runs again with every group on the CPU provider, then in float64. Then it runs once for each of the kernels with the
largest errors, with everything else on the CPU provider. Invariant: nodes on the CPU are the same in all of these runs.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..records import dataclass
from .differences import above, errors, tolerance_of
from .exact import NoReference
from .stand_in import Arrays, Instead, StandIn

MOST, LEAST = 64, 6
"""Most and fewest kernels with measured contributions. Each costs a run on the CPU provider, so large models get fewer."""
RUN_ELEMENTS = 1 << 28
"""Limit of elements over all of these runs."""
KEPT_ELEMENTS = 1 << 25
"""Limit of elements in memory for the stored results of these kernels."""


@dataclass(frozen=True)
class Contribution:
    """The effect of one kernel that stores `value`, with everything else on the CPU provider.

    `error` is the kernel's own. `moves` is the change of the output, relative to the output's scale."""

    kernel: str
    value: str
    nodes: tuple[str, ...]
    error: float
    moves: float


@dataclass(frozen=True)
class Output:
    """A model output. `error`, `scale` and `elements` are as in `Compared`, with the whole model on this provider.

    If `error` is above the tolerance, `to_f64` is the error against the model in float64, and `cpu_to_f64` that of the CPU
    provider. Without a float64 result, both are None and `judge` is the reason. `contributions` are those of the kernels with
    the largest errors.
    """

    output: str
    dtype: str
    shape: str
    error: float
    scale: float
    elements: str
    to_f64: float | None = None
    cpu_to_f64: float | None = None
    judge: str = ""
    contributions: tuple[Contribution, ...] = ()


@dataclass(frozen=True)
class Suspect:
    """A kernel with a `value` that differs from the CPU provider's. `array` is its result, in the model's axis order."""

    kernel: str
    value: str
    nodes: tuple[str, ...]
    error: float
    group: StandIn
    array: Any


class Suspects:
    """The suspects with the largest errors, within the memory limit."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Suspect]] = []
        self._count = self._elements = 0

    def add(self, suspect: Suspect) -> None:
        if not suspect.error > 0:
            return
        self._count += 1
        self._elements += suspect.array.size
        heapq.heappush(self._heap, (suspect.error, -self._count, suspect))
        while len(self._heap) > MOST or self._elements > KEPT_ELEMENTS:
            self._elements -= heapq.heappop(self._heap)[2].array.size

    def first(self, most: int) -> list[Suspect]:
        """Returns the `most` suspects with the largest errors, largest first."""
        return [suspect for _, _, suspect in sorted(self._heap, key=lambda it: it[:2], reverse=True)[:most]]


def outputs_of(
    session: Any,
    feeds: Mapping[str, Any],
    ours: Sequence[Any],
    groups: Sequence[StandIn],
    suspects: Suspects,
    tolerance: float | None,
) -> list[Output]:
    """Returns the error of every output that is a tensor of numbers. `ours` are the results of the unchanged session."""

    def run(instead: Instead) -> list[Any]:
        for group in groups:
            group.instead = instead
        try:
            return list(session.run(None, feeds))
        finally:
            for group in groups:
                group.instead = None

    cpu = run(StandIn.on_cpu)
    names = [it.name for it in session.get_outputs()]
    found = {
        name: _compared(name, got, want, tolerance)
        for name, got, want in zip(names, ours, cpu, strict=True)
        if isinstance(want, np.ndarray) and want.dtype.kind not in "OSU"
    }
    apart = {name for name, it in found.items() if not it.error <= tolerance_of(it.dtype, tolerance)}
    if not apart:
        return list(found.values())
    exact: list[Any] | str
    try:
        exact = run(StandIn.in_f64)
    except Exception as error:  # ONNX Runtime turns a group's exception into text
        exact = next((str(it) for it in _chain(error) if isinstance(it, NoReference)), str(error))
    count = max(LEAST, RUN_ELEMENTS // max(1, sum(group.elements for group in groups)))
    moved = [(it, run(_all_but(it))) for it in suspects.first(count)]
    for k, name in enumerate(names):
        if name in apart:
            far = ((it, _distance(those[k], cpu[k])) for it, those in moved)
            shown = [Contribution(it.kernel, it.value, it.nodes, it.error, by) for it, by in far if by > 0]
            shown.sort(key=lambda it: -it.moves)
            found[name] = replace(found[name], contributions=tuple(shown))
            if isinstance(exact, str):
                found[name] = replace(found[name], judge=f"no reference in float64: {exact}")
            else:
                ours_far, cpu_far = (_distance(it[k], exact[k]) for it in (ours, cpu))
                found[name] = replace(found[name], to_f64=ours_far, cpu_to_f64=cpu_far)
    return list(found.values())


def _chain(error: BaseException | None) -> Any:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _all_but(suspect: Suspect) -> Instead:
    """Returns a replacement with the CPU provider for everything except one kernel's result in its group's first run."""
    done = False

    def instead(group: StandIn, feeds: Arrays) -> Arrays:
        nonlocal done
        if group is not suspect.group or done:
            return group.on_cpu(feeds)
        done = True
        return group.on_cpu(feeds, {suspect.value: suspect.array})

    return instead


def _compared(name: str, got: Any, want: Any, tolerance: float | None) -> Output:
    if got.shape != want.shape:  # data-dependent shapes
        shapes = " and ".join("x".join(map(str, it.shape)) or "scalar" for it in (got, want))
        return Output(name, str(want.dtype), shapes, float("inf"), 0.0, "")
    far, scale, elements = above(got, want, tolerance)
    return Output(name, str(want.dtype), "x".join(map(str, want.shape)) or "scalar", far, scale, elements)


def _distance(got: Any, want: Any) -> float:
    if got.shape != want.shape:
        return float("inf")
    return float(errors(got.reshape(-1), want.reshape(-1))[0].max(initial=0.0))
