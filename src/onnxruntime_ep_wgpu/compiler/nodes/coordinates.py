"""Coordinates of a body that handles some axes separately: one coordinate for each, and one for each run of other axes between
them."""

from __future__ import annotations

from collections.abc import Collection


def separate_coordinates(rank: int, axes: Collection[int]) -> tuple[list[int], dict[int, int]]:
    """Returns how many axes each coordinate counts over, and the number of the coordinate of each axis in `axes`."""
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
    """Returns one name per coordinate: `prefix` and its number."""
    return tuple(f"{prefix}{k}" for k in range(len(groups)))
