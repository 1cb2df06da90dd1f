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
from .one_row.assembled import misfit_of_bindings
from .one_row.dependencies import Dependencies
from .one_row.product import reads_elementwise


def store_unsplit_directly(groups: list[FusedGroup], target: Target) -> list[FusedGroup]:
    """Returns the groups with kernels for attention without parts."""
    dependencies = Dependencies.of(groups)
    attentions: dict[Tensor, dict[FusedGroup, Call]] = {}
    for group in groups:
        call = group.anchor
        if call is not None and call.template == "flash_attention" and "levels" in call.results:
            attentions.setdefault(call.results["y"].tensor, {})[group] = call
    before: dict[FusedGroup, FusedGroup] = {}
    for parts, calls in attentions.items():
        readers = dependencies.loaded_by.get(parts, [])
        if len(readers) == 1 and _is_ready(readers[0], calls, dependencies):
            before |= _unsplit(calls, readers[0], parts, target)
    return [it for group in groups for it in ((before[group], group) if group in before else (group,))]


def _is_ready(reader: FusedGroup, calls: Mapping[FusedGroup, Call], dependencies: Dependencies) -> bool:
    """Returns whether everything that a group needs besides the results of these attentions is stored before the first one."""
    begin = min(map(dependencies.position.__getitem__, calls))
    makers = [dependencies.stored_by[it] for it in reader.needs() if it in dependencies.stored_by]
    return all(it in calls or dependencies.position[it] < begin for it in makers)


def _unsplit(
    calls: Mapping[FusedGroup, Call], reader: FusedGroup, parts: Tensor, target: Target
) -> Mapping[FusedGroup, FusedGroup]:
    """Returns for each attention that stores `parts` a group that runs instead of it. All run in the same runs, or none exists."""
    found = {call.parameters["splits"] for call in calls.values()}
    splits = found.pop()
    if isinstance(splits, int) or found or reader.anchor is not None:
        return {}
    combining = next(node for node in reader.nodes if parts in [view.tensor for view in node.reads])
    if not isinstance(combining, Map) or not _can_follow(reader, combining, target):
        return {}
    has_parts = less(1, splits)
    made = {group: _whole(group, call, reader, combining, 1 - has_parts) for group, call in calls.items()}
    if any(misfit_of_bindings(it, target) for it in made.values()):
        return {}
    for group in (*calls, reader):
        group.runs = has_parts
    return made


def _can_follow(reader: FusedGroup, combining: Map, target: Target) -> bool:
    """Returns whether an attention can compute, for each of its results, what the group computes for each combined element."""
    inside = {combining.output}
    for node in reader.nodes:
        if node is combining or node in reader.inlined:
            continue
        own = [view.tensor for view in node.reads if view.tensor in inside]
        if not own or not all(reads_elementwise(node, it) for it in own):
            return False
        inside.update(node.outputs)
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
        parameters=call.parameters | {"splits": 1},
    )
    inlined = {*group.inlined, *(reader.inlined - {combining})}
    before: list[Node] = [node for node in reader.nodes if node in reader.inlined and node is not combining]
    after = [node for node in reader.nodes if node not in reader.inlined and node is not combining]
    nodes = [*before, *(made if node is call else node for node in group.nodes), *after]
    replaced = {it.tensor for name, it in call.results.items() if name in ("y", "levels")}
    stores = [*(tensor for tensor in group.stores if tensor not in replaced), *reader.stores]
    return FusedGroup(nodes, made, inlined, stores, runs)
