"""Products with too few tiles to keep a GPU busy, cut along k: as many products of a part of it, and a map that adds them.

In: a product whose sizes are known and the choice `matmul_parts` (`docs/tuning.md`). Out: a product of one more batch axis, whose
operands are views of what the product read, and the sum, into which whatever follows the product is fused. The partial sums
are f32 in memory; a workgroup has a shorter loop, and more of them run at once.
"""

from __future__ import annotations

from ...program.target import Target
from ..ir import Call, Map, Read, Tensor, View, Write, packed_run
from ..tune import matmul_variants, product_parts
from ..windows import is_storable
from .products import matrix_sizes
from .rule import Answer, Replace, Rule


def in_parts(call: Call, target: Target) -> Answer:
    """The sum of products over parts of k, or None where there is one part, or the weights are unpacked a run at a time."""
    left, right, result = call.operands["a"], call.operands["b"], call.results["y"]
    batch, m, n = matrix_sizes(View.of(result.tensor), result.groups)
    k = call.parameters["k"]
    parts = product_parts(batch, m, n, k, target)
    turned = bool(call.constants["TRANSPOSED"])
    if parts == 1 or packed_run(right):
        return None
    assert isinstance(k, int)
    a, b = _part(left, 2, parts, k), _part(right, 2 if turned else 1, parts, k)
    if a is None or b is None:
        return None
    sums = Tensor(result.tensor.dtype, (parts, *result.tensor.shape))
    if not is_storable(sums, target):
        return None
    dtype = left.view.tensor.dtype
    template, variants = matmul_variants(parts * batch, m, n, k // parts, target, dtype, transposed=turned)
    if template != call.template:
        return None
    many = Call(
        template,
        {"a": a, "b": b},
        {"y": Write(sums, (1 + result.groups[0], *result.groups[1:]), result.vector)},
        variants,
        call.constants,
        {**call.parameters, "k": k // parts},
        origin=call.origin,
        flops=call.flops,
    )
    rank = (len(result.tensor.shape),)
    reads = {f"x{at}": Read(_at(sums, at), rank) for at in range(parts)}
    total = Map(result.tensor, reads, expression=" + ".join(reads), cost=parts - 1, origin=call.origin)
    return Replace((call,), (many, total))


def _part(read: Read, group: int, parts: int, k: int) -> Read | None:
    """An operand whose first axis is the part of k, which are the axes of a group; None when that would take a copy."""
    begin, end = sum(read.groups[:group]), sum(read.groups[: group + 1])
    shape = read.view.shape
    view = read.view.reshape((*shape[:begin], parts, k // parts, *shape[end:]))
    if view is None:
        return None
    order = [begin, *range(begin), *range(begin + 1, view.rank)]
    groups = tuple(1 if at == group else size for at, size in enumerate(read.groups))
    return Read(view.permute(order), (1 + groups[0], *groups[1:]), read.reuse, read.vector)


def _at(sums: Tensor, part: int) -> View:
    """One of the partial sums."""
    view = View.of(sums).slice(0, part, 1, 1)
    assert view is not None  # of a whole tensor
    whole = view.reshape(sums.shape[1:])
    assert whole is not None
    return whole


PARTS = Rule("parts", "matmul", in_parts)
