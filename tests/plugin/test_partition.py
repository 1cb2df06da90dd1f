"""Groups are convex, few, and can run one after the other."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from onnxruntime_ep_wgpu.plugin.assign import partition


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[list[int]], list[bool]]:
    """Predecessor lists in topological order, and which nodes can run."""
    count = draw(st.integers(0, 24))
    edges = [draw(st.lists(st.integers(0, node - 1), max_size=3, unique=True)) if node else [] for node in range(count)]
    return edges, [draw(st.booleans()) for _ in range(count)]


def reachable(predecessors: list[list[int]]) -> list[set[int]]:
    """Per node, the nodes that a path leads from to it."""
    found: list[set[int]] = []
    for before in predecessors:
        found.append(set(before).union(*(found[other] for other in before)))
    return found


@given(graphs())
def test_every_node_that_can_run_is_in_exactly_one_group(graph: tuple[list[list[int]], list[bool]]) -> None:
    predecessors, can_run = graph
    placed = list(itertools.chain(*partition.groups(predecessors, can_run)))
    assert sorted(placed) == [node for node, able in enumerate(can_run) if able]


@given(graphs())
def test_no_path_leaves_a_group_and_returns(graph: tuple[list[list[int]], list[bool]]) -> None:
    predecessors, can_run = graph
    behind = reachable(predecessors)
    for group in partition.groups(predecessors, can_run):
        members = set(group)
        for node in range(len(can_run)):
            if node not in members:
                leaves = any(member in behind[node] for member in members)
                returns = any(node in behind[member] for member in members)
                assert not (leaves and returns)


@given(graphs())
def test_groups_run_in_the_given_order(graph: tuple[list[list[int]], list[bool]]) -> None:
    predecessors, can_run = graph
    behind = reachable(predecessors)
    groups = partition.groups(predecessors, can_run)
    for first, second in itertools.combinations(groups, 2):
        assert not any(later in behind[earlier] for earlier in first for later in second)


@given(graphs())
def test_there_are_no_more_groups_than_the_longest_path_has_changes(graph: tuple[list[list[int]], list[bool]]) -> None:
    predecessors, can_run = graph
    changes = [0] * len(can_run)  # runs of nodes that can run, on the path to a node that has most of them
    for node, before in enumerate(predecessors):
        changes[node] = int(can_run[node])
        for other in before:
            changes[node] = max(changes[node], changes[other] + (can_run[node] and not can_run[other]))
    assert len(partition.groups(predecessors, can_run)) <= max(changes, default=0)


@given(graphs())
def test_parts_of_a_group_have_no_edge_between_them(graph: tuple[list[list[int]], list[bool]]) -> None:
    predecessors, can_run = graph
    level = partition.levels(predecessors, can_run)
    parts = partition.components(predecessors, level)
    part_of = {node: number for number, part in enumerate(parts) for node in part}
    assert sorted(part_of) == [node for node, able in enumerate(can_run) if able]
    for node, before in enumerate(predecessors):
        for other in before:
            if level[node] == level[other] >= 0:
                assert part_of[node] == part_of[other]


def test_a_branch_that_is_needed_late_joins_the_group_that_needs_it() -> None:
    # 0 -> 1 (cannot run) -> 3, and 2 -> 3: without 2 in the second group, its result would cross.
    assert partition.groups([[], [0], [], [1, 2]], [True, False, True, True]) == [[0], [2, 3]]


def test_a_branch_beside_a_node_that_cannot_run_crosses_once() -> None:
    # 0 -> 2 (cannot run) -> 3, and 0 -> 1 -> 3: only the result of 0 crosses, not that of 1 as well.
    assert partition.groups([[], [0], [0], [1, 2]], [True, True, False, True]) == [[0], [1, 3]]
