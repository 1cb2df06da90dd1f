"""Generates the kernel of a fused group: WGSL per variant, bindings, uniforms and the number of workgroups."""

from __future__ import annotations

from dataclasses import dataclass

from ...program.target import Target
from ..dims import Dim
from ..ir import Tensor
from ..ir.binding_ranges import BindingRange, parts
from ..passes.fuse import FusedGroup
from . import prelude
from .calls import call_texts
from .maps import map_texts
from .scalar import INFINITIES
from .writer import Writer


@dataclass
class Source:
    """A generated kernel, which is dispatched `repeats` times.

    `bindings` are tensors in binding order, with True for written ones, and the bound range, None for the whole tensor. Uniforms
    follow them. `makes_infinity`: its own text, without shared functions, has an infinite constant.
    """

    variants: list[tuple[Dim, str, Dim]]  # guard, WGSL, workgroups
    bindings: list[tuple[Tensor, bool, BindingRange | None]]
    uniforms: list[Dim]
    label: str
    repeats: Dim
    makes_infinity: bool


def generate(group: FusedGroup, target: Target) -> Source:
    """Returns the kernel of a fused group. All variants have the same bindings and uniforms.

    The number of bindings is the one that fusion counted, and never exceeds the target's limit.
    """
    w = Writer(group, target)
    anchor, pairs = w.group.anchor, w.scalars.pairs
    variants = call_texts(w, anchor) if anchor is not None else map_texts(w)
    if w.placement.bindings > target.max_storage_buffers:
        raise AssertionError(
            f"the kernel of {', '.join(w.group.origin)} has {w.placement.bindings} bindings, "
            f"and the adapter has {target.max_storage_buffers}"
        )
    bodies, uniforms = w.uniforms.numbered([prelude.with_needed(v.code, pairs, v.functions) for v in variants])
    unused = [repr(t) for t in w.bindings for name in w.names(t) if not any(f"{name}[" in body for body in bodies)]
    if unused:
        raise AssertionError(f"the kernel of {', '.join(w.group.origin)} binds {', '.join(unused)} for nothing")
    return Source(
        [(v.guard, w.module(body, len(uniforms), v), v.workgroups) for v, body in zip(variants, bodies, strict=True)],
        [
            (tensor, tensor not in w.loads, byte_range)
            for tensor in w.bindings
            for byte_range in w.placement.ranges[tensor] or (None,)
        ],
        uniforms,
        anchor.label if anchor is not None else "map",
        anchor.repeats if anchor is not None else parts(w.group.stores, w.placement.part),
        any(bits in text for bits in INFINITIES for v in variants for text in (*v.functions.values(), v.code)),
    )
