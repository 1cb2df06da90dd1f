"""Linear attention and the causal convolution before it, beside the CPU provider in float32, and in pieces beside a whole."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest

from onnxruntime_ep_wgpu.errors import UnsupportedError
from tests import support
from tests.ops.compare import expected, random
from tests.ops.test_transformer_norms import build

F32, F16 = np.float32, np.float16
RULES = ("linear", "gated", "delta", "gated_delta")


def partly(model: onnx.ModelProto, axes: tuple[int, ...]) -> onnx.ModelProto:
    """The model with these axes of its first inputs (of three axes) unknown when it is compiled."""
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        for axis in axes if len(dims) == 3 and dims[1].dim_value != 1 else ():
            dims[axis].dim_param = f"{value.name}_{axis}"
    return model


def check(
    op: str, arrays: list[np.ndarray | None], dtype: Any = F32, symbolic: tuple[int, ...] = (), **how: Any
) -> list[np.ndarray]:
    """Runs the node in `dtype` beside the CPU provider in float32; `symbolic` axes are known in a run."""
    while arrays[-1] is None:
        arrays.pop()
    given = [None if a is None else a.astype(dtype) for a in arrays]
    exact = [None if a is None else a.astype(F32) for a in given]
    want = expected(build(op, exact, (F32, F32), **how), {f"x{k}": a for k, a in enumerate(exact) if a is not None})
    got = support.run_model(
        partly(build(op, given, (dtype, dtype), **how), symbolic), *(a for a in given if a is not None)
    )
    tolerance = 2e-5 if dtype is F32 else 2e-3
    for ours, theirs in zip(got, want, strict=True):
        assert ours.dtype == dtype
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(
            ours.astype(F32), theirs, rtol=tolerance, atol=tolerance * max(1, np.abs(theirs).max())
        )
    return got


# ---- CausalConvWithState


@pytest.mark.costly
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("dilation", [1, 2])
def test_causal_convolution(last: int, dilation: int) -> None:
    batch, channels, taps = 2, 6, 4
    length = (taps - 1) * dilation
    for tokens, bias, past in itertools.product((1, 2, 9), (0, 1), (0, 1)):
        x = random(*((batch, tokens, channels) if last else (batch, channels, tokens)))
        state = (batch, length, channels) if last else (batch, channels, length)
        arrays = [x, random(channels, 1, taps, seed=1), random(channels, seed=2) if bias else None]
        arrays += [random(*state, seed=3) if past else None]
        how = {"activation": "silu" if bias else "none", "channels_last": last, "dilation": dilation}
        check("CausalConvWithState", arrays, symbolic=(0, 1 if last else 2) if tokens == 9 and not past else (), **how)


def test_causal_convolution_in_halves() -> None:
    check("CausalConvWithState", [random(2, 6, 5), random(6, 1, 3, seed=1), None, random(2, 6, 2, seed=2)], F16)


def test_a_convolution_without_a_state_as_a_result() -> None:
    arrays = [random(1, 4, 5), random(4, 1, 1, seed=1)]
    model = build("CausalConvWithState", arrays, (F32,))
    np.testing.assert_allclose(support.run_model(model, *arrays)[0], arrays[0] * arrays[1][:, 0], rtol=1e-6)


# ---- LinearAttention


def operands(rule: str, tokens: int, heads: tuple[int, int], keys: int = 8, values: int = 6, *, batch: int = 2,
             per_key: bool = True, past: int = -1) -> list[np.ndarray | None]:  # fmt: skip
    q, kv = heads
    key = random(batch, tokens, kv, keys, seed=1)
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    out = [random(batch, tokens, q * keys), key.reshape(batch, tokens, -1), random(batch, tokens, kv * values, seed=2)]
    state = (batch, kv, keys, values)
    out.append(None if past < 0 else random(*((past, *state) if past else state), seed=3))
    gated, delta = "gated" in rule, "delta" in rule
    decay = -np.abs(random(batch, tokens, kv * keys if per_key else kv, seed=4))
    out.append(decay if gated else None)
    out.append(1 / (1 + np.exp(-random(batch, tokens, kv, seed=5))) if delta else None)
    return out


@pytest.mark.costly
@pytest.mark.parametrize("rule", RULES)
def test_rules(rule: str) -> None:
    for tokens, per_key, past in ((1, True, 0), (7, False, -1), (7, True, 0)):
        arrays = operands(rule, tokens, (2, 2), per_key=per_key, past=past)
        check("LinearAttention", arrays, update_rule=rule, q_num_heads=2, kv_num_heads=2)


@pytest.mark.costly
@pytest.mark.parametrize("heads", [(4, 2), (3, 1)])
def test_heads_that_share_a_state(heads: tuple[int, int]) -> None:
    arrays = operands("gated_delta", 5, heads, past=0)
    check("LinearAttention", arrays, q_num_heads=heads[0], kv_num_heads=heads[1], scale=0.3, symbolic=(1,))


@pytest.mark.costly
def test_more_states_than_queries() -> None:
    arrays = operands("gated_delta", 5, (2, 4), past=0)
    check("LinearAttention", arrays, q_num_heads=2, kv_num_heads=4)


def test_halves_and_wide_heads() -> None:
    arrays = operands("gated_delta", 3, (2, 1), keys=128, values=70, past=0)
    check("LinearAttention", arrays, F16, q_num_heads=2, kv_num_heads=1)


def check_window(op: str, arrays: list[np.ndarray | None], past: int, axis: int, **how: Any) -> None:
    """A window of states, which the CPU provider lacks: each is the state of a run that ends there, or zeros before the first.

    Inputs of three axes but the weights have tokens along `axis`; input `past` is the state to go on from.
    """
    window, tokens = 3, arrays[0].shape[axis]
    start = arrays[past]
    given = [np.stack([start + 1, start - 1, start]) if k == past else a for k, a in enumerate(arrays)]
    got = support.run_model(
        build(op, given, (F32, F32), state_window=window, **how), *(a for a in given if a is not None)
    )
    for slot in range(window):
        count = tokens - window + slot + 1
        if count <= 0:
            assert not got[1][slot].any()
            continue
        cut = [
            a.take(range(count), axis) if a is not None and k != past and a.ndim == 3 and a.shape[axis] == tokens else a
            for k, a in enumerate(arrays)
        ]
        want = expected(build(op, cut, (F32, F32), **how), {f"x{k}": a for k, a in enumerate(cut) if a is not None})
        np.testing.assert_allclose(got[1][slot], want[1], rtol=2e-5, atol=2e-5)
        if count == tokens:
            np.testing.assert_allclose(got[0], want[0], rtol=2e-5, atol=2e-5)


@pytest.mark.costly
def test_the_last_states() -> None:
    for tokens in (1, 2, 6):
        arrays = operands("gated_delta", tokens, (2, 2), past=0)
        check_window("LinearAttention", arrays, 3, 1, q_num_heads=2, kv_num_heads=2)
        x, weight, start = random(2, 4, tokens), random(4, 1, 5, seed=1), random(2, 4, 4, seed=2)
        check_window("CausalConvWithState", [x, weight, None, start], 3, 2)


@pytest.mark.costly
def test_a_long_sequence_is_that_of_its_parts() -> None:
    """Dispatches that go on from each other, and runs that do."""
    heads, tokens = {"q_num_heads": 1, "kv_num_heads": 1}, 700
    arrays = [a for a in operands("gated_delta", tokens, (1, 1), keys=32, values=4, batch=1, past=0) if a is not None]
    model = partly(build("LinearAttention", arrays, (F32, F32), **heads), (1,))
    runner = support.Runner(support.compile_model(model))
    whole, last = runner(*arrays)
    state, parts = arrays[3], []
    for begin, end in ((0, 1), (1, 400), (400, tokens)):
        cut = [a[:, begin:end] for a in arrays]
        cut[3] = state
        y, state = runner(*cut)
        parts.append(y)
    np.testing.assert_allclose(np.concatenate(parts, 1), whole, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state, last, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("op", "change", "message"),
    [
        ("LinearAttention", {"update_rule": "other"}, "update_rule='other' is not one of 'linear'"),
        ("LinearAttention", {"kv_num_heads": 3}, r"2 heads of queries and 3 of keys"),
        ("LinearAttention", {"state_window": 9}, "state_window 9: 0 to 8"),
        ("CausalConvWithState", {"ndim": 2}, "ndim 2"),
        ("CausalConvWithState", {"activation": "relu"}, "activation='relu'"),
        ("CausalConvWithState", {"dilation": 0}, "dilation 0"),
    ],
)
def test_errors_name_the_value(op: str, change: dict[str, Any], message: str) -> None:
    if op == "LinearAttention":
        arrays = operands("gated_delta", 2, (2, 2))
        how: dict[str, Any] = {"q_num_heads": 2, "kv_num_heads": 2} | change
    else:
        arrays, how = [random(2, 4, 5), random(4, 1, 3)], change
    model: onnx.ModelProto = build(op, arrays, (F32, F32), **how)
    with pytest.raises(UnsupportedError, match=message):
        support.compile_model(model)
