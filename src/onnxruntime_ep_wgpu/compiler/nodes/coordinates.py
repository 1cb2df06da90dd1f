"""Coordinates of a body that treats some axes by themselves: one for each, and one for every run of others between them."""

from __future__ import annotations

from collections.abc import Collection


def apart(rank: int, axes: Collection[int]) -> tuple[list[int], dict[int, int]]:
    """Over how many axes each coordinate counts, and the number of the coordinate for each of `axes`."""
    groups: list[int] = []
    numbers: dict[int, int] = {}
    for axis in range(rank):
        if axis not in axes and axis and axis - 1 not in axes:
            groups[-1] += 1
            continue
        if axis in axes:
            numbers[axis] = len(groups)
        groups.append(1)
    return groups, numbers


def named(prefix: str, groups: Collection[object]) -> tuple[str, ...]:
    """The names of so many coordinates: `prefix` and their numbers."""
    return tuple(f"{prefix}{k}" for k in range(len(groups)))
