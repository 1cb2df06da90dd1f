"""Updates in place: outputs that begin as an input, of which kernels store only what is new.

In: a graph whose tensors know their users, with Calls that store `onto` what another kernel made. Out: the same graph with
`aliases`. Where that other kernel copies an input of the graph to an output, the host does so in runs in which both have one
shape, and leaves the copy out where they are one place; the kernel then runs for other shapes alone, as when a cache grows.
Invariant: nothing else reads such an input, because it may change.
"""

from __future__ import annotations

from dataclasses import replace

from ..dims import equal, product
from ..ir import Call, LoweredGraph, Node, Storage, Tensor


def alias_updates(graph: LoweredGraph) -> LoweredGraph:
    """The graph with its aliases; kernels that never run because of them are gone."""
    aliases: list[tuple[Tensor, Tensor]] = []
    gone: set[Node] = set()
    for node in graph.nodes:
        if not isinstance(node, Call):
            continue
        for name, begun in list(node.onto.items()):
            source = _source(begun, node.results[name].tensor)
            if source is None:
                continue
            aliases.append((node.results[name].tensor, source))
            same = product([equal(a, b) for a, b in zip(begun.shape, source.shape, strict=True)])
            copying = begun.producer
            assert isinstance(copying, Call)
            copying.variants = tuple(replace(v, workgroups=v.workgroups * (1 - same)) for v in copying.variants)
            if same == 1:
                gone.add(copying)
                del node.onto[name]
    return replace(graph, nodes=[it for it in graph.nodes if it not in gone], aliases=aliases)


def _source(begun: Tensor, result: Tensor) -> Tensor | None:
    """The input that a kernel copies to what begins an output; None where an update in place would not be the same."""
    copying = begun.producer
    if result.storage is not Storage.OUTPUT or not isinstance(copying, Call) or len(copying.operands) != 1:
        return None
    (read,) = copying.operands.values()
    source = read.view.tensor
    if source.storage is not Storage.INPUT or source.users != [copying] or source.dtype is not result.dtype:
        return None
    ranks = len(source.shape) == len(begun.shape) == read.view.rank
    never = ranks and any(equal(a, b) == 0 for a, b in zip(begun.shape, source.shape, strict=True))
    return source if ranks and read.view.is_whole and not never else None
