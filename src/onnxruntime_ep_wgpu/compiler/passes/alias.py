"""Updates in place: an output begins as an input, and kernels store only the new elements.

In: a graph with `users` in its tensors, and with Calls that store `onto` the result of another kernel. Out: the same graph with
`aliases`. The other kernel copies an input of the graph to an output. The host makes this copy instead in runs where both have
the same shape, and skips it where both are the same memory. The kernel then runs only for other shapes, as when a cache grows.

Invariant: no other node reads such an input, because it may change.
"""

from __future__ import annotations

from dataclasses import replace

from ..dims import equal, product
from ..ir import Call, LoweredGraph, Node, Storage, Tensor


def alias_updates(graph: LoweredGraph) -> LoweredGraph:
    """Returns the graph with its aliases, without the kernels that never run because of them."""
    aliases: list[tuple[Tensor, Tensor]] = []
    removed: set[Node] = set()
    for node in graph.nodes:
        if not isinstance(node, Call):
            continue
        for name, initial in list(node.onto.items()):
            source = _source(initial, node.results[name].tensor)
            if source is None:
                continue
            aliases.append((node.results[name].tensor, source))
            same = product([equal(a, b) for a, b in zip(initial.shape, source.shape, strict=True)])
            copying = initial.producer
            assert isinstance(copying, Call)
            copying.variants = tuple(replace(v, workgroups=v.workgroups * (1 - same)) for v in copying.variants)
            if same == 1:
                removed.add(copying)
                del node.onto[name]
    return replace(graph, nodes=[it for it in graph.nodes if it not in removed], aliases=aliases)


def _source(initial: Tensor, result: Tensor) -> Tensor | None:
    """Returns the input that a kernel copies to the beginning of an output, or None where an update in place would change
    results."""
    copying = initial.producer
    if result.storage is not Storage.OUTPUT or not isinstance(copying, Call) or len(copying.operands) != 1:
        return None
    (read,) = copying.operands.values()
    source = read.view.tensor
    if source.storage is not Storage.INPUT or source.users != [copying] or source.dtype is not result.dtype:
        return None
    ranks = len(source.shape) == len(initial.shape) == read.view.rank
    differs = ranks and any(equal(a, b) == 0 for a, b in zip(initial.shape, source.shape, strict=True))
    return source if ranks and read.view.is_whole and not differs else None
