"""Decision trees as arrays: nodes and leaves from the attributes of `ai.onnx.ml`, validated and converted to one form.

In: lists of a model, which may be invalid. Out: `Trees`. Invariants:

* Every number refers to an existing node or leaf.
* A node has one parent, so no path from a root is a cycle.
* No path is longer than `depth`.

Raises UnsupportedError for invalid trees.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....errors import UnsupportedError, cut
from ....records import dataclass

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
NOT_EQUAL = MODES.index("BRANCH_NEQ")
MEMBER = len(MODES)  # of TreeEnsemble alone
MOST_DEPTH = 4096
MOST_TARGETS = 1 << 16
MOST_FEATURES = 1 << 27  # a word of a node contains one
Numbers = np.ndarray


@dataclass(frozen=True)
class Trees:
    """Nodes and leaves. `yes` and `no` are the numbers of a node's children, inverted (`~`) for leaves; so are roots.

    `leaf`, `target` and `weight` list the weights of leaves: each leaf has one per target, or fewer.
    """

    feature: Numbers
    mode: Numbers
    missing: Numbers  # whether NaN takes the `yes` branch
    split: Numbers
    yes: Numbers
    no: Numbers
    roots: Numbers
    leaves: int
    leaf: Numbers
    target: Numbers
    weight: Numbers
    targets: int
    depth: int = 0

    @property
    def features(self) -> int:
        """The number of features that a row needs."""
        return int(self.feature.max()) + 1 if self.feature.size else 0


def checked(it: Trees) -> Trees:
    """Validates the numbers of the trees, and returns the trees with their depth."""
    _require(it.roots.size > 0, "there are no trees")
    _require(0 < it.targets <= MOST_TARGETS, f"{it.targets} targets: from 1 to {MOST_TARGETS} are supported")
    nodes = it.feature.size
    for which in (it.yes, it.no, it.roots):
        _require(bool(np.all((which < nodes) & (~which < it.leaves))), "a node or leaf does not exist")
    _require(bool(np.all((it.feature >= 0) & (it.feature < MOST_FEATURES))), "a feature is negative, or too large")
    _require(bool(np.all((it.target >= 0) & (it.target < it.targets))), f"a target is not from 0 to {it.targets - 1}")
    _require(not np.isnan(it.split).any(), "a split is NaN")
    both = it.leaf * it.targets + it.target
    _require(np.unique(both).size == both.size, "a leaf has two weights for one target")
    children = np.concatenate([it.yes, it.no])
    parents = np.bincount(children[children >= 0], minlength=nodes)
    _require(bool(np.all(parents <= 1)), "a node has two parents")
    inner = np.unique(it.roots[it.roots >= 0])
    _require(not parents[inner].any(), "a root has a parent")
    depth, level = 0, inner
    while level.size:
        depth += 1
        _require(depth <= MOST_DEPTH, f"a tree is deeper than {MOST_DEPTH}")
        below = np.concatenate([it.yes[level], it.no[level]])
        level = below[below >= 0]
    return Trees(**{**vars(it), "depth": depth})


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise UnsupportedError(f"the trees are invalid: {what}")


def whole(values: Sequence[int] | Numbers | None, count: int | None, what: str) -> Numbers:
    """Returns integers of an attribute. Requires `count` of them, unless it is None."""
    array = np.asarray(values if values is not None else (), np.int64).reshape(-1)
    _require(count is None or array.size == count, f"{array.size} numbers in {what}, and {count} are needed")
    return array


def natural(values: Sequence[int] | None, count: int | None, what: str) -> Numbers:
    """Returns integers that are not negative."""
    array = whole(values, count, what)
    _require(not array.size or int(array.min()) >= 0, f"{what} refers to a node or leaf that does not exist")
    return array


def floats(values: Sequence[float] | None, tensor: Numbers | None, what: str, count: int | None = None) -> Numbers:
    """Returns floats of an attribute, or of the tensor attribute beside it. Raises UnsupportedError for 64-bit floats."""
    given = np.asarray(tensor).reshape(-1) if tensor is not None else np.asarray(values or (), np.float32)
    if given.dtype not in (np.float32, np.float16):
        raise UnsupportedError(f"{what} of type {given.dtype} are not supported")
    _require(count is None or given.size == count, f"{given.size} numbers in {what}, and {count} are needed")
    return given.astype(np.float32)


def by_names(
    treeids: Sequence[int],
    nodeids: Sequence[int],
    featureids: Sequence[int],
    values: Numbers,
    modes: Sequence[str],
    truenodeids: Sequence[int],
    falsenodeids: Sequence[int],
    missing: Sequence[int],
    of_leaves: tuple[Sequence[int], Sequence[int], Sequence[int], Numbers],
    targets: int,
) -> Trees:
    """Returns trees from nodes with a number each in their tree. Leaves are nodes too. A tree begins with its first node.

    `of_leaves`: tree, node, target and weight.
    """
    count = len(treeids)
    tree, node = whole(treeids, count, "nodes_treeids"), whole(nodeids, count, "nodes_nodeids")
    lists = {"nodes_truenodeids": truenodeids, "nodes_falsenodeids": falsenodeids}
    yes, no = (whole(ids, count, name) for name, ids in lists.items())
    _require(len(modes) == count == len(values), f"{len(modes)} modes and {len(values)} values for {count} nodes")
    unknown = set(modes) - {*MODES, "LEAF"}
    if unknown:
        raise UnsupportedError(
            f"attribute nodes_modes has {cut(sorted(unknown)[0])}, which is not one of {', '.join(MODES)}, LEAF"
        )
    leaf_trees, leaf_nodes, leaf_targets, weight = of_leaves
    entries = len(leaf_trees)
    in_tree, in_node = whole(leaf_trees, entries, "trees of leaves"), whole(leaf_nodes, entries, "leaves")
    target = whole(leaf_targets, entries, "targets of leaves")
    _require(weight.size == entries, f"{weight.size} weights for {entries} leaves")

    places = _NodePositions(tree, node, yes, no, in_tree, in_node)
    known = {name: k for k, name in enumerate(MODES)}
    mode = np.array([known.get(it, MEMBER) for it in modes], np.int64)
    branch = mode < MEMBER
    number = np.where(branch, np.cumsum(branch) - 1, ~(np.cumsum(~branch) - 1))  # among branches, or among leaves
    first = np.sort(np.unique(tree, return_index=True)[1])
    at = number[places.of(in_tree, in_node)] if entries else np.zeros(0, np.int64)
    tracks = whole(missing, count, "nodes_missing_value_tracks_true") if len(missing) else np.zeros(count, np.int64)
    return checked(
        Trees(
            feature=whole(featureids, count, "nodes_featureids")[branch],
            mode=mode[branch],
            missing=tracks[branch] != 0,
            split=values[branch],
            yes=number[places.of(tree[branch], yes[branch])],
            no=number[places.of(tree[branch], no[branch])],
            roots=number[first],
            leaves=int(np.count_nonzero(~branch)),
            leaf=~at[at < 0],
            target=target[at < 0],
            weight=weight[at < 0],
            targets=targets,
        )
    )


class _NodePositions:
    """The positions of nodes, by tree and number."""

    def __init__(self, tree: Numbers, node: Numbers, *more: Numbers) -> None:
        yes, no, other_trees, other_nodes = more
        self._trees = np.unique(np.concatenate([tree, other_trees]))
        self._nodes = np.unique(np.concatenate([node, yes, no, other_nodes]))
        keys = self._keys(tree, node)
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]
        _require(bool(np.all(self._sorted[1:] != self._sorted[:-1])), "two nodes of a tree have the same number")

    def _keys(self, tree: Numbers, node: Numbers) -> Numbers:
        found: Numbers = np.searchsorted(self._trees, tree) * self._nodes.size + np.searchsorted(self._nodes, node)
        return found

    def of(self, tree: Numbers, node: Numbers) -> Numbers:
        keys = self._keys(tree, node)
        at = np.minimum(np.searchsorted(self._sorted, keys), max(0, self._sorted.size - 1))
        _require(self._sorted.size > 0 and bool(np.all(self._sorted[at] == keys)), "a node does not exist")
        found: Numbers = self._order[at]
        return found


def expanded(it: Trees, members: Numbers) -> Trees:
    """Returns trees without set membership. A node that tests for a member of a set becomes a chain of nodes, one per member,
    with the same `yes`.

    `members` are those of all such nodes, each set terminated by a NaN.
    """
    asking = np.flatnonzero(it.mode == MEMBER)
    ends = np.flatnonzero(np.isnan(members))
    _require(ends.size >= asking.size, f"{ends.size} sets of members for {asking.size} nodes")
    if not asking.size:
        return it
    sets = np.split(members, ends + 1)[: asking.size]
    longest = max(map(len, sets))
    _require(min(map(len, sets)) > 1, "a set of members is empty")
    more = {"feature": [it.feature], "missing": [it.missing], "split": [it.split], "yes": [it.yes], "no": [it.no]}
    split, no, mode, count = it.split.copy(), it.no.copy(), it.mode.copy(), it.feature.size
    mode[asking] = MODES.index("BRANCH_EQ")
    for node, values_of_set in zip(asking.tolist(), sets, strict=True):
        rest = values_of_set[1:-1]
        split[node] = values_of_set[0]
        if rest.size:
            more["split"].append(rest)
            for name, values in (("feature", it.feature), ("missing", it.missing), ("yes", it.yes)):
                more[name].append(np.repeat(values[node], rest.size))
            more["no"].append(np.append(np.arange(count + 1, count + rest.size), it.no[node]))
            no[node], count = count, count + rest.size
    more["split"][0], more["no"][0] = split, no
    joined = {name: np.concatenate(parts) for name, parts in more.items()}
    mode = np.append(mode, np.full(count - mode.size, MODES.index("BRANCH_EQ")))
    return Trees(**{**vars(it), **joined, "mode": mode, "depth": it.depth * max(1, longest - 1)})
