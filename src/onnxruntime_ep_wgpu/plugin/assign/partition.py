"""Nodes that can run here into groups that are compiled as one, as few and as large as possible.

In: a directed acyclic graph as predecessor lists in topological order, and which nodes can run. Out: groups of node
indices in topological order. Invariant: groups are convex (no path leaves a group and comes back) and can be put in an
order in which each needs only groups and nodes before it, however many there are. A node that has to know what another one makes
before it runs is in a later group.

The level of a node counts how often any path to it went from a node that can run to one that cannot and back. A path from
a group out and back in would raise the level, so all nodes of one level that can run form a convex group; and a graph
whose longest such path has n crossings needs n + 1 groups whatever one does, so there are never too many. Linear in the
number of edges, where merging pairs of groups under a reachability check is quadratic.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

Waits = Collection[tuple[int, int]]
"""Pairs of nodes of which the second one has to be in a later group."""


def levels(predecessors: Sequence[Sequence[int]], can_run: Sequence[bool], waits: Waits = ()) -> list[int]:
    """The group number of every node that can run; -1 for a node that cannot."""
    count = len(can_run)
    # For nodes that cannot run: the highest group that they wait for, -1 when none.
    level = [-1] * count
    for node in range(count):
        for before in predecessors[node]:
            crossing = can_run[node] and (not can_run[before] or (before, node) in waits)
            level[node] = max(level[node], level[before] + crossing)
        if can_run[node]:
            level[node] = max(level[node], 0)
    _sink(predecessors, can_run, level, waits)
    return [level[node] if can_run[node] else -1 for node in range(count)]


def _sink(predecessors: Sequence[Sequence[int]], can_run: Sequence[bool], level: list[int], waits: Waits) -> None:
    """Moves a node whose results are only needed in a later group into that group, so that fewer tensors cross."""
    successors: list[list[int]] = [[] for _ in level]
    for node, before in enumerate(predecessors):
        for other in before:
            successors[other].append(node)
    for node in reversed(range(len(level))):
        if can_run[node] and successors[node] and all(can_run[after] for after in successors[node]):
            level[node] = min(level[after] - ((node, after) in waits) for after in successors[node])


def components(predecessors: Sequence[Sequence[int]], level: Sequence[int]) -> list[list[int]]:
    """The parts of each group that are connected within it, in topological order of their first nodes."""
    parent = list(range(len(level)))

    def find(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for node, before in enumerate(predecessors):
        for other in before:
            if level[node] >= 0 and level[node] == level[other]:
                parent[max(find(node), find(other))] = min(find(node), find(other))
    parts: dict[int, list[int]] = {}
    for node in range(len(level)):
        if level[node] >= 0:
            parts.setdefault(find(node), []).append(node)
    return list(parts.values())


def groups(predecessors: Sequence[Sequence[int]], can_run: Sequence[bool], waits: Waits = ()) -> list[list[int]]:
    """The groups, in an order in which they can run."""
    level = levels(predecessors, can_run, waits)
    found: dict[int, list[int]] = {}
    for node, number in enumerate(level):
        if number >= 0:
            found.setdefault(number, []).append(node)
    return [found[number] for number in sorted(found)]
