"""Ensembles of trees of `ai.onnx.ml`: every comparison, aggregate, transform and convention of the CPU provider; lying models."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from onnxruntime_ep_wgpu.errors import UnsupportedError
from tests.support import compile_model

from .compare import check, expected, model, random

ML = "ai.onnx.ml"
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
FEATURES = 5


def rows(count: int = 33) -> np.ndarray:
    """Rows of a few numbers, so that some are equal to what nodes compare with; some are NaN or infinite."""
    dice = np.random.default_rng(1)
    x = dice.integers(-2, 3, (count, FEATURES)).astype(np.float32) / 2
    x[dice.random(x.shape) < 0.1] = np.nan
    x[dice.random(x.shape) < 0.05] = np.inf
    return x


def forest(
    kind: str, trees: int = 11, depth: int = 4, modes: list[str] = MODES[:1], ids: Any = None, low: float = -1.0
) -> dict[str, Any]:
    """Attributes of trees, some of whose branches end early. `ids` gives the targets of a leaf of a tree."""
    dice = np.random.default_rng(trees + depth)
    found: dict[str, list[Any]] = {}

    def node(tree: int, level: int) -> int:
        number = counts[tree]
        counts[tree] += 1
        at = len(found.setdefault("nodes_treeids", []))
        leaf = level == 0 or dice.random() < 0.1
        entries = {
            "treeids": tree,
            "nodeids": number,
            "featureids": int(dice.integers(FEATURES)),
            "values": float(dice.integers(-2, 3)) / 2,
            "modes": "LEAF" if leaf else str(dice.choice(modes)),
            "truenodeids": 0,
            "falsenodeids": 0,
            "missing_value_tracks_true": int(dice.integers(2)),
        }
        for name, value in entries.items():
            found.setdefault(f"nodes_{name}", []).append(value)
        if leaf:
            for target in ids(tree) if ids else [0]:
                for name, value in (
                    ("treeids", tree),
                    ("nodeids", number),
                    ("ids", target),
                    ("weights", float(dice.uniform(low, 1))),
                ):
                    found.setdefault(f"{kind}_{name}", []).append(value)
        else:
            found["nodes_truenodeids"][at] = node(tree, level - 1)
            found["nodes_falsenodeids"][at] = node(tree, level - 1)
        return number

    counts = [0] * trees
    for tree in range(trees):
        node(tree, depth if tree != 3 else 0)
    return found


def regressor(x: np.ndarray, **attributes: Any) -> None:
    how = {"outputs": [np.float32], "rtol": 1e-4, "atol": 1e-5}
    check("TreeEnsembleRegressor", x, domain=ML, version=3, symbolic=True, **how, **attributes)


@pytest.mark.parametrize("mode", [*MODES, "all"])
def test_every_comparison_and_missing_values(mode: str) -> None:
    modes = MODES if mode == "all" else [mode]
    regressor(rows(), **forest("target", modes=modes), n_targets=1)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", ["one", "by tree", "some", "all"])
def test_aggregates(aggregate: str, targets: str) -> None:
    """A target per tree, as boosting of classes has it, or leaves with weights for some or all targets, as forests have."""
    ids = {
        "one": None,
        "by tree": lambda tree: [tree % 3],
        "some": lambda tree: [0] if tree % 2 else [0, 2],
        "all": lambda tree: [2, 0, 1],
    }[targets]
    how = {"n_targets": 3 if ids else 1, "aggregate_function": aggregate}
    attributes = forest("target", ids=ids)
    regressor(rows(), **attributes, **how)
    regressor(rows()[:0], **attributes, **how)
    if targets != "some":
        regressor(random(9, FEATURES), **attributes, base_values=[0.25] * how["n_targets"], **how)


TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]


WAYS = [(it, classes) for it in TRANSFORMS for classes in ("two", "two, positive", "by tree", "all")]


@pytest.mark.parametrize(("transform", "classes"), [it for it in WAYS if it[0] != "PROBIT" or "two" not in it[1]])
def test_classifiers(transform: str, classes: str) -> None:
    two = classes.startswith("two")
    ids = {"by tree": lambda tree: [tree % 3], "all": lambda tree: [0, 1, 2]}.get(classes)
    attributes = forest("class", trees=12, ids=ids, low=0.0 if "positive" in classes else -1.0)
    if "positive" in classes:
        attributes["class_weights"] = [it / 12 for it in attributes["class_weights"]]
    labels = [7, -3] if two else [3, 2**40, 1]
    how: dict[str, Any] = {"domain": ML, "version": 3, "outputs": (np.int64, np.float32), "rtol": 1e-4, "atol": 1e-5}
    bases: list[list[float]] = [[], [0.125]] if two else [[], [0.25, -0.5, 0.125]]
    for base in bases:
        more = {"base_values": base} if base else {}
        check(
            "TreeEnsembleClassifier",
            rows(),
            classlabels_int64s=labels,
            post_transform=transform,
            **attributes,
            **more,
            **how,
        )


def tensor(kind: int, values: Any) -> Any:
    return helper.make_tensor("t", kind, [len(values)], values)


SETS: dict[str, Any] = {
    "n_targets": 2,
    "nodes_featureids": [0, 0, 2, 1],
    "nodes_modes": tensor(TensorProto.UINT8, [6, 6, 0, 4]),
    "nodes_splits": tensor(TensorProto.FLOAT, [11.0, 232344.0, -0.5, 1.0]),
    "nodes_truenodeids": [1, 1, 3, 5],
    "nodes_falsenodeids": [2, 2, 4, 0],
    "nodes_trueleafs": [0, 1, 1, 1],
    "nodes_falseleafs": [0, 1, 1, 1],
    "nodes_missing_value_tracks_true": [1, 0, 0, 1],
    "tree_roots": [0, 3],
    "leaf_targetids": [1, 0, 1, 0, 1, 0],
    "leaf_weights": tensor(TensorProto.FLOAT, [0.5, 1.0, -2.0, 4.0, 8.0, 16.0]),
    "membership_values": tensor(TensorProto.FLOAT, [-1.0, 0.0, 1.0, np.nan, 1.0, np.nan]),
}


def sets() -> onnx.ModelProto:
    return model("TreeEnsemble", [rows()], domain=ML, version=5, **SETS)


def classes() -> onnx.ModelProto:
    """Leaves with weights for all classes, and every comparison."""
    attributes = forest("class", modes=MODES, ids=lambda tree: [0, 1, 2])
    how: dict[str, Any] = {
        "domain": ML,
        "version": 3,
        "outputs": (np.int64, np.float32),
        "classlabels_int64s": [1, 2, 3],
    }
    return model("TreeEnsembleClassifier", [rows()], post_transform="SOFTMAX_ZERO", **attributes, **how)


@pytest.mark.parametrize("aggregate", range(4))
def test_tree_ensemble_of_version_5(aggregate: int) -> None:
    """Sets of members, trees of one target and of several, a result for each aggregate function."""
    how: dict[str, Any] = {"domain": ML, "version": 5, "aggregate_function": aggregate, "symbolic": True}
    whole = rows() * 2  # the CPU provider cuts what it looks for in a set to an integer
    check("TreeEnsemble", whole, **SETS, **how)
    one = SETS | {"tree_roots": [3], "leaf_targetids": [0] * 6, "n_targets": 1}
    check("TreeEnsemble", rows(), **one, **how)


@pytest.mark.parametrize("transform", [1, 2])
def test_transforms_of_version_5_are_those_of_onnx(transform: int) -> None:
    """The CPU provider takes LOGISTIC for SOFTMAX and SOFTMAX for LOGISTIC."""
    x = rows() * 2
    (scores,) = expected(model("TreeEnsemble", [x], domain=ML, version=5, **SETS), {"x0": x})
    powers = np.exp(scores - scores.max(1, keepdims=True))
    want = powers / powers.sum(1, keepdims=True) if transform == 1 else 1 / (1 + np.exp(-scores))
    check("TreeEnsemble", x, domain=ML, version=5, post_transform=transform, want=[want], **SETS)


def test_a_fraction_is_no_member_of_a_set_of_integers() -> None:
    """The CPU provider cuts it."""
    x = np.array([[0, 0], [0.5, 0], [1, 0], [-1, 0], [np.nan, 0]], np.float32)
    one = {name: value[:1] for name, value in SETS.items() if isinstance(value, list)}
    one |= {"nodes_trueleafs": [1], "nodes_falseleafs": [1], "nodes_truenodeids": [0], "nodes_falsenodeids": [1]}
    one |= {"leaf_targetids": [0, 0], "leaf_weights": tensor(TensorProto.FLOAT, [3.0, 5.0])}
    one |= {"nodes_modes": tensor(TensorProto.UINT8, [6]), "nodes_splits": tensor(TensorProto.FLOAT, [0.0])}
    members = tensor(TensorProto.FLOAT, [0.0, 1.0, np.nan])
    want = np.array([[3], [5], [3], [5], [3]], np.float32)
    check("TreeEnsemble", x, domain=ML, version=5, membership_values=members, want=[want], **one)


LIES: dict[str, tuple[dict[str, Any], str]] = {
    "circle": ({"nodes_falsenodeids": [2, 0, 4, 0], "nodes_falseleafs": [0, 0, 1, 1]}, "root has a parent"),
    "circle apart": ({"nodes_truenodeids": [1, 1, 2, 5], "nodes_trueleafs": [0, 1, 0, 1]}, "two parents"),
    "itself": ({"nodes_truenodeids": [0, 1, 3, 5]}, "root has a parent|two parents"),
    "no node": ({"nodes_truenodeids": [9, 1, 3, 5]}, "not exist"),
    "negative": ({"nodes_truenodeids": [-1, 1, 3, 5]}, "not exist"),
    "no leaf": ({"nodes_falsenodeids": [2, 2, 9, 0]}, "not exist"),
    "no root": ({"tree_roots": [-9]}, "not exist"),
    "feature": ({"nodes_featureids": [0, -1, 2, 1]}, "negative"),
    "far feature": ({"nodes_featureids": [0, 1 << 40, 2, 1]}, "too large"),
    "more features": ({"nodes_featureids": [0, 7, 2, 1]}, "5 features"),
    "target": ({"leaf_targetids": [1, 0, 5, 0, 1, 0]}, "a target is not from 0 to 1"),
    "targets": ({"n_targets": 1 << 40}, "targets"),
    "short": ({"nodes_falsenodeids": [2]}, "are needed"),
    "mode": ({"nodes_modes": tensor(TensorProto.UINT8, [9, 6, 0, 4])}, "nodes_modes"),
    "no sets": ({"membership_values": tensor(TensorProto.FLOAT, [1.0])}, "sets of members"),
    "aggregate": ({"aggregate_function": 7}, "aggregate"),
    "split": ({"nodes_splits": tensor(TensorProto.FLOAT, [0, 0, np.nan, 0])}, "NaN"),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_is_no_tree_stays_on_the_cpu_with_a_reason(lie: str) -> None:
    change, reason = LIES[lie]
    with pytest.raises(UnsupportedError, match=reason):
        compile_model(model("TreeEnsemble", [rows()], domain=ML, version=5, **SETS | change))
