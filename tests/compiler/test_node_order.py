"""Nodes stand behind what makes what they read, moved as little as that allows."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from onnxruntime_ep_wgpu.compiler.passes.order import in_order


class Node:
    """As much of one as is looked at: it makes a tensor, and reads those of others."""

    def __init__(self) -> None:
        self.tensor = SimpleNamespace(producer=self)
        self.reads: list[Any] = []

    def read(self, *others: Node) -> None:
        self.reads += [SimpleNamespace(tensor=it.tensor) for it in others]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Any], list[Any]]:
    """Nodes in an order in which they can run, and in some other one."""
    nodes = [Node() for _ in range(draw(st.integers(1, 12)))]
    for k, node in enumerate(nodes):
        node.read(*(nodes[j] for j in draw(st.sets(st.integers(0, k - 1), max_size=3)))) if k else None
    return nodes, draw(st.permutations(nodes))


@given(graphs())
def test_what_stands_right_stays_and_the_rest_moves_to_the_front(graph: tuple[list[Any], list[Any]]) -> None:
    nodes, mixed = graph
    assert in_order(nodes) == (nodes, ())
    ordered, circle = in_order(mixed)
    assert not circle
    assert set(ordered) == set(nodes)
    position = {node: k for k, node in enumerate(ordered)}
    assert all(position[read.tensor.producer] < position[node] for node in nodes for read in node.reads)
    # Nodes change places only where one needs the other.
    needs: dict[Any, set[Any]] = {}
    for node in nodes:
        needs[node] = {node}.union(*(needs[read.tensor.producer] for read in node.reads))
    for k, node in enumerate(mixed):
        for later in mixed[k + 1 :]:
            needed_sooner = any(later in needs[sooner] for sooner in mixed[: k + 1])
            assert needed_sooner or position[node] < position[later]


@given(graphs(), st.data())
def test_a_circle_is_named(graph: tuple[list[Any], list[Any]], data: st.DataObject) -> None:
    nodes, mixed = graph
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(nodes) - 1)] * 2)))
    nodes[first].read(nodes[last])
    if first != last:
        nodes[last].read(nodes[first])
    _, circle = in_order(mixed)
    assert circle
    for node in circle:
        assert any(read.tensor.producer in circle for read in node.reads)


def test_a_chain_is_not_too_deep() -> None:
    nodes: list[Any] = [Node() for _ in range(20_000)]
    for before, node in pairwise(nodes):
        node.read(before)
    assert in_order(nodes[::-1]) == (nodes, ())
