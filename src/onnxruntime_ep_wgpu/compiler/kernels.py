"""Splits a lowered graph into the groups of nodes that become kernels, and finds results that exceed every adapter's limits.

In: a lowered graph, which is modified, so a graph can be split only once. Out: its groups in running order. Only this stage
determines which values are stored, so only this stage can check them against limits of memory.
"""

from __future__ import annotations

from dataclasses import replace

from ..program.target import Target
from .ir import LoweredGraph, Tensor
from .ir.binding_ranges import is_countable, is_storable
from .passes.alias import alias_updates
from .passes.apart import duplicate_for_readers
from .passes.dead import remove_dead
from .passes.fuse import FusedGroup, fuse
from .passes.one_row import add_one_row_kernels, append_within
from .passes.place import place_joins
from .passes.share import share
from .passes.unsplit import store_unsplit_directly
from .rewrite import rewrite


def kernels_of(lowered: LoweredGraph, target: Target) -> tuple[LoweredGraph, list[FusedGroup]]:
    """Returns the graph after all passes, and its kernels."""
    lowered = remove_dead(duplicate_for_readers(remove_dead(share(lowered))))
    lowered = rewrite(lowered, target)
    lowered = remove_dead(place_joins(lowered, target))
    lowered = alias_updates(lowered)
    groups, of_products = add_one_row_kernels(fuse(lowered, target), target)
    groups, of_caches = append_within(groups, target)
    groups = store_unsplit_directly(groups, target)
    return replace(lowered, declined=[*lowered.declined, *of_products, *of_caches]), groups


def beyond_limits(groups: list[FusedGroup], target: Target) -> frozenset[str]:
    """Returns the names of ONNX nodes that exceed a limit. Such a node has:

    - a stored result that no buffer can hold,
    - a result with more elements than a kernel can count,
    - or a kernel that needs more bindings than the target has.
    """
    found: set[str] = set()
    for group in groups:
        if group.placement(group.stores, target).bindings > target.max_storage_buffers:
            found.update(group.origin)
        found.update(name for tensor in group.stores if not is_storable(tensor, target) for name in _origin(tensor))
        inside = [tensor for node in group.nodes for tensor in node.outputs]
        found.update(name for tensor in inside if not is_countable(tensor) for name in _origin(tensor))
    return frozenset(found)


def _origin(tensor: Tensor) -> tuple[str, ...]:
    return tensor.producer.origin if tensor.producer is not None else ()
