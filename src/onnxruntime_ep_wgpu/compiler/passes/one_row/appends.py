"""Attention that appends the single new row to its KV cache: one kernel instead of two dependent ones.

In: groups in running order, finished. Out: the same groups. Before each attention with a cache that other kernels append to
stands a kernel that runs if one row is new. This kernel:

- reads the new row from its source, applies the rotary embedding, and rounds it as the cache does,
- reads all other rows from the caches,
- stores the new row in the caches.

So the query needs no memory either. For more rows nothing changes.

Invariant: no invocation of a dispatch reads an element of a cache that this dispatch stores (`flash_rows.wgsl`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

from ....program.program import Declined
from ....program.target import Target
from ....records import dataclass
from ...dims import Dim, ceildiv, equal, maximum, quotient
from ...ir import Call, Map, Node, Read, Tensor, View, Write
from ...ir.floats import rounded
from ..fuse import FusedGroup
from .assembled import misfit_of_bindings
from .dependencies import RULE, Dependencies, check_stored, disable_where


@dataclass(frozen=True)
class _Rows:
    """New rows (batch, heads, steps, size) that a kernel stores as `result`. `in_cache`: they are stored after past rows."""

    group: FusedGroup
    result: str
    new: View
    in_cache: bool


@dataclass(frozen=True)
class _Append:
    """A kernel that runs if `one` is 1, instead of an attention and the groups that append for it."""

    kernel: FusedGroup
    one: Dim
    instead: tuple[FusedGroup, ...]


def append_within(groups: list[FusedGroup], target: Target) -> tuple[list[FusedGroup], list[Declined]]:
    """Returns the groups with kernels that append, and the reasons where an attention got none."""
    dependencies = Dependencies.of(groups)
    runs_if: dict[FusedGroup, Dim] = {}
    skipped_if: dict[FusedGroup, Dim] = {}
    declined: list[Declined] = []
    out: list[FusedGroup] = []
    for group in groups:
        found = _append_of(group, dependencies, target)
        if isinstance(found, str):
            assert group.anchor is not None
            declined.append(Declined(RULE, f"it does not append to its caches: {found}", group.anchor.origin))
        elif found is not None:
            runs_if[found.kernel] = found.one
            skipped_if |= dict.fromkeys(found.instead, found.one)
            out.append(found.kernel)
        out.append(group)
    for group, one in skipped_if.items():
        disable_where(group, one)
    out = [group for group in out if skipped_if.get(group) != 1]
    check_stored(out, runs_if, skipped_if)
    return out, declined


def _append_of(group: FusedGroup, dependencies: Dependencies, target: Target) -> _Append | str | None:
    """Returns the kernel that appends, the reason why there is none, or None if the group is no attention with new cache rows."""
    call = group.anchor
    if call is None or call.template != "flash_attention":
        return None
    inside = {node.output: node for node in group.nodes if isinstance(node, Map)}
    appending = list(dict.fromkeys(_appending_groups(call, inside, dependencies)))
    if not appending:
        return None
    first, *others = (it.anchor for it in appending if it.anchor is not None)
    guards = [it.guard for it in call.variants if it.template == "flash_rows"]
    no_guard: Dim = 0
    steps, past = first.parameters["steps"], first.operands["past"].view
    one = equal(steps, 1) * reduce(maximum, guards, no_guard)
    if one == 0:
        return None
    if any(it.parameters["steps"] != steps or it.operands["past"].view != past for it in others):
        return "keys and values are appended to different rows"
    rows = {tensor: it for one_of in appending for tensor, it in _rows_of(one_of).items()}
    reason = _range_mismatch(call, past, steps) or _storage_mismatch(group, rows, dependencies)
    if reason is not None:
        return reason
    kernel = _kernel(group, rows, past, steps, one)
    return misfit_of_bindings(kernel, target) or _Append(kernel, one, (*appending, group))


def _appending_groups(call: Call, inside: Mapping[Tensor, Map], dependencies: Dependencies) -> list[FusedGroup]:
    """Returns the groups that append to the operands of an attention, directly or through maps inside of its kernel."""
    found: list[FusedGroup] = []
    pending = [call.operands[name].view.tensor for name in ("q", "k", "v")]
    while pending:
        tensor = pending.pop()
        producer = dependencies.stored_by.get(tensor)
        if producer is not None and producer.anchor is not None and producer.anchor.template == "cache_append":
            found.append(producer)
        elif tensor in inside:
            pending += [view.tensor for view in inside[tensor].reads]
    return found


def _rows_of(group: FusedGroup) -> dict[Tensor, _Rows]:
    """Returns the new rows that an appending kernel stores, by the tensor they are stored in."""
    call = group.anchor
    assert call is not None
    numbers = {name: name.removeprefix("y") for name in call.results}
    return {
        write.tensor: _Rows(
            group, name, call.operands[f"new{numbers[name]}"].view, bool(call.constants[f"CACHE{numbers[name]}"])
        )
        for name, write in call.results.items()
    }


def _range_mismatch(call: Call, past: View, steps: Dim) -> str | None:
    """Returns why the rows of an attention do not match the appended rows, or None.

    The kernel assumes that the new row is the last one and is at the position of its query. It loads no row after it.
    """
    starts = call.operands.get("starts")
    if starts is None or starts.view.tensor is not past.tensor or "ends" in call.operands:
        return "its range of cache rows does not match the appended rows"
    if call.parameters.get("behind") != steps:
        return "it reads rows after the appended ones"
    return None


def _storage_mismatch(group: FusedGroup, rows: Mapping[Tensor, _Rows], dependencies: Dependencies) -> str | None:
    """Returns why an attention cannot store these rows, or None."""
    call = group.anchor
    assert call is not None
    views = {name: call.operands[name].view for name in ("q", "k", "v")}
    caches = [view for name, view in views.items() if name != "q"]
    if not all(view.tensor in rows and rows[view.tensor].in_cache for view in caches):
        return "it reads other tensors than its caches"
    if not all(view.is_whole and view.rank == 4 for view in caches):
        return "keys and values share one tensor"
    for tensor, it in rows.items():
        readers = [reader for reader in dependencies.loaded_by.get(tensor, ()) if reader is not group]
        if it.in_cache and tensor not in {view.tensor for view in caches}:
            return "its caches are stored together with another one"
        if any(dependencies.position[reader] < dependencies.position[group] for reader in readers):
            return "a kernel before it reads its caches"
        if not it.in_cache and (readers or views["q"].tensor is not tensor or not views["q"].is_whole):
            return "its queries have another reader"
        if any(node is not it.group.anchor and node not in it.group.inlined for node in it.group.nodes):
            return "the appended rows are also stored elsewhere"
    return None


def _kernel(group: FusedGroup, rows: Mapping[Tensor, _Rows], past: View, steps: Dim, one: Dim) -> FusedGroup:
    """Returns the attention kernel that includes the groups which append for it."""
    call = group.anchor
    assert call is not None
    maps: list[Map] = []
    operands, results, onto = dict(call.operands), dict(call.results), dict(call.onto)
    parameters, origin = dict(call.parameters), call.origin
    for name in ("q", "k", "v"):
        read = call.operands[name]
        it = rows.get(read.view.tensor)
        if it is None:
            operands[name] = replace(read, groups=(1, 2, 1, 1))
            continue
        append_call = it.group.anchor
        assert append_call is not None
        origin = (*append_call.origin, *origin)
        new = Read(_as_stored(it, read.view.tensor, maps), (1, 1, 1, 1), reuse=True, vector=True)
        if name == "q":
            operands[name] = new
            continue
        operands[f"new_{name}"] = new
        results[f"{name}_cache"] = Write(read.view.tensor, read.groups, vector=True)
        if it.result in append_call.onto:
            onto[f"{name}_cache"] = append_call.onto[it.result]
        parameters["groups"] = new.view.shape[1]
    operands["past"] = Read(past, (1,), reuse=True)
    variants = [replace(it, workgroups=it.workgroups * one) for it in call.variants if it.template == "flash_rows"]
    heads = quotient(parameters["rows"], steps)
    if heads is not None:  # each head has one step, which saves divisions before the first load
        behind = parameters["behind"]
        parameters |= {"rows": heads, "steps": 1, "behind": 1 if behind == steps else behind}
        tiles = [ceildiv(heads, int(dict(it.constants)["ROWS"])) for it in variants]
        variants = [
            replace(it, parameters=tuple((dict(it.parameters) | {"tiles_q": n}).items()))
            for it, n in zip(variants, tiles, strict=True)
        ]
    variants[-1] = replace(variants[-1], guard=1)  # if no other guard holds, `one` guarantees this one
    made = replace(
        call,
        operands=operands,
        results=results,
        variants=tuple(variants),
        parameters=parameters,
        origin=tuple(dict.fromkeys(origin)),
        onto=onto,
    )
    append_groups = {it.group: None for it in rows.values()}
    before: list[Node] = [node for it in append_groups for node in it.nodes if node is not it.anchor]
    nodes = [*before, *maps, *(made if node is call else node for node in group.nodes)]
    stores = [*(tensor for tensor, it in rows.items() if it.in_cache), *group.stores]
    return FusedGroup(nodes, made, {*before, *maps, *group.inlined}, stores)


def _as_stored(rows: _Rows, tensor: Tensor, maps: list[Map]) -> View:
    """Returns the new rows as a reader would load them from memory. Appends the map that rounds them to `maps`."""
    view, dtype = rows.new, tensor.dtype
    made = view.tensor
    if dtype.bits >= 32 or made.producer not in rows.group.inlined:
        return view
    # Uses the order in memory, so that coordinates of rows match those of the producer.
    text, rank = rounded(f"{dtype.compute}(x)", dtype), len(made.shape)
    maps.append(Map(Tensor(dtype, made.shape), {"x": Read(View.of(made), (rank,))}, text, inline=True))
    maps[-1].output.producer = maps[-1]
    return replace(view, tensor=maps[-1].output)
