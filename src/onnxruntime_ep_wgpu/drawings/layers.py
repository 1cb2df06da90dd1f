"""Layout of boxes in rows from top to bottom, so that every line goes down, with few crossings.

In: the number of boxes, and lines as pairs that point forward. Out: `Layers`. The method is Sugiyama's, with the mean of the
neighbours' positions as order (Sugiyama, Tagawa and Toda, 1981).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ..records import dataclass

SWEEPS = 4


@dataclass(frozen=True)
class Layers:
    """`rows` has the boxes of each row in order. Numbers from `count` on are waypoints of long lines.

    `ways` has the path of each line: source, waypoints and target, one in each row."""

    rows: list[list[int]]
    ways: list[list[int]]


def layers(count: int, lines: Sequence[tuple[int, int]]) -> Layers:
    """Places a box below all boxes that it reads, as high as possible. A box without inputs is just above its first reader."""
    depth = _depths(count, lines)
    ways: list[list[int]] = []
    for source, target in lines:
        first = len(depth)
        depth += range(depth[source] + 1, depth[target])
        ways.append([source, *range(first, len(depth)), target])
    rows: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for box, row in enumerate(depth):
        rows[row].append(box)
    return Layers(_ordered(rows, [pair for way in ways for pair in pairwise(way)]), ways)


def _depths(count: int, lines: Sequence[tuple[int, int]]) -> list[int]:
    depth = [0] * count
    for source, target in sorted(lines, key=lambda line: line[1]):
        depth[target] = max(depth[target], depth[source] + 1)
    readers: dict[int, list[int]] = {}
    targets = {target for _, target in lines}
    for source, target in lines:
        readers.setdefault(source, []).append(target)
    for box, found in readers.items():
        if box not in targets:
            depth[box] = min(depth[it] for it in found) - 1
    return depth


def _ordered(rows: list[list[int]], lines: Sequence[tuple[int, int]]) -> list[list[int]]:
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for source, target in lines:
        above.setdefault(target, []).append(source)
        below.setdefault(source, []).append(target)
    for sweep in range(SWEEPS):
        near, order = (above, rows) if sweep % 2 == 0 else (below, rows[::-1])
        place = {box: (k + 0.5) / len(row) for row in rows for k, box in enumerate(row)}
        for row in order:
            mean = {
                box: sum(place[it] for it in near[box]) / len(near[box]) if near.get(box) else place[box] for box in row
            }
            row.sort(key=lambda box: (mean[box], place[box]))
            place |= {box: (k + 0.5) / len(row) for k, box in enumerate(row)}
    return rows
