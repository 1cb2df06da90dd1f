"""Scores of trees: kernels that walk from a root to a leaf for each row, and add the weights of leaves.

Nodes and leaves are constants. If all leaves of each tree have one target, an invocation walks several trees of a target for
a row, and a reduction combines these parts. Otherwise each tree is walked once per row, and its leaf has a row of weights.
"""

from __future__ import annotations

import numpy as np

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ....records import dataclass
from ...dims import less_equal
from ..builder import Builder, Operand
from .features import rows_of
from .reduction import reduce_axes
from .tree_nodes import NOT_EQUAL, Numbers, Trees

MOST_PARTS = 64  # of the trees of a target, which are then reduced
FEWEST_WALKED = 8  # trees per invocation
MOST_WEIGHTS = 1 << 27  # leaves times targets
_COST = 64  # of a walk: high enough that no reader recomputes it


@dataclass(frozen=True)
class Combination:
    """The combination of weights to a score: the reduction, its expression in WGSL, and the neutral element."""

    reduction: str
    combine: str
    neutral: float


SUM = Combination("ReduceSum", "total + found", 0.0)
COMBINATIONS = {
    "AVERAGE": SUM,
    "SUM": SUM,
    "MIN": Combination("ReduceMin", "min(total, found)", float("inf")),
    "MAX": Combination("ReduceMax", "max(total, found)", float("-inf")),
}


# ---- kernels


def scores_of(b: Builder, x: Operand, trees: Trees, combination: Combination) -> Operand:
    """Returns the combined weights of the leaves of all trees, (rows, targets); 0 where no leaf has a weight."""
    rows = rows_of(b, x)
    b.require(
        less_equal(trees.features, rows.shape[1]),
        "{} features, but the trees read {}",
        rows.shape[1],
        trees.features,
    )
    of_trees = target_of_trees(trees)
    result = (
        _by_target(b, rows, trees, combination, of_trees)
        if of_trees is not None
        else _by_leaf(b, rows, trees, combination)
    )
    if combination.neutral == 0:
        return result
    return b.pointwise("where(isinf(x), 0, x)", {"x": result}, result.dtype)


def target_of_trees(trees: Trees) -> Numbers | None:
    """Returns the target of all leaves of a tree, by tree; None if a tree has leaves with several targets."""
    if trees.targets == 1:
        return np.zeros(trees.roots.size, np.int64)
    if np.unique(trees.leaf).size != trees.leaf.size:
        return None
    of_leaf = np.full(trees.leaves, -1)
    of_leaf[trees.leaf] = trees.target
    # From the leaves upwards: the least and the largest target below each node, level by level.
    levels, level = [], np.unique(trees.roots[trees.roots >= 0])
    while level.size:
        levels.append(level)
        below = np.concatenate([trees.yes[level], trees.no[level]])
        level = np.unique(below[below >= 0])
    least, most = np.full(trees.feature.size, trees.targets), np.full(trees.feature.size, -1)

    def below_of(which: Numbers, values: Numbers) -> Numbers:
        found: Numbers = np.where(
            which >= 0, values[np.maximum(which, 0)] if values.size else -1, of_leaf[np.maximum(~which, 0)]
        )
        return found

    for nodes in reversed(levels):
        least[nodes] = np.minimum(below_of(trees.yes[nodes], least), below_of(trees.no[nodes], least))
        most[nodes] = np.maximum(below_of(trees.yes[nodes], most), below_of(trees.no[nodes], most))
    low, high = below_of(trees.roots, least), below_of(trees.roots, most)
    return low if np.array_equal(low, high) and bool(np.all(low >= 0)) else None


def _by_target(b: Builder, x: Operand, trees: Trees, combination: Combination, of_trees: Numbers) -> Operand:
    """Walks trees ordered by target, with the same number for each target. Missing trees are leaves with a neutral weight."""
    counts = np.bincount(of_trees, minlength=trees.targets)
    count = int(counts.max())
    if count * trees.targets > MOST_WEIGHTS:
        raise UnsupportedError(f"{count} trees for each of {trees.targets} targets are too many")
    order = np.argsort(of_trees, kind="stable")
    roots = np.full((trees.targets, count), ~trees.leaves)
    place = np.arange(of_trees.size) - np.repeat(np.cumsum(counts) - counts, counts)
    roots[of_trees[order], place] = trees.roots[order]
    values = np.full(trees.leaves + 1, combination.neutral, np.float32)
    values[trees.leaf] = trees.weight
    each = max(FEWEST_WALKED, -(-count // MOST_PARTS))
    parts = -(-count // each)
    found = b.map(
        "trees",
        DType.FLOAT32,
        (parts, trees.targets, x.shape[0]),
        ("group", "score", "row"),
        (1, 1, 1),
        {**_operands(b, x, trees, roots.reshape(-1)), "weights": (b.constant(values), (1,))},
        parameters={"count": count, "depth": trees.depth},
        cost=_COST,
        reuse=True,
        iterations=each * (trees.depth + 1),
        LEAVES=False,
        EACH=each,
        MODE=_mode(trees),
        COMBINE=combination.combine,
    )
    return b.permute(reduce_axes(b, combination.reduction, found, [0], False), (1, 0))


def _by_leaf(b: Builder, x: Operand, trees: Trees, combination: Combination) -> Operand:
    """Computes the leaf of each tree, and gathers its weights for all targets."""
    if trees.leaves * trees.targets > MOST_WEIGHTS:
        raise UnsupportedError(f"{trees.leaves} leaves with weights for {trees.targets} targets are too many")
    table = np.full((trees.leaves, trees.targets), combination.neutral, np.float32)
    table[trees.leaf, trees.target] = trees.weight
    count = int(trees.roots.size)
    leaf = b.map(
        "trees",
        DType.INT32,
        (count, x.shape[0]),
        ("tree", "row"),
        (1, 1),
        _operands(b, x, trees, trees.roots),
        parameters={"depth": trees.depth},
        cost=_COST,
        reuse=True,
        iterations=trees.depth + 1,
        LEAVES=True,
        MODE=_mode(trees),
    )
    found = b.map(
        "return table_at(u32(leaf_at(tree, row)), score);",
        DType.FLOAT32,
        (count, x.shape[0], trees.targets),
        ("tree", "row", "score"),
        (1, 1, 1),
        {"leaf": (leaf, (1, 1)), "table": (b.constant(table), (1, 1))},
        cost=4,
    )
    return reduce_axes(b, combination.reduction, found, [0], False)


def _mode(trees: Trees) -> int:
    """The comparison that all nodes use; -1 if there are several."""
    modes = np.unique(trees.mode)
    return int(modes[0]) if modes.size == 1 else -1


def _operands(b: Builder, x: Operand, trees: Trees, roots: Numbers) -> dict[str, tuple[Operand, tuple[int, ...]]]:
    # A comparison with NaN is false, except for inequality.
    missing = trees.missing | (trees.mode == NOT_EQUAL)
    nodes = np.zeros((max(1, trees.feature.size), 4), np.int32)
    if trees.feature.size:
        nodes[:, 0] = trees.feature << 4 | missing.astype(np.int64) << 3 | trees.mode
        nodes[:, 1] = trees.split.astype(np.float32).view(np.int32)
        nodes[:, 2], nodes[:, 3] = trees.yes, trees.no
    return {
        "x": (x, (1, 1)),
        "nodes": (b.constant(nodes), (1, 1)),
        "roots": (b.constant(roots.astype(np.int32)), (1,)),
    }
