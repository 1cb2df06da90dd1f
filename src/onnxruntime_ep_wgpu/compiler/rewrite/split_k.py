"""Products with too few tiles to occupy a GPU, split along k: the same kernel for parts of k, and a map that adds the partial
sums ("split-K").

In: a product of known size, and the choice `matmul_parts` (`docs/tuning.md`). Out: the product, in which each workgroup computes
one part of k, and the sum. Fusion adds the maps after the product to the sum. The partial sums are stored as f32 or i32. Each
workgroup has a shorter loop, and more workgroups run concurrently.
"""

from __future__ import annotations

from dataclasses import replace

from ...program.target import Target
from ..ir import Call, Map, Read, Tensor, Variant, View, Write, packed_run
from ..ir.binding_ranges import is_storable
from ..ir.signed_bytes import are_bytes
from ..tune import k_splits, matmul_variants
from .operands import matrix_sizes
from .rule import MatchResult, Replace, Rule


def split_k(call: Call, target: Target) -> MatchResult:
    """Returns the sum of products over splits of k, or None if there is only one, or if weights are unpacked in runs."""
    result = call.results["y"]
    batch, m, n = matrix_sizes(View.of(result.tensor), result.groups)
    k = call.parameters["k"]
    of_bytes = all(are_bytes(call.operands[side].view.tensor) for side in "ab")
    matrices = any(it.by_matrices for it in call.variants)
    splits = k_splits(batch, m, n, k, target, matrices=2 if matrices and of_bytes else int(matrices))
    if splits == 1 or packed_run(call.operands["b"]):
        return None
    sums = Tensor(result.tensor.dtype, (splits, *result.tensor.shape))
    if not is_storable(sums, target):
        return None
    dtype, other = (call.operands[side].view.tensor.dtype for side in "ab")
    transposed = bool(call.constants["TRANSPOSED"])
    # Known sizes have exactly one variant.
    template, (tile,) = matmul_variants(
        splits * batch, m, n, k, target, dtype, transposed=transposed, other=other, of_bytes=of_bytes
    )
    if template != call.template or "TILE_K" not in dict(tile.constants):
        return None
    assert isinstance(k, int)
    step = _step(tile)
    many = replace(
        call,
        results={"y": Write(sums, (1 + result.groups[0], *result.groups[1:]), result.vector)},
        variants=(tile,),
        parameters={**call.parameters, "part_k": -(-k // (splits * step)) * step, "batches": batch},
    )
    rank = (len(result.tensor.shape),)
    reads = {f"x{at}": Read(_partial_sum(sums, at), rank) for at in range(splits)}
    total = Map(result.tensor, reads, expression=" + ".join(reads), cost=splits - 1, origin=call.origin)
    return Replace((call,), (many, total))


def _step(variant: Variant) -> int:
    """Returns how much of k a workgroup processes per iteration."""
    constants = dict(variant.constants)
    return int(constants["SLICES"]) * int(constants["TILE_K"])


def _partial_sum(sums: Tensor, split: int) -> View:
    """Returns one of the partial sums."""
    view = View.of(sums).slice(0, split, 1, 1)
    assert view is not None  # a view of a whole tensor
    whole = view.reshape(sums.shape[1:])
    assert whole is not None
    return whole


SPLIT_K = Rule("split_k", "matmul", split_k)
