"""Images scaled by a gate, a value computed from their averages: a product with few columns scales them on load.

In: a product with rows from a map that combines an image with a smaller tensor computed from that image, as in
squeeze-and-excitation. No kernel that makes either of them can make the result, so the map would be a kernel of its own. Out: the
same product, with an `inline` map. It scales each element once per tile of columns. The choice `gated_rows` limits the number of
columns.
"""

from __future__ import annotations

from dataclasses import replace

from ...program.target import Target
from ..dims import quotient
from ..ir import Call, Map, Tensor, View
from ..tune import scales_rows
from .between import reads_elementwise
from .operands import factor, matrix_sizes
from .rule import MatchResult, Replace, Rule

MOST_COST = 4  # operations per element, repeated for each tile of columns
MOST_BEFORE = 32  # nodes visited to find the source of a gate


def gated(call: Call, target: Target) -> MatchResult:
    """Returns the product that scales its rows itself, or None if it has no gate."""
    read = call.operands["a"]
    tensor, node = read.view.tensor, read.view.tensor.producer
    if not isinstance(node, Map) or not node.is_pointwise or node.inline or node.cost > MOST_COST:
        return None
    views = [it for it in node.reads if not it.tensor.is_literal]
    images = [it for it in views if reads_elementwise(node, it)]
    gates = [it for it in views if it not in images]
    if len(images) != 1 or not any(_depends_on(it.tensor, images[0].tensor) for it in gates):
        return None
    if tensor.is_stored or tensor.users != [call]:
        return "the scaled image has another reader"
    if not read.loads_vectors or not all(map(_shows_fours, views)):
        return "four neighbours of the scaled image have different scales"
    batch, m, k = matrix_sizes(read.view, read.groups)
    right = factor(call, "b")
    n = matrix_sizes(right.view, right.groups)[2]
    if not scales_rows(batch, m, n, k, target):
        return f"{n} columns take so many tiles that a kernel scales the image first (the choice 'gated_rows')"
    inline = replace(node, output=Tensor(tensor.dtype, tensor.shape), operands=dict(node.operands), inline=True)
    scaled = replace(read, view=replace(read.view, tensor=inline.output))
    return Replace((node, call), (inline, replace(call, operands={**call.operands, "a": scaled})))


def _depends_on(tensor: Tensor, source: Tensor) -> bool:
    """Returns whether a tensor depends on `source` through a few nodes."""
    pending, seen = [tensor], {tensor}
    for _ in range(MOST_BEFORE):
        if not pending:
            return False
        producer = pending.pop().producer
        before = [] if producer is None else [it.tensor for it in producer.reads]
        if source in before:
            return True
        pending += [it for it in before if it not in seen]
        seen.update(before)
    return False


def _shows_fours(view: View) -> bool:
    """Returns whether every four elements are four neighbours in memory."""
    factors = view.factors
    return bool(factors) and factors[-1].stride == 1 and all(quotient(it, 4) is not None for it in view.fours or (1,))


GATED = Rule("gated", "matmul", gated)
