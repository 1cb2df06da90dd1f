"""Operators of `ai.onnx.ml` before and after a model: the CPU provider's numbers, its conventions, and what stays there."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from onnxruntime_ep_wgpu.errors import UnsupportedError
from tests.support import compile_model

from .compare import SPECIAL, check, check_model, model, random

ML = "ai.onnx.ml"
ODD = random(7, 3)
LABELS: dict[str, Any] = {"classlabels_ints": [5, -7], "outputs": (np.int64, np.float32)}


def tensor(values: Any) -> Any:
    return helper.make_tensor("t", helper.np_dtype_to_tensor_dtype(values.dtype), values.shape, values)


@pytest.mark.parametrize("x", [ODD, random(3), random(0, 3), random(2, 3, 5), random(5, 3, dtype=np.int64)], ids=str)
def test_scaler(x: np.ndarray) -> None:
    many = {"offset": [0.5, -1.0, 2.0], "scale": [2.0, 0.25, -3.0]}
    for how in (many, {"offset": [0.5], "scale": [2.0]}):
        check("Scaler", x, domain=ML, outputs=[np.float32], symbolic=x.ndim < 3, **how)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm: str) -> None:
    rows = np.array([[-1, -2, -3], [0, 0, 0], [np.nan, 1, 2], [1, np.nan, -1], [3, -4, 0]], np.float32)
    for x in (rows, rows[4], rows[:0], random(4, 3, dtype=np.int64)):
        check("Normalizer", x, domain=ML, outputs=[np.float32], symbolic=True, norm=norm)


def test_imputer() -> None:
    x = np.array([[1, 0, np.nan], [0, -0.0, 2]], np.float32)
    for replaced in (0.0, 1.0, np.nan):
        for values in ([7.0, 8.0, 9.0], [7.0], [7.0, 8.0]):
            for symbolic in (False, True):
                how: dict[str, Any] = {"imputed_value_floats": values, "replaced_value_float": replaced}
                check("Imputer", x, domain=ML, symbolic=symbolic, **how)
        check(
            "Imputer", random(2, 3, 4), domain=ML, imputed_value_floats=[1.0, 2.0, 3.0], replaced_value_float=replaced
        )
    far = 2**40 + 1
    integers = np.array([[far, 2, 3], [1, far, 4]])
    check("Imputer", integers, domain=ML, imputed_value_int64s=[far + 1, 5, 6], replaced_value_int64=far, symbolic=True)


def test_binarizer() -> None:
    check("Binarizer", SPECIAL[~np.isnan(SPECIAL)].reshape(4, 6), domain=ML, threshold=0.5)


@pytest.mark.parametrize("version", [2, 4])
def test_label_encoder(version: int) -> None:
    how: dict[str, Any] = {"domain": ML, "version": version}
    keys = [float("nan"), -0.0, 1.0, 1.0, 0.5, float("inf"), 1e-40]
    x = np.append(SPECIAL, np.float32(1e-40))
    check("LabelEncoder", x, keys_floats=keys, values_int64s=[2**40, 2, 3, 4, 5, 6, 7], outputs=[np.int64], **how)
    whole = np.array([[1, 2, 3], [-(2**33), 2**33, 2**32 + 1]])
    check("LabelEncoder", whole, keys_int64s=[2, 1, 2], values_floats=[1.5, 5, 6], outputs=[np.float32], **how)
    check("LabelEncoder", whole, keys_int64s=[2], values_int64s=[7], default_int64=9, symbolic=True, **how)
    check("LabelEncoder", x[:0], keys_floats=[1.0], values_floats=[7.0], **how)
    if version == 4:
        tensors = {"keys_tensor": tensor(np.array([2, 3])), "values_tensor": tensor(np.array([0.5, 2], np.float32))}
        check(
            "LabelEncoder",
            whole,
            outputs=[np.float32],
            default_tensor=tensor(np.array([9], np.float32)),
            **tensors,
            **how,
        )


def test_one_hot_encoder() -> None:
    categories = [3, -1, 1]
    for x in (np.array([[1, 3], [-1, 2**32 + 1]]), np.array([1.5, -1.2, 9, np.nan, 3e38], np.float32)):
        check("OneHotEncoder", x, domain=ML, outputs=[np.float32], cats_int64s=categories, symbolic=True)
    check("OneHotEncoder", np.array([3, 1]), domain=ML, outputs=[np.float32], cats_int64s=categories, zeros=0)


@pytest.mark.parametrize("x", [random(4), random(3, 4), random(2, 3, 4), random(3, 4, dtype=np.int64)], ids=str)
def test_array_feature_extractor(x: np.ndarray) -> None:
    for picked in ([2, 0, 2], [[3]]):
        check("ArrayFeatureExtractor", x, np.array(picked), domain=ML, symbolic=True)


def test_feature_vectorizer() -> None:
    for xs in ((ODD, random(7, 2), random(7, 4)), (ODD[0], random(2), random(4))):
        check("FeatureVectorizer", *xs, domain=ML, inputdimensions=[2, 4, 4])
    check("FeatureVectorizer", random(3, 2, 2, dtype=np.int64), domain=ML, outputs=[np.float32], inputdimensions=[5])


TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_linear_models(transform: str) -> None:
    how: dict[str, Any] = {"domain": ML, "post_transform": transform, "rtol": 1e-4, "atol": 1e-5}
    x = np.concatenate([ODD, np.zeros((1, 3), np.float32)])
    three = [0.1, -0.2, 0.3, 0.25, 0.5, -0.125, 0.5, 0.25, 0.125]
    check("LinearRegressor", x, coefficients=three[:3], intercepts=[0.3], **how)
    check("LinearRegressor", x, coefficients=three, targets=3, intercepts=[0.5, 0.25, 0.5], symbolic=True, **how)
    labels = how | LABELS
    check(
        "LinearClassifier", x, coefficients=three, intercepts=[0.0] * 3, **labels | {"classlabels_ints": [3, 1, 2**40]}
    )
    check("LinearClassifier", x[0], coefficients=three[:6], intercepts=[0.0, 0.5], **labels)
    if transform != "PROBIT":
        check("LinearClassifier", x, coefficients=three[:3], intercepts=[0.125], **labels)


KERNELS = ["LINEAR", "POLY", "RBF", "SIGMOID"]


def support(count: int, rows: int, seed: int = 3) -> dict[str, Any]:
    """Vectors of three features with `rows` rows of coefficients."""
    vectors, coefficients = random(count, 3, seed=seed), random(rows, count, seed=seed + 1)
    return {"support_vectors": vectors.ravel().tolist(), "coefficients": coefficients.ravel().tolist()}


@pytest.mark.parametrize("kernel", KERNELS)
def test_support_vector_regression(kernel: str) -> None:
    how: dict[str, Any] = {"domain": ML, "rho": [0.25], "rtol": 1e-4, "atol": 1e-5, "symbolic": True}
    vectors = {"kernel_type": kernel, "kernel_params": [0.5, 0.25, 3.0], "n_supports": 17, **support(17, 1)}
    for x in (ODD, ODD[0], ODD[:0]):
        check("SVMRegressor", x, **vectors, **how)
    check("SVMRegressor", ODD, one_class=1, **vectors, **how)
    check(
        "SVMRegressor", ODD, kernel_type="LINEAR", kernel_params=[0.0, 0.0, 3.0], coefficients=[0.5, -1.0, 2.0], **how
    )


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_support_vector_classification(transform: str) -> None:
    how: dict[str, Any] = {
        "domain": ML,
        "post_transform": transform,
        "rtol": 1e-4,
        "atol": 1e-4,
        "outputs": LABELS["outputs"],
    }
    four = support(13, 3) | {
        "vectors_per_class": [4, 0, 6, 3],
        "rho": [0.1, -0.2, 0.3, 0.0, 0.5, -0.5],
        "classlabels_ints": [4, 3, 2**40, 1],
    }
    x = random(33, 3, seed=9)
    for kernel in KERNELS:
        check("SVMClassifier", x, kernel_type=kernel, kernel_params=[0.5, 0.25, 2.0], **four, **how)
    if transform != "PROBIT":
        two = support(7, 1) | {"vectors_per_class": [4, 3], "rho": [0.125], "classlabels_ints": [5, -7]}
        check("SVMClassifier", x, kernel_type="RBF", kernel_params=[0.5, 0.0, 3.0], symbolic=True, **two, **how)
    for weights in (random(2, 3), abs(random(2, 3)), random(3, 3)):
        labels = [5, -7, 9][: len(weights)]
        how |= {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 3.0], "rho": [0.25], "classlabels_ints": labels}
        check("SVMClassifier", x, coefficients=weights.ravel().tolist(), **how)


def probabilities(classes: int) -> onnx.ModelProto:
    """A machine with probabilities of pairs, of three features."""
    pairs = classes * (classes - 1) // 2
    attributes = support(2 * classes, classes - 1) | {"vectors_per_class": [2] * classes, "rho": random(pairs).tolist()}
    attributes |= {"prob_a": (-2 - random(pairs, seed=1)).tolist(), "prob_b": (random(pairs, seed=2) / 4).tolist()}
    attributes |= {"kernel_type": "RBF", "kernel_params": [0.5, 0.0, 3.0]}
    labels = {"classlabels_ints": list(range(classes, 0, -1)), "outputs": LABELS["outputs"]}
    return model("SVMClassifier", [random(33, 3, seed=9)], domain=ML, symbolic=True, **attributes, **labels)


def encoder() -> onnx.ModelProto:
    return model("LabelEncoder", [ODD], domain=ML, version=4, keys_floats=[0.5, 2.0], values_floats=[1.0, 2.0])


@pytest.mark.parametrize("classes", [2, 3, 5, 12])
def test_probabilities_of_support_vector_machines(classes: int) -> None:
    """Both providers end when an error is below 0.005 / classes, which one of them may be a step before."""
    check_model(probabilities(classes), [random(33, 3, seed=9)], rtol=1e-3, atol=0.005 / classes)


@pytest.mark.parametrize(
    ("op_type", "attributes", "reason"),
    [
        ("LinearClassifier", {"coefficients": [1.0] * 3, "intercepts": [1.0], "classlabels_strings": ["a", "b"]}, "strings"),
        ("LinearClassifier", {"coefficients": [1.0] * 4, "intercepts": [1.0] * 3, "classlabels_ints": [1, 2, 3]}, "coeff"),
        ("LinearClassifier", {"coefficients": [1.0] * 9, "intercepts": [1.0] * 3, "classlabels_ints": [1]}, "1 labels"),
        ("LinearRegressor", {"coefficients": [1.0] * 3, "targets": 2**40}, "coefficients for"),
        ("LabelEncoder", {"keys_floats": [1.0, 2.0], "values_floats": [1.0]}, "2 keys"),
        ("LabelEncoder", {"keys_strings": ["a"], "values_floats": [1.0]}, "keys_strings"),
        ("FeatureVectorizer", {"inputdimensions": [2**60]}, "dimensions"),
        ("Scaler", {"scale": [1.0, 2.0], "offset": [1.0]}, "2 numbers"),
        ("OneHotEncoder", {"cats_int64s": [2**40]}, "32-bit"),
        ("SVMRegressor", {"coefficients": [1.0], "rho": [1.0], "n_supports": 2**50, "support_vectors": [1.0]}, "support vectors"),
        ("SVMRegressor", {"coefficients": [1.0], "rho": [1.0], "n_supports": -1, "support_vectors": [1.0]}, "support vectors"),
    ],
)  # fmt: skip
def test_what_stays_on_the_cpu_has_a_reason(op_type: str, attributes: dict[str, Any], reason: str) -> None:
    two = op_type == "LinearClassifier"
    outputs = (np.int64, np.float32) if two else [np.float32]
    built = model(
        op_type, [ODD], domain=ML, version=3 if op_type == "LabelEncoder" else 1, outputs=outputs, **attributes
    )
    with pytest.raises(UnsupportedError, match=reason):
        compile_model(built)
