"""Assembles the kernel for one row as a group, and checks whether it fits a target."""

from __future__ import annotations

from dataclasses import replace

from ....program.target import Target
from ...ir import Node, Read, View
from ..fuse import FusedGroup
from .product import OneRowProduct


def kernel_of(row: OneRowProduct) -> FusedGroup:
    """Returns the kernel for one row."""
    call, group, inlined = row.call, row.group, set(row.group.inlined)
    nodes: list[Node] = [it for it in group.nodes if it is not call]
    stores = [*group.stores, *row.stores]
    operands, write, constants = dict(call.operands), call.results["y"], dict(call.constants)
    origin, flops = call.origin, call.flops
    for number, it in enumerate(row.others, 1):
        other = it.anchor
        assert other is not None
        nodes = [*(node for node in it.nodes if node is not other), *nodes]
        inlined |= it.inlined
        operands[f"b{number}"] = other.operands["b"]
        write = replace(write, also=(*write.also, other.results["y"].tensor))
        origin, flops = (*other.origin, *origin), flops + other.flops
    constants["PRODUCTS"] = 1 + len(row.others)
    if row.before is not None:
        view = View.of(row.before.scaled).reshape(operands["a"].view.shape)
        assert view is not None
        operands["a"] = replace(operands["a"], view=view)
        operands["squares"] = Read(View.of(row.before.squares), (1, 1), vector=True)
        constants["EPSILON"] = row.before.norm.call.constants["EPSILON"]
        origin = (*row.before.norm.group.origin, *origin)
    if row.after is not None:
        nodes += row.after.maps
        stores += [row.after.scaled, row.after.squares]
        write = replace(write, squares=(row.after.norm.x, row.after.squares))
    made = replace(
        call,
        operands=operands,
        results={"y": write},
        # Runs with more rows need no workgroups of this kernel.
        variants=(replace(row.variant, guard=1, workgroups=row.variant.workgroups * row.one),),
        constants=constants,
        origin=tuple(dict.fromkeys(origin)),
        flops=flops,
    )
    before = [it for it in nodes if it in inlined]
    return FusedGroup([*before, made, *(it for it in nodes if it not in inlined)], made, inlined, stores)


def misfit(group: FusedGroup, target: Target) -> str | None:
    """Returns why the kernel does not fit a target, or None."""
    call = group.anchor
    assert call is not None
    (variant,) = call.variants
    assert variant.product_bytes is not None
    shared, each = variant.product_bytes
    scale = 4 * variant.workgroup_size if "squares" in call.operands else 0  # for `a_scale`: one number per invocation
    memory = shared + int(call.constants["PRODUCTS"]) * each + scale
    if memory > target.max_workgroup_storage:
        return (
            f"the kernel needs {memory} bytes of workgroup memory, and the adapter has {target.max_workgroup_storage}"
        )
    return misfit_of_bindings(group, target)


def misfit_of_bindings(group: FusedGroup, target: Target) -> str | None:
    """Returns why the kernel needs more bindings than a target has, or None."""
    bindings = group.placement(group.stores, target).bindings
    if bindings > target.max_storage_buffers:
        return f"the kernel needs {bindings} bindings, and the adapter has {target.max_storage_buffers}"
    return None
