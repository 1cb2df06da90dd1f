"""Gates as ONNX Runtime fuses them, beside the CPU provider in float32: types, odd sizes, NaN, infinity, errors with values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxruntime_ep_wgpu.errors import UnsupportedError
from tests import support
from tests.ops.compare import random
from tests.ops.test_transformer_norms import HALF, TYPES, build, check

F32 = np.float32


def strange(*shape: int, seed: int) -> np.ndarray:
    """Random numbers, the first of which are infinity and NaN."""
    x = random(*shape, seed=seed)
    x.flat[:3] = [np.inf, np.nan, -np.inf][: x.size]
    return x


@TYPES
def test_gated_add(dtype: Any) -> None:
    for shape in ((3, 5, 7), (0, 5), (4,)):
        check(
            "GatedAdd",
            [strange(*shape, seed=0), random(*shape, seed=1), random(*shape[:-1], 1, seed=2)],
            (dtype,),
            dtype=dtype,
        )
    check("GatedAdd", [random(3, 5), random(3, 5, seed=1), random(3, 1, seed=2)], (dtype,), dtype=dtype, symbolic=True)


@TYPES
@pytest.mark.parametrize("activation", ["silu", "swish", "sigmoid"])
def test_gated_rms_norm(activation: str, dtype: Any) -> None:
    for heads, size, symbolic in ((1, 7, False), (3, 5, True)):
        x, gate = random(2, 3, heads * size), strange(2, 3, heads * size, seed=2)
        gate.flat[2] = 9  # silu(-inf) is NaN there, and 0 here and in a limit
        how = {"activation": activation, "epsilon": 1e-3, "symbolic": symbolic}
        check("GatedRMSNorm", [x, random(size, seed=1), gate], (dtype,), dtype=dtype, **how)


@TYPES
def test_linear_attention_gate(dtype: Any) -> None:
    a, b = strange(2, 5, 3, seed=0), strange(2, 5, 3, seed=1)
    numbers = [random(3, seed=k) for k in (2, 3)]
    if dtype is F32:
        check("LinearAttentionGate", [a, *numbers, b], (F32, F32))
        check("LinearAttentionGate", [20 * a, *numbers], (F32,), symbolic=True)
        return
    exact = np.asarray(a.astype(dtype), F32), np.asarray(b.astype(dtype), F32)
    z = exact[0] + numbers[0]
    want = [numbers[1] * (np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))), 1 / (1 + np.exp(-exact[1]))]
    got = support.run_model(
        build("LinearAttentionGate", [a.astype(dtype), *numbers, b.astype(dtype)], (dtype, dtype)),
        a.astype(dtype), *numbers, b.astype(dtype),
    )  # fmt: skip
    for ours, theirs in zip(got, want, strict=True):
        assert ours.dtype == dtype
        np.testing.assert_allclose(ours.astype(F32), theirs, rtol=2e-3 if dtype is HALF else 1.6e-2, atol=1e-2)


@TYPES
@pytest.mark.parametrize("symbolic", [False, True])
def test_engram_gate(symbolic: bool, dtype: Any) -> None:
    for batch, steps, connections, size in ((1, 1, 1, 1), (2, 3, 4, 37)):
        key, query = (random(batch, steps, connections, size, seed=k) for k in (0, 1))
        value, scales = random(batch, steps, size, seed=2), [random(connections, size, seed=k) for k in (3, 4, 5)]
        check("EngramGate", [key, query, value, *scales], (dtype, dtype), dtype=dtype, symbolic=symbolic)
        check("EngramGate", [key, query, value, *scales[:2]], (dtype,), dtype=dtype, symbolic=symbolic)


@pytest.mark.parametrize("dtype", [F32, HALF])
@pytest.mark.parametrize(("interleaved", "layout"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_rotation_by_time_height_and_width(interleaved: int, layout: int, dtype: Any) -> None:
    how = {"interleaved": interleaved, "mrope_layout": layout}
    angles = [np.cos(random(11, 8, seed=1)), np.sin(random(11, 8, seed=1))]
    places = np.random.default_rng(0).integers(0, 11, (3, 2, 5))
    for sections in ([3, 3, 2], [8, 0, 0], [2, 5, 1]):
        for x, symbolic in ((random(2, 5, 48), False), (random(2, 3, 5, 16), True)):
            check("MRotaryEmbedding", [x, places, *angles], (dtype,), dtype=dtype, symbolic=symbolic,
                  mrope_section=sections, num_heads=3, **how)  # fmt: skip
    partly = {"num_heads": 3, "rotary_embedding_dim": 16, "mrope_section": [3, 3, 2], **how}
    check("MRotaryEmbedding", [random(2, 5, 60), places, *angles], (dtype,), dtype=dtype, **partly)


@pytest.mark.parametrize(
    ("op", "shapes", "how", "text"),
    [
        ("GatedAdd", [(3, 4), (3, 4), (3, 4)], {}, r"gate .*\[3, 4\] does not have the shape \[3, 1\]"),
        ("GatedAdd", [(3, 4), (3, 4), (3, 5), (5, 1)], {}, "gate_weight"),
        ("GatedRMSNorm", [(3, 7), (2,), (3, 7)], {}, "7 columns do not divide into groups of 2"),
        ("LinearAttentionGate", [(1, 2, 3), (4,), (3,)], {}, r"dt_bias .*\[4\] does not have the shape \[3\]"),
        ("EngramGate", [(1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 4), (3, 4), (4, 3)], {}, r"query_norm_scale .*\[4, 3\]"),
    ],
)
def test_what_does_not_fit_is_named(op: str, shapes: list[tuple[int, ...]], how: dict[str, Any], text: str) -> None:
    arrays = [np.zeros(it, F32) for it in shapes]
    with pytest.raises(UnsupportedError, match=text):
        support.run_model(build(op, arrays, (F32,), **how), *arrays)
