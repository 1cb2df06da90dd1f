"""A node of every operator of `ai.onnx.ml` with a kernel, with the values of its enumerated attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from .compare import random
from .example import Example

ML = "ai.onnx.ml"
F = np.float32
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def _ml(op: str, arrays: Any, choices: Any = None, others: Any = None, version: int = 1, outputs: Any = ()) -> Example:
    return Example(op, arrays, choices or {}, others or {}, ML, version=version, outputs=outputs)


def _features() -> Iterator[Example]:
    x, numbers = random(4, 5), np.array([[1, 2], [3, 1]])
    yield _ml("ArrayFeatureExtractor", [x, np.array([[1, 3]])])
    yield _ml("Binarizer", [x], others={"threshold": 0.25})
    yield _ml("FeatureVectorizer", [x, random(4, 2)], others={"inputdimensions": [5, 2]}, outputs=[F])
    yield _ml("Imputer", [x], others={"imputed_value_floats": [1.5], "replaced_value_float": float(x[0, 0])})
    labels = {"keys_int64s": [1, 2], "values_floats": [0.5, 2.0], "default_float": -1.0}
    yield _ml("LabelEncoder", [numbers], others=labels, version=2, outputs=[F])
    yield _ml("Normalizer", [x], {"norm": ("MAX", "L1", "L2")})
    yield _ml("OneHotEncoder", [numbers], others={"cats_int64s": [1, 2, 5], "zeros": 1}, outputs=[F])
    yield _ml("Scaler", [x], others={"offset": [0.5] * 5, "scale": [2.0, 1.0, 0.5, 3.0, 1.0]})


def _models() -> Iterator[Example]:
    x, classes = random(4, 3), {"classlabels_ints": [3, 1, 2]}
    lines = {"coefficients": random(9).tolist(), "intercepts": random(3, seed=1).tolist()}
    both = [np.int64, F]
    yield _ml("LinearClassifier", [x], {"post_transform": TRANSFORMS}, lines | classes, outputs=both)
    yield _ml("LinearRegressor", [x], {"post_transform": TRANSFORMS}, lines | {"targets": 3})
    machine = {"support_vectors": random(12, seed=2).tolist(), "kernel_params": [0.5, 0.25, 2.0]}
    of_classes = {"coefficients": random(8, seed=3).tolist(), "vectors_per_class": [2, 1, 1], "rho": [0.1, 0.2, 0.3]}
    choices = {"kernel_type": KERNELS, "post_transform": TRANSFORMS}
    yield _ml("SVMClassifier", [x], choices, machine | of_classes | classes, outputs=both)
    of_one = {"coefficients": random(4, seed=3).tolist(), "n_supports": 4, "rho": [0.1]}
    yield _ml("SVMRegressor", [x], {"kernel_type": KERNELS, "post_transform": ("NONE",)}, machine | of_one)


def _trees() -> Iterator[Example]:
    x = random(6, 3)
    nodes = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [1, 0, 0], "nodes_values": [0.1, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
    }  # fmt: skip

    def leaves(kind: str) -> dict[str, Any]:
        ids = {"treeids": [0] * 4, "nodeids": [1, 1, 2, 2], "ids": [0, 1, 0, 1], "weights": [0.5, 0.25, -1.0, 2.0]}
        return {f"{kind}_{name}": value for name, value in ids.items()}

    sums = {"aggregate_function": ("SUM", "AVERAGE", "MIN", "MAX"), "post_transform": TRANSFORMS}
    classes = {"classlabels_int64s": [3, 1, 2]} | leaves("class") | nodes
    yield _ml("TreeEnsembleClassifier", [x], {"post_transform": TRANSFORMS}, classes, 3, [np.int64, F])
    yield _ml("TreeEnsembleRegressor", [x], sums, {"n_targets": 2} | leaves("target") | nodes, 3)

    def tensor(kind: int, values: list[Any]) -> onnx.TensorProto:
        return onnx.helper.make_tensor("values", kind, [len(values)], values)

    newer = {
        "n_targets": 2, "aggregate_function": 1, "post_transform": 0, "tree_roots": [0], "nodes_featureids": [1],
        "nodes_modes": tensor(TensorProto.UINT8, [0]), "nodes_splits": tensor(TensorProto.FLOAT, [0.1]),
        "nodes_truenodeids": [0], "nodes_trueleafs": [1], "nodes_falsenodeids": [1], "nodes_falseleafs": [1],
        "leaf_targetids": [0, 1], "leaf_weights": tensor(TensorProto.FLOAT, [0.5, -1.0]),
    }  # fmt: skip
    yield _ml("TreeEnsemble", [x], others=newer, version=5)


EXAMPLES = (*_features(), *_models(), *_trees())
