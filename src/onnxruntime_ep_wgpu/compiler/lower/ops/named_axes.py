"""The axes that an operator names: counted from the end, or with only their number known."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from ....errors import UnsupportedError
from ...dims import Dim, Expr, less, select
from ..builder import Builder, Operand
from .registry import KnownShape

MOST_TRIED = 1000  # lists of axes


def axis_of(axis: int, rank: int) -> int:
    """Returns a non-negative axis; raises UnsupportedError if it is out of range."""
    if not -rank <= axis < max(rank, 1):
        raise UnsupportedError(f"axis {axis} is out of range for rank {rank}")
    return axis % rank if rank else 0


def axes_of(
    b: Builder,
    axes: Operand | None,
    attribute: list[int] | None,
    rank: int,
    result: Callable[[tuple[int, ...]], Sequence[Dim] | None] = lambda _: None,
    declared: Sequence[KnownShape | None] = (),
) -> list[int] | None:
    """Returns axes of `rank` given as an input (newer versions) or an attribute (older ones).

    If a run decides the axes, they are assumed to be the first combination such that `result`, the resulting shape, fits the
    `declared` shape. Without a declared shape every shape fits.
    """
    if axes is None:
        return attribute

    def usual(count: int) -> Sequence[int]:
        every = list(itertools.islice(itertools.combinations(range(rank), count), MOST_TRIED))
        if not every:
            raise UnsupportedError(f"{count} axes for a tensor of rank {rank}")
        shape = declared[0] if declared else None
        fits = (it for it in every if (made := result(it)) is not None and _fits_declared(made, shape))
        return next(fits, every[0])

    given = [select(less(it, 0), it + rank, it) if isinstance(it, Expr) else it for it in axes.dims("the list of axes")]
    return b.assumed_ints(given, "the list of axes", usual)


def one_axis_of(
    b: Builder,
    axis: Operand | None,
    rank: int,
    default: int = 0,
    result: Callable[[tuple[int, ...]], Sequence[Dim] | None] = lambda _: None,
    declared: Sequence[KnownShape | None] = (),
) -> int:
    """Returns a non-negative axis given as an input, like `axes_of` for several."""
    places = axes_of(b, axis, [default], rank, result, declared) or []
    if len(places) != 1:
        raise UnsupportedError(f"the axis is {axis} and not one number")
    return axis_of(places[0], rank)


def _fits_declared(shape: Sequence[Dim], declared: KnownShape | None) -> bool:
    """Whether a shape is compatible with the declared one."""
    if declared is None:
        return True
    known = [(a, b) for a, b in zip(shape, declared, strict=False) if b is not None and isinstance(a, int)]
    return len(shape) == len(declared) and all(a == b for a, b in known)
