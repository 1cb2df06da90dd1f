"""Ensembles of decision trees of `ai.onnx.ml`: TreeEnsemble, and the older TreeEnsembleRegressor and TreeEnsembleClassifier."""

from __future__ import annotations

from typing import Literal, TypedDict, Unpack

import numpy as np

from ....errors import UnsupportedError
from ..builder import Builder, Operand
from .features import LEARNT, weights
from .learnt_scores import (
    TRANSFORMS,
    PostTransform,
    label_by_sign,
    label_of_best,
    labels_of,
    of_one,
    probit,
    transformed,
)
from .registry import FLOATS, SINGLES, op
from .tree_nodes import MEMBER, Numbers, Trees, by_names, checked, expanded, floats, natural, whole
from .tree_scores import COMBINATIONS, SUM, scores_of, target_of_trees

Aggregate = Literal["AVERAGE", "SUM", "MIN", "MAX"]
AGGREGATES: tuple[Aggregate, ...] = ("AVERAGE", "SUM", "MIN", "MAX")


@op("TreeEnsemble", domain=LEARNT, since=5, types=FLOATS)
def tree_ensemble(
    b: Builder,
    x: Operand,
    *,
    tree_roots: list[int],
    nodes_featureids: list[int],
    nodes_modes: Numbers,
    nodes_splits: Numbers,
    nodes_truenodeids: list[int],
    nodes_falsenodeids: list[int],
    nodes_trueleafs: list[int],
    nodes_falseleafs: list[int],
    leaf_targetids: list[int],
    leaf_weights: Numbers,
    nodes_missing_value_tracks_true: list[int] | None = None,
    nodes_hitrates: Numbers | None = None,
    membership_values: Numbers | None = None,
    n_targets: int = 1,
    aggregate_function: int = 1,
    post_transform: int = 0,
) -> Operand:
    """Returns (rows, targets). Leaves have one weight each."""
    if not (0 <= aggregate_function < len(AGGREGATES) and 0 <= post_transform < len(TRANSFORMS)):
        raise UnsupportedError(f"the aggregate function {aggregate_function} with the transform {post_transform}")
    count, leaves = len(nodes_featureids), len(leaf_targetids)
    mode = whole(nodes_modes, count, "nodes_modes")
    if mode.size and not 0 <= int(mode.min()) <= int(mode.max()) <= MEMBER:
        raise UnsupportedError(f"attribute nodes_modes has a number that is not from 0 to {MEMBER}")
    yes, no = (
        np.where(whole(leafs, count, "flags of leaves") != 0, ~natural(ids, count, name), natural(ids, count, name))
        for ids, leafs, name in (
            (nodes_truenodeids, nodes_trueleafs, "nodes_truenodeids"),
            (nodes_falsenodeids, nodes_falseleafs, "nodes_falsenodeids"),
        )
    )
    tracks = whole(nodes_missing_value_tracks_true or np.zeros(count), count, "nodes_missing_value_tracks_true")
    split = floats(None, nodes_splits, "nodes_splits", count)
    found = checked(
        Trees(
            feature=whole(nodes_featureids, count, "nodes_featureids"),
            mode=mode,
            missing=tracks != 0,
            split=np.where(mode == MEMBER, np.float32(0), split),
            yes=yes,
            no=no,
            roots=natural(tree_roots, None, "tree_roots"),
            leaves=leaves,
            leaf=np.arange(leaves),
            target=whole(leaf_targetids, leaves, "leaf_targetids"),
            weight=floats(None, leaf_weights, "leaf_weights", leaves),
            targets=n_targets,
        )
    )
    trees = expanded(found, floats(None, membership_values, "membership_values"))
    aggregate, transform = AGGREGATES[aggregate_function], TRANSFORMS[post_transform]
    result = _regressed(b, x, trees, aggregate, transform, np.zeros(0, np.float32))
    return b.cast(result, x.dtype)


class NodeAttributes(TypedDict):
    """The nodes of all trees, including leaves: each list has one element per node."""

    nodes_treeids: list[int]
    nodes_nodeids: list[int]
    nodes_featureids: list[int]
    nodes_modes: list[str]
    nodes_truenodeids: list[int]
    nodes_falsenodeids: list[int]


class EnsembleAttributes(NodeAttributes, total=False):
    """Attributes of both TreeEnsembleRegressor and TreeEnsembleClassifier."""

    nodes_values: list[float] | None
    nodes_values_as_tensor: Numbers | None
    nodes_hitrates: list[float] | None
    nodes_hitrates_as_tensor: Numbers | None
    nodes_missing_value_tracks_true: list[int] | None
    base_values: list[float] | None
    base_values_as_tensor: Numbers | None


def _ensemble(
    attributes: EnsembleAttributes, of_leaves: tuple[list[int], list[int], list[int], Numbers], targets: int
) -> Trees:
    """Returns the trees of an operator's attributes. For `of_leaves` see `by_names`."""
    return by_names(
        attributes["nodes_treeids"],
        attributes["nodes_nodeids"],
        attributes["nodes_featureids"],
        floats(attributes.get("nodes_values"), attributes.get("nodes_values_as_tensor"), "nodes_values"),
        attributes["nodes_modes"],
        attributes["nodes_truenodeids"],
        attributes["nodes_falsenodeids"],
        attributes.get("nodes_missing_value_tracks_true") or (),
        of_leaves,
        targets,
    )


def _base(attributes: EnsembleAttributes) -> Numbers:
    return floats(attributes.get("base_values"), attributes.get("base_values_as_tensor"), "base_values")


@op("TreeEnsembleRegressor", domain=LEARNT, types=SINGLES)
def tree_ensemble_regressor(
    b: Builder,
    x: Operand,
    *,
    target_treeids: list[int],
    target_nodeids: list[int],
    target_ids: list[int],
    target_weights: list[float] | None = None,
    target_weights_as_tensor: Numbers | None = None,
    n_targets: int = 1,
    aggregate_function: Aggregate = "SUM",
    post_transform: PostTransform = "NONE",
    **attributes: Unpack[EnsembleAttributes],
) -> Operand:
    """Returns (rows, targets)."""
    leaf_weights = floats(target_weights, target_weights_as_tensor, "target_weights")
    trees = _ensemble(attributes, (target_treeids, target_nodeids, target_ids, leaf_weights), n_targets)
    base = _base(attributes)
    return _regressed(b, x, trees, aggregate_function, post_transform, base)


@op("TreeEnsembleClassifier", domain=LEARNT, types=SINGLES)
def tree_ensemble_classifier(
    b: Builder,
    x: Operand,
    *,
    class_treeids: list[int],
    class_nodeids: list[int],
    class_ids: list[int],
    class_weights: list[float] | None = None,
    class_weights_as_tensor: Numbers | None = None,
    classlabels_int64s: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    post_transform: PostTransform = "NONE",
    **attributes: Unpack[EnsembleAttributes],
) -> tuple[Operand, Operand]:
    """Returns labels (rows) and scores (rows, classes)."""
    labels = labels_of(classlabels_int64s, classlabels_strings, 2)
    leaf_weights = floats(class_weights, class_weights_as_tensor, "class_weights")
    trees = _ensemble(attributes, (class_treeids, class_nodeids, class_ids, leaf_weights), labels.size)
    base = _base(attributes)
    positive = bool(np.all(leaf_weights >= 0))
    used = np.unique(trees.target)
    if labels.size == 2 and used.size == 1:
        return _of_two_classes(b, x, trees, labels, post_transform, base, positive, int(used[0]))
    if labels.size == 2:
        raise UnsupportedError(
            "two classes with leaf weights for both are not supported: the CPU provider selects their labels by other rules"
        )
    if base.size not in (0, labels.size):
        raise UnsupportedError(f"{base.size} base values for {labels.size} classes")
    if not positive and not base.size and not _all_scored(trees):
        raise UnsupportedError("leaves without a weight for each class are not supported if a weight is negative")
    scores = _with_base(b, scores_of(b, x, trees, SUM), base)
    return label_of_best(b, scores, labels), transformed(b, scores, post_transform)


def _of_two_classes(
    b: Builder,
    x: Operand,
    trees: Trees,
    labels: Numbers,
    transform: PostTransform,
    base: Numbers,
    positive: bool,
    which: int,
) -> tuple[Operand, Operand]:
    """Returns one score for two classes, as in gradient boosting: there are weights of one class alone."""
    if which != 0 or base.size > 1 or transform == "PROBIT":
        raise UnsupportedError(
            f"two classes with weights for class {which} alone, {base.size} base values and the transform {transform}"
            " are not supported"
        )
    one = Trees(**{**vars(trees), "target": np.zeros_like(trees.target), "targets": 1})
    score = _with_base(b, scores_of(b, x, one, SUM), base)
    label = label_by_sign(b, score, 0.5 if positive else 0.0, int(labels[0]), int(labels[1]))
    if transform == "LOGISTIC":
        return label, of_one(b, score, "sigmoid(-s)", "sigmoid(s)")
    return label, of_one(b, score, "1 - s" if positive else "-s", "s")


def _all_scored(trees: Trees) -> bool:
    """Whether each leaf has a weight for each class, or each class has separate trees."""
    if trees.leaf.size == trees.leaves * trees.targets:
        return True
    of_trees = target_of_trees(trees)
    return of_trees is not None and np.unique(of_trees).size == trees.targets and trees.leaf.size == trees.leaves


def _regressed(
    b: Builder, x: Operand, trees: Trees, aggregate: Aggregate, transform: PostTransform, base: Numbers
) -> Operand:
    scores = scores_of(b, x, trees, COMBINATIONS[aggregate])
    if aggregate == "AVERAGE":
        scores = b.pointwise("x / n", {"x": scores}, scores.dtype, n=float(trees.roots.size))
    # As on the CPU provider, which ignores other numbers of base values, and adds none to a target without weights.
    if base.size == trees.targets:
        given = np.bincount(trees.target, minlength=trees.targets)
        if trees.targets > 1 and not np.all((given == 0) | (given == trees.leaves)) and target_of_trees(trees) is None:
            raise UnsupportedError(
                "base values are not supported if only some leaves of a tree have a weight for a target"
            )
        scores = _with_base(b, scores, np.where((given > 0) | (trees.targets == 1), base, np.float32(0)))
    if trees.targets == 1:
        return probit(b, scores) if transform == "PROBIT" else scores
    return transformed(b, scores, transform)


def _with_base(b: Builder, scores: Operand, base: Numbers) -> Operand:
    return b.pointwise("x + c", {"x": scores, "c": b.constant(weights(base))}, scores.dtype) if base.size else scores
