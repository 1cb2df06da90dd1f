"""Partitions the nodes that can run here into groups to compile, as few and as large as possible.

In: a directed acyclic graph as predecessor lists in topological order, and which nodes can run. Out: groups of node
indices in topological order. Invariant: groups are convex (no path leaves a group and comes back). They can be sorted so that
each depends only on earlier groups and nodes. A node that needs results of another node before it starts is in a later group.

The level of a node is the largest number of crossings on a path to it. A crossing goes from a node that can run to one that
cannot, and back. A path that leaves a group and comes back would raise the level, so the nodes of one level that can run form a
convex group. If the largest number of crossings on a path is n, every partition needs at least n + 1 groups, so the number is
minimal. The time is linear in the number of edges; merging pairs of groups under a reachability check would be quadratic.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

Waits = Collection[tuple[int, int]]
"""Pairs of nodes. The second node must be in a later group than the first."""


def levels(predecessors: Sequence[Sequence[int]], can_run: Sequence[bool], waits: Waits = ()) -> list[int]:
    """Returns the group number of every node that can run; -1 for a node that cannot."""
    count = len(can_run)
    # For nodes that cannot run: the highest group that they depend on, -1 if there is none.
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
    """Moves a node into the first group that reads its results, if only groups do, so that fewer tensors cross."""
    successors: list[list[int]] = [[] for _ in level]
    for node, before in enumerate(predecessors):
        for other in before:
            successors[other].append(node)
    for node in reversed(range(len(level))):
        if can_run[node] and successors[node] and all(can_run[after] for after in successors[node]):
            level[node] = min(level[after] - ((node, after) in waits) for after in successors[node])


def components(predecessors: Sequence[Sequence[int]], level: Sequence[int]) -> list[list[int]]:
    """Returns the connected components of each group, in topological order of their first nodes."""
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
    """Returns the groups, in an order in which they can run."""
    level = levels(predecessors, can_run, waits)
    found: dict[int, list[int]] = {}
    for node, number in enumerate(level):
        if number >= 0:
            found.setdefault(number, []).append(node)
    return [found[number] for number in sorted(found)]
