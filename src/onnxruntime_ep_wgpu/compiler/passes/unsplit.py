"""Attention that stores its results directly in runs that do not split its keys.

In: groups in running order, finished. Out: the same groups, and before each attention whose splits a run decides, another one
that runs if there is one part. The attention with parts, and the map that combines them, do not run then. In a prompt this saves
a pass over the results, and in a decoder one of six dispatches of a layer, each of which waits for the one before it.

Invariant: in every run exactly one of the two stores the results. What follows the attention in its kernel reads only what other
kernels have stored before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...program.target import Target, elements_per_word
from ..dims import Dim, less
from ..ir import MAX_COST, Call, Map, Node, Tensor, Write
from .fuse import FusedGroup


def store_unsplit_directly(groups: list[FusedGroup], target: Target) -> list[FusedGroup]:
    """Returns the groups with kernels for attention without parts."""
    loaded_by: dict[Tensor, list[FusedGroup]] = {}
    attentions: dict[Tensor, list[FusedGroup]] = {}
    position = {group: at for at, group in enumerate(groups)}
    stored_at = {tensor: at for group, at in position.items() for tensor in group.stores}  # the last time
    for group in groups:
        for tensor in group.loads:
            loaded_by.setdefault(tensor, []).append(group)
        call = group.anchor
        if call is not None and call.template == "flash_attention" and "levels" in call.results:
            attentions.setdefault(call.results["y"].tensor, []).append(group)
    before: dict[FusedGroup, FusedGroup] = {}
    for parts, split in attentions.items():
        readers, begin = loaded_by.get(parts, []), position[split[0]]
        own = {tensor for group in split for tensor in group.stores}
        if len(readers) == 1 and all(stored_at.get(it, -1) < begin for it in readers[0].needs() if it not in own):
            before |= _unsplit(split, readers[0], parts, target)
    return [it for group in groups for it in ((before[group], group) if group in before else (group,))]


def _unsplit(
    attentions: list[FusedGroup], reader: FusedGroup, parts: Tensor, target: Target
) -> Mapping[FusedGroup, FusedGroup]:
    """Returns for each attention that stores `parts` a group that runs instead of it. All run in the same runs, or none exists."""
    calls = {group: group.anchor for group in attentions if group.anchor is not None}
    found = {call.parameters["splits"] for call in calls.values()}
    splits = found.pop()
    if isinstance(splits, int) or found or reader.anchor is not None:
        return {}
    combining = next(node for node in reader.nodes if parts in [view.tensor for view in node.reads])
    if not isinstance(combining, Map) or not _can_follow(reader, combining, target):
        return {}
    has_parts = less(1, splits)
    made = {group: _whole(group, call, reader, combining, 1 - has_parts) for group, call in calls.items()}
    if any(it.placement(it.stores, target).bindings > target.max_storage_buffers for it in made.values()):
        return {}
    for call in calls.values():
        call.variants = tuple(replace(it, workgroups=it.workgroups * has_parts) for it in call.variants)
    reader.runs = has_parts
    return made


def _can_follow(reader: FusedGroup, combining: Map, target: Target) -> bool:
    """Returns whether an attention can compute, for each of its results, what the group computes for each combined element."""
    inside = {combining.output}
    for node in reader.nodes:
        if node is combining or node in reader.inlined:
            continue
        if not isinstance(node, Map) or not node.is_pointwise:
            return False
        own = [view for view in node.reads if view.tensor in inside]
        if not own or any(not view.is_whole or view.size != node.output.size for view in own):
            return False
        inside.add(node.output)
    others = reader.inlined - {combining}
    if any(view.tensor in inside for node in others for view in node.reads):
        return False
    return reader.cost <= MAX_COST and all(elements_per_word(it.dtype, target) == 1 for it in reader.stores)


def _whole(group: FusedGroup, call: Call, reader: FusedGroup, combining: Map, runs: Dim) -> FusedGroup:
    """Returns the attention without parts, followed by the maps of the group that combines them. It runs if `runs` is 1."""
    results = {name: it for name, it in call.results.items() if name not in ("y", "levels")}
    along = not call.constants["VALUES_FIRST"]
    made = replace(
        call,
        results={**results, "y": Write(combining.output, combining.groups, by_matrices=along)},
        variants=tuple(replace(it, workgroups=it.workgroups * runs) for it in call.variants),
        parameters=call.parameters | {"splits": 1},
    )
    inlined = {*group.inlined, *(reader.inlined - {combining})}
    before: list[Node] = [node for node in reader.nodes if node in reader.inlined and node is not combining]
    after = [node for node in reader.nodes if node not in reader.inlined and node is not combining]
    nodes = [*before, *(made if node is call else node for node in group.nodes), *after]
    replaced = {it.tensor for name, it in call.results.items() if name in ("y", "levels")}
    stores = [*(tensor for tensor in group.stores if tensor not in replaced), *reader.stores]
    return FusedGroup(nodes, made, inlined, stores)
