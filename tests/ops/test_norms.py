"""Normalisation of instances, groups and vectors: odd sizes, rows far from zero, float16, extents known at run time."""

from __future__ import annotations

import numpy as np
import pytest

from tests import support

from .compare import check, model, random

DTYPES = [np.float32, np.float16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (1, 4, 3), (2, 5, 3, 2, 4), (3, 2, 61, 67)])
def test_instance_normalization(dtype: type, shape: tuple[int, ...]) -> None:
    x, gain, bias = (random(*s, dtype=dtype, seed=k) for k, s in enumerate([shape, shape[1:2], shape[1:2]]))
    check("InstanceNormalization", x, gain, bias, rtol=1e-4, atol=1e-5)
    check("InstanceNormalization", x, gain, bias, constants=[1, 2], symbolic=True, epsilon=1e-3, rtol=1e-4, atol=1e-5)


def test_instances_far_from_zero() -> None:
    x = random(2, 3, 50) + 1000
    want = (x - x.mean(2, keepdims=True, dtype=np.float64)) / np.sqrt(x.astype(np.float64).var(2, keepdims=True) + 1e-5)
    check("InstanceNormalization", x, np.ones(3, np.float32), np.zeros(3, np.float32), want=[want.astype(np.float32)],
          rtol=1e-3, atol=1e-3)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("opset", [18, 21])
@pytest.mark.parametrize("groups", [1, 3, 6])
def test_group_normalization(dtype: type, opset: int, groups: int) -> None:
    count = groups if opset == 18 else 6
    x, gain, bias = random(2, 6, 5, 7, dtype=dtype), random(count, dtype=dtype), random(count, dtype=dtype, seed=1)
    check("GroupNormalization", x, gain, bias, num_groups=groups, opset=opset, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [-1, 1])
def test_rms_normalization(dtype: type, axis: int) -> None:
    x = random(3, 4, 17, dtype=dtype)
    gain = random(*x.shape[axis:], dtype=dtype, seed=1)
    check("RMSNormalization", x, gain, axis=axis, opset=23, rtol=1e-4, atol=1e-5)


@pytest.mark.costly
def test_norms_of_nan_and_infinity() -> None:
    x = random(2, 3, 8)
    x[0, 0, 1], x[1, 1, 2] = np.nan, np.inf
    for op, more in {
        "InstanceNormalization": [np.ones(3, np.float32), np.zeros(3, np.float32)],
        "LpNormalization": [],
    }.items():
        got = support.run_model(model(op, [x, *more]), x, *more)[0]
        assert np.isnan(got[0, 0]).all()
        assert np.isfinite(got[0, 1:]).all()
        assert np.isnan(got[1, 1, 2])


@pytest.mark.parametrize("axes", [None, [0, 2], [2], [1, 3]])
def test_mean_variance_normalization(axes: list[int] | None) -> None:
    x = random(2, 3, 4, 5) if axes in (None, [1, 3]) else random(2, 3, 4)
    check("MeanVarianceNormalization", x, **({} if axes is None else {"axes": axes}), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_lp_normalization_keeps_zeros(p: int, axis: int) -> None:
    x = random(3, 5, 7)
    x[1], x[:, 2], x[..., 3] = 0, 0, 0
    check("LpNormalization", x, p=p, axis=axis)


@pytest.mark.parametrize("size", [1, 3, 5, 15])
def test_local_response_normalization(size: int) -> None:
    check("LRN", random(2, 7, 3, 3), size=size, alpha=0.1, beta=0.7, bias=1.5)


@pytest.mark.costly
def test_losses_are_expanded() -> None:
    x, labels = random(2, 6, 5), np.random.default_rng(0).integers(0, 6, (2, 5))
    for reduction in ("none", "mean", "sum"):
        check("NegativeLogLikelihoodLoss", x, labels, reduction=reduction)
        check("SoftmaxCrossEntropyLoss", x, labels, np.abs(random(6)), reduction=reduction, ignore_index=2, rtol=1e-4)
