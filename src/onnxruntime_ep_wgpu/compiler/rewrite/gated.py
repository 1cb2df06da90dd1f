"""Images that are scaled by what is made of their averages: a product of few columns scales them where it loads them.

In: a product whose rows a map makes of an image and of something smaller that is made of that image, as squeeze-and-excitation
does. So no kernel that makes either can make the result, and the map would be one of its own. Out: the same, with a map that is
`inline`. The product reads an element once for each tile of columns; the choice `gated_rows` says up to how many columns.
"""

from __future__ import annotations

from dataclasses import replace

from ...program.target import Target
from ..dims import quotient
from ..ir import Call, Map, Tensor, View
from ..tune import scales_rows
from .between import in_step
from .operands import factor, matrix_sizes
from .rule import MatchResult, Replace, Rule

MOST_COST = 4  # operations for an element, which each tile of columns repeats
MOST_BEFORE = 32  # nodes that are looked at to find what a gate is made of


def gated(call: Call, target: Target) -> MatchResult:
    """The product that scales its rows itself, or None where no gate is before it."""
    read = call.operands["a"]
    tensor, node = read.view.tensor, read.view.tensor.producer
    if not isinstance(node, Map) or not node.is_pointwise or node.inline or node.cost > MOST_COST:
        return None
    views = [it for it in node.reads if not it.tensor.is_literal]
    images = [it for it in views if in_step(node, it)]
    gates = [it for it in views if it not in images]
    if len(images) != 1 or not any(_is_made_of(it.tensor, images[0].tensor) for it in gates):
        return None
    if tensor.is_stored or tensor.users != [call]:
        return "the scaled image has another reader"
    if not read.loads_vectors or not all(map(_shows_fours, views)):
        return "four neighbours of the scaled image are not scaled alike"
    batch, m, k = matrix_sizes(read.view, read.groups)
    right = factor(call, "b")
    n = matrix_sizes(right.view, right.groups)[2]
    if not scales_rows(batch, m, n, k, target):
        return f"{n} columns take so many tiles that a kernel scales the image first (the choice 'gated_rows')"
    inline = replace(node, output=Tensor(tensor.dtype, tensor.shape), operands=dict(node.operands), inline=True)
    scaled = replace(read, view=replace(read.view, tensor=inline.output))
    return Replace((node, call), (inline, replace(call, operands={**call.operands, "a": scaled})))


def _is_made_of(tensor: Tensor, source: Tensor) -> bool:
    """Whether nodes near before a tensor read `source`."""
    pending, seen = [tensor], {tensor}
    for _ in range(MOST_BEFORE):
        if not pending:
            return False
        made_by = pending.pop().producer
        before = [] if made_by is None else [it.tensor for it in made_by.reads]
        if source in before:
            return True
        pending += [it for it in before if it not in seen]
        seen.update(before)
    return False


def _shows_fours(view: View) -> bool:
    """Whether every four elements are four neighbours in memory."""
    factors = view.factors
    return bool(factors) and factors[-1].stride == 1 and all(quotient(it, 4) is not None for it in view.fours or (1,))


GATED = Rule("gated", "matmul", gated)
