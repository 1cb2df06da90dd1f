"""Normalisations, biases and activations as exports of transformers and diffusion models have them, beside the CPU provider in
float32 and numpy where it lacks them: every optional operand and result, shapes of skips, types, errors that name a value.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

from onnxruntime_ep_wgpu.errors import InputError, LimitError, UnsupportedError
from tests import support
from tests.ops.compare import expected, random

MICROSOFT = "com.microsoft"
HALF, BRAIN = np.float16, ml_dtypes.bfloat16
# Of a result that was rounded once, and of sums that were stored before they were normalised.
TOLERANCES = {np.float32: (2e-5, 2e-5), HALF: (2e-3, 4e-3), BRAIN: (1.6e-2, 3e-2)}


def build(
    op: str,
    arrays: Sequence[np.ndarray | None],
    results: Sequence[Any],
    *,
    domain: str = MICROSOFT,
    symbolic: bool = False,
    **attributes: Any,
) -> onnx.ModelProto:
    """A graph of one node; a result None has no name. Integers stay the types that they are."""
    names = [f"x{k}" if a is not None else "" for k, a in enumerate(arrays)]
    outputs = [f"y{k}" if r is not None else "" for k, r in enumerate(results)]
    node = helper.make_node(op, names, outputs, domain=domain, **attributes)
    inputs = [
        helper.make_tensor_value_info(
            n,
            helper.np_dtype_to_tensor_dtype(a.dtype),
            [f"{n}_{axis}" for axis in range(a.ndim)] if symbolic else a.shape,
        )
        for n, a in zip(names, arrays, strict=True)
        if a is not None
    ]
    made = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.dtype(r)), None)
        for n, r in zip(outputs, results, strict=True)
        if n
    ]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(helper.make_graph([node], op, inputs, made), opset_imports=opsets, ir_version=10)


def check(
    op: str,
    arrays: Sequence[np.ndarray | None],
    results: Sequence[Any] = (np.float32,),
    *,
    dtype: Any = np.float32,
    want: Sequence[np.ndarray] | None = None,
    **how: Any,
) -> None:
    """Runs the node with floats in `dtype` beside the same node in float32; results of float32 stay that, None is not asked for."""

    def typed(array: np.ndarray | None, to: Any) -> np.ndarray | None:
        return array.astype(to) if array is not None and array.dtype.kind in "fV" else array

    rounded = [typed(a, dtype) for a in arrays]
    exact = [typed(a, np.float32) for a in rounded]
    if want is None:
        reference = build(op, exact, [None if r is None else (np.float32 if r is dtype else r) for r in results], **how)
        want = expected(reference, {f"x{k}": a for k, a in enumerate(exact) if a is not None})
    got = support.run_model(build(op, rounded, results, **how), *(a for a in rounded if a is not None))
    kinds = [np.dtype(r) for r in results if r is not None]
    rtol, atol = TOLERANCES[dtype]
    assert len(got) == len(want) == len(kinds)
    for ours, theirs, kind in zip(got, want, kinds, strict=True):
        assert ours.dtype == kind
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(
            ours.astype(np.float64), theirs.astype(np.float64), rtol=rtol, atol=atol, equal_nan=True
        )


TYPES = pytest.mark.parametrize("dtype", [np.float32, HALF, BRAIN], ids=["f32", "f16", "bf16"])


@pytest.mark.costly
@TYPES
@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_skip_normalisation(op: str, dtype: Any) -> None:
    """Every set of optional operands and results; results in between that nobody asks for are not made."""
    full = op == "SkipLayerNormalization"
    for k, (hidden, beta, bias, summed) in enumerate(itertools.product((5, 64, 130), (0, 1), (0, 1), (0, 1))):
        if beta and not full:
            continue
        shape = (2, 3, hidden)
        arrays = [random(*shape, seed=k), random(*shape, seed=k + 1), random(hidden, seed=2)]
        arrays += [random(hidden, seed=3) if beta else None] if full else []
        arrays += [random(hidden, seed=4) if bias else None]
        while arrays[-1] is None:
            arrays.pop()
        check(op, arrays, (dtype, None, None, dtype) if summed else (dtype,), dtype=dtype, epsilon=1e-5)


@pytest.mark.parametrize("skip", [(1, 3, 8), (3, 8)])
def test_a_skip_for_all_of_a_batch(skip: tuple[int, ...]) -> None:
    arrays = [random(2, 3, 8), random(*skip, seed=1), random(8, seed=2)]
    check("SkipLayerNormalization", arrays, (np.float32, None, None, np.float32))


@pytest.mark.parametrize("symbolic", [False, True])
def test_skip_normalisation_of_tokens(symbolic: bool) -> None:
    arrays = [random(7, 24), random(7, 24, seed=1), random(24, seed=2)]
    check("SkipSimplifiedLayerNormalization", arrays, (np.float32, None, None, np.float32), symbolic=symbolic)


@pytest.mark.costly
@TYPES
def test_statistics_of_skip_normalisation(dtype: Any) -> None:
    """The CPU provider leaves them unwritten."""
    x, skip, gamma = random(2, 3, 40), random(2, 3, 40, seed=1), random(40, seed=2)
    rounded = [a.astype(dtype) for a in (x, skip, gamma)]
    stored = (rounded[0].astype(np.float32) + rounded[1].astype(np.float32)).astype(dtype).astype(np.float64)
    scale = rounded[2].astype(np.float64)
    mean = stored.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt(stored.var(-1, keepdims=True) + 1e-5)
    root = 1 / np.sqrt((stored**2).mean(-1, keepdims=True) + 1e-5)
    check("SkipLayerNormalization", [x, skip, gamma], (dtype, np.float32, np.float32, dtype), dtype=dtype, epsilon=1e-5,
          want=[(stored - mean) * inverse * scale, mean, inverse, stored])  # fmt: skip
    check("SkipSimplifiedLayerNormalization", [x, skip, gamma], (dtype, None, np.float32, dtype), dtype=dtype, epsilon=1e-5,
          want=[stored * root * scale, root, stored])  # fmt: skip


def test_a_mean_that_is_not_there() -> None:
    arrays = [random(2, 3, 8), random(2, 3, 8), random(8)]
    model = build("SkipSimplifiedLayerNormalization", arrays, (np.float32, np.float32))
    with pytest.raises(UnsupportedError, match="no kernel calculates the result 'y1'"):
        support.compile_model(model)


@TYPES
@pytest.mark.parametrize("axis", [-1, 1, 0])
def test_simplified_layer_normalization(dtype: Any, axis: int) -> None:
    shape = (2, 3, 20)
    arrays = [random(*shape), random(*shape[axis:], seed=1)]
    check("SimplifiedLayerNormalization", arrays, (dtype,), dtype=dtype, domain="", axis=axis, epsilon=1e-5)
    x = arrays[0].astype(dtype).astype(np.float64)
    over = tuple(range(axis % 3, 3))
    root = 1 / np.sqrt((x**2).mean(over, keepdims=True) + 1e-5)
    want = [x * root * arrays[1].astype(dtype).astype(np.float64), root]
    check("SimplifiedLayerNormalization", arrays, (dtype, np.float32), dtype=dtype, domain="", axis=axis, epsilon=1e-5,
          want=want)  # fmt: skip


@pytest.mark.costly
@pytest.mark.parametrize("dtype", [np.float32, HALF], ids=["f32", "f16"])
def test_embeddings(dtype: Any) -> None:
    batch, length, hidden = 3, 5, 24
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 11, (batch, length)).astype(np.int32)
    tables = [random(11, hidden), random(9, hidden, seed=1), random(2, hidden, seed=2)]
    parameters = [random(hidden, seed=3), random(hidden, seed=4)]
    mask = (np.arange(length) < np.array([[5], [2], [0]])).astype(np.int32)
    for segments, masked, places in itertools.product((0, 1), (0, 1), (None, batch, 1)):
        arrays: list[Any] = [ids, rng.integers(0, 2, ids.shape).astype(np.int32) if segments else None, *tables[:2]]
        arrays += [tables[2] if segments else None, *parameters, mask if masked else None]
        arrays += [rng.integers(0, 9, (places, length)).astype(np.int32) if places else None]
        while arrays[-1] is None:
            arrays.pop()
        check("EmbedLayerNormalization", arrays, (dtype, np.int32, dtype), dtype=dtype, mask_index_type=1)
        check("EmbedLayerNormalization", arrays, (dtype, np.int32), dtype=dtype)


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


@pytest.mark.parametrize("dtype", [np.float32, HALF], ids=["f32", "f16"])
def test_biases(dtype: Any) -> None:
    x, bias, skip = random(2, 5, 18), random(18, seed=1), random(2, 5, 18, seed=2)
    a, c, s = (v.astype(dtype).astype(np.float64) for v in (x, bias, skip))
    check("BiasAdd", [x, bias, skip], (dtype,), dtype=dtype, want=[a + c + s])
    left, right = np.split(a + c, 2, -1)
    check("BiasSplitGelu", [x, bias], (dtype,), dtype=dtype, want=[left * gelu(right)])
    check("BiasSplitGelu", [x, bias], (dtype,), dtype=dtype, want=[left * gelu(right)], symbolic=True)


@pytest.mark.costly
@TYPES
def test_activations(dtype: Any) -> None:
    x, bias = random(2, 5, 18) * 3, random(18, seed=1)
    for op, arrays in (("BiasGelu", [x, bias]), ("FastGelu", [x, bias]), ("FastGelu", [x]), ("Gelu", [x])):
        check(op, arrays, (dtype,), dtype=dtype)
    check("QuickGelu", [x], (dtype,), dtype=dtype, alpha=1.5)
    for length in (1, 7, 36):  # the CPU provider takes a bias of the columns alone
        added = random(length, seed=2)
        whole = (np.resize(added, x.shape) + x).astype(np.float64)
        want = 0.5 * whole * (1 + np.tanh(np.sqrt(2 / np.pi) * (whole + 0.044715 * whole**3)))
        check("FastGelu", [x, added], (dtype,), dtype=dtype, want=[want])


def group_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, groups: int, last: int, silu: int) -> np.ndarray:
    moved = np.moveaxis(x, -1, 1) if last else x
    rows = moved.reshape(moved.shape[0], groups, -1)
    y = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-5)
    per_channel = (-1,) + (1,) * (x.ndim - 2)
    y = y.reshape(moved.shape) * gamma.reshape(per_channel) + beta.reshape(per_channel)
    y = y / (1 + np.exp(-y)) if silu else y
    return np.moveaxis(y, 1, -1) if last else y


@pytest.mark.costly
@pytest.mark.parametrize("dtype", [np.float32, HALF], ids=["f32", "f16"])
@pytest.mark.parametrize("last", [0, 1])
def test_group_norm(dtype: Any, last: int) -> None:
    for groups, silu, channels in ((1, 0, 6), (3, 1, 6), (8, 1, 32)):
        shape = (2, 3, 5, channels) if last else (2, channels, 3, 5)
        x, gamma, beta, skip, bias = (
            random(*s, seed=k) for k, s in enumerate((shape, (channels,), (channels,), shape, (channels,)))
        )
        parts = (v.astype(dtype).astype(np.float64) for v in (x, gamma, beta, skip, bias))
        a, g, h, s, c = parts
        how = {"groups": groups, "activation": silu, "channels_last": last, "epsilon": 1e-5}
        want = group_norm(a, g, h, groups, last, silu)
        check("GroupNorm", [x, gamma, beta], (dtype,), dtype=dtype, want=[want], **how)
        spread = c if last else c[:, None, None]
        for given, added in ((bias, spread), (None, 0)):
            arrays = [x, gamma, beta, skip, given] if given is not None else [x, gamma, beta, skip]
            total = (a + s + added).astype(dtype).astype(np.float64)
            want = [group_norm(total, g, h, groups, last, silu), total]
            check("SkipGroupNorm", arrays, (dtype, dtype), dtype=dtype, want=want, **how)
        for narrow in ((2, channels), (2, 1, 1, channels) if last else (2, channels, 1, 1)):
            few = random(*narrow, seed=9)
            wide = few.astype(dtype).astype(np.float64).reshape((2, 1, 1, channels) if last else (2, channels, 1, 1))
            total = (a + wide).astype(dtype).astype(np.float64)
            check("SkipGroupNorm", [x, gamma, beta, few], (dtype,), dtype=dtype,
                  want=[group_norm(total, g, h, groups, last, silu)], **how)  # fmt: skip


@pytest.mark.parametrize(
    ("op", "shapes", "how", "message"),
    [
        ("SkipLayerNormalization", [(2, 3, 8), (2, 3, 8), (7,)], {}, r"gamma \[7\] for rows of 8|gamma .*\[7\]"),
        ("SkipLayerNormalization", [(2, 3, 8), (2, 4, 8), (8,)], {}, r"skip float32\[2, 4, 8\] for the input"),
        ("SkipSimplifiedLayerNormalization", [(3, 8), (3, 8), (2, 8)], {}, r"gamma float32\[2, 8\]: one number per column"),
        ("BiasSplitGelu", [(2, 3, 7), (7,)], {}, "7 columns are not an even number"),
        ("BiasAdd", [(2, 3, 8), (7,), (2, 3, 8)], {}, r"bias float32\[7\] for the channels"),
        ("GroupNorm", [(2, 3, 5, 8), (8,), (8,)], {"groups": 3, "activation": 0}, "8 channels do not divide into 3 groups"),
        ("GroupNorm", [(2, 3, 5, 8), (8,), (8,)], {"groups": 2, "activation": 2}, "activation 2: 0 is none"),
    ],
)  # fmt: skip
def test_errors_name_the_operand_and_the_value(op: str, shapes: list, how: dict, message: str) -> None:
    arrays = [random(*s) for s in shapes]
    with pytest.raises(UnsupportedError, match=message):
        support.compile_model(build(op, arrays, (np.float32,), **how))
    if not how:  # what depends on the run is said then
        with pytest.raises((InputError, LimitError, UnsupportedError)):
            support.run_model(build(op, arrays, (np.float32,), symbolic=True), *arrays)
