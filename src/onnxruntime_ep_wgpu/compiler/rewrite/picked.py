"""Gathered rows, such as embeddings of tokens, with a norm and other readers: the norm gathers the rows and stores them for the
others.

In: a norm of the result of Gather or a similar map. Out: the norm with the gathered rows as an additional result. The rows of a
token are few. Waiting for another kernel costs more than reading them twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...program.target import Target, elements_per_word
from ..ir import MAX_INLINED_COST, Call, Map, Read, Tensor, View
from ..ir.binding_ranges import is_large
from .rule import MatchResult, Replace, Rule, origin_of


def picked(call: Call, target: Target) -> MatchResult:
    """Returns the norm that gathers its rows itself, or None if no map gathers them."""
    read, write = call.operands["x"], call.results["y"]
    tensor, node = read.view.tensor, read.view.tensor.producer
    if not isinstance(node, Map) or node.is_pointwise or node.inline or node.iterations != 0:
        return None
    if node.cost > MAX_INLINED_COST or tensor.place is not None or read.view != View.of(tensor):
        return None
    if write.tensor.shape != tensor.shape or write.groups != read.groups:
        return None
    if elements_per_word(tensor.dtype, target) > 1 or any(is_large(view.tensor, target) for view in node.reads):
        return None  # invocations would share a word, or one binding could not hold a table
    before = {it.output: it for it in map(_index_conversion, node.operands.values()) if it is not None}
    copies = {tensor: _inline(it) for tensor, it in before.items()}
    copy = _inline(node)
    copy.operands = {name: _redirected(it, copies) for name, it in node.operands.items()}
    others = tensor.users != [call] or tensor.is_stored
    norm = replace(
        call,
        operands={**call.operands, "x": _redirected(read, {tensor: copy})},
        results={**call.results, "y": replace(write, also=(tensor,))} if others else call.results,
        constants={**call.constants, "KEEPS": others},
        origin=origin_of((node, call)),
    )
    return Replace((*before.values(), node, call), (*copies.values(), copy, norm))


def _index_conversion(read: Read) -> Map | None:
    """Returns the map that converts indices for this reader only. Repeating it at each of several reads costs nothing extra."""
    node = read.view.tensor.producer
    if not isinstance(node, Map) or len(node.output.users) != 1 or node.output.is_stored:
        return None
    return node if node.is_pointwise and len(node.operands) == 1 and node.cost == 1 else None


def _inline(node: Map) -> Map:
    return replace(node, output=Tensor(node.output.dtype, node.output.shape), operands=dict(node.operands), inline=True)


def _redirected(read: Read, copies: Mapping[Tensor, Map]) -> Read:
    """Returns the read with its tensor replaced by the result of a copy."""
    copy = copies.get(read.view.tensor)
    return read if copy is None else replace(read, view=replace(read.view, tensor=copy.output))


PICKED = Rule("picked", "layer_norm", picked)
