"""Attention: heads in their own axis or merged, groups of heads, masks of every shape, caches, rows that see no key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import support

from .compare import check, check_model, expected, model, random

CLOSE = {"rtol": 1e-4, "atol": 1e-5, "opset": 24}


def _inputs(
    heads: int, keys: int, dtype: Any = np.float32, queries: int = 5, total: int = 7, size: int = 8
) -> list[np.ndarray]:
    shapes = [(2, heads, queries, size), (2, keys, total, size), (2, keys, total, 3)]
    return [random(*s, seed=k, dtype=dtype) for k, s in enumerate(shapes)]


@pytest.mark.costly
@pytest.mark.parametrize("heads", [(3, 3), (6, 2), (4, 1)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("causal", [0, 1])
def test_heads_and_groups_of_heads(heads: tuple[int, int], dtype: type, causal: int) -> None:
    check("Attention", *_inputs(*heads, dtype=dtype), is_causal=causal, **CLOSE)


@pytest.mark.costly
@pytest.mark.parametrize("symbolic", [False, True])
def test_merged_heads(symbolic: bool) -> None:
    q, k, v = (np.ascontiguousarray(x.transpose(0, 2, 1, 3).reshape(2, x.shape[2], -1)) for x in _inputs(4, 2))
    check("Attention", q, k, v, q_num_heads=4, kv_num_heads=2, symbolic=symbolic, **CLOSE)


@pytest.mark.costly
@pytest.mark.parametrize("shape", [(5, 7), (1, 7), (2, 1, 5, 7), (2, 3, 5, 7), (1, 3, 1, 7)], ids=str)
@pytest.mark.parametrize("kind", [np.float32, np.bool_])
@pytest.mark.parametrize("causal", [0, 1])
def test_masks_broadcast(shape: tuple[int, ...], kind: type, causal: int) -> None:
    mask = random(*shape, seed=9, dtype=kind)
    if kind is np.bool_:
        mask[..., 0] = True
    inputs, how = _inputs(3, 3), {"is_causal": causal, **CLOSE}
    # The CPU provider wants a row of the mask per query.
    whole = np.ascontiguousarray(np.broadcast_to(mask, (*mask.shape[:-2], 5, 7)))
    want = expected(
        model("Attention", [*inputs, whole], is_causal=causal, opset=24),
        dict(zip(("x0", "x1", "x2", "x3"), [*inputs, whole], strict=True)),
    )
    check("Attention", *inputs, mask, want=want, **how)


@pytest.mark.every_case
def test_a_query_that_sees_no_key_gives_zeros() -> None:
    q, k, v = _inputs(3, 3)
    mask = np.ones((5, 7), bool)
    mask[2] = False
    got = support.run_model(model("Attention", [q, k, v, mask], opset=24), q, k, v, mask)[0]
    assert (got[:, :, 2] == 0).all()
    assert np.isfinite(got).all()


@pytest.mark.costly
@pytest.mark.parametrize("causal", [0, 1])
def test_past_keys_and_values(causal: int) -> None:
    q, k, v = _inputs(4, 2)
    past = [random(2, 2, 6, 8, seed=5), random(2, 2, 6, 3, seed=6)]
    check("Attention", q, k, v, None, *past, outputs=[np.float32] * 3, is_causal=causal, **CLOSE)


@pytest.mark.costly
@pytest.mark.parametrize("softcap", [0.0, 2.0])
@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_scores_at_every_stage(softcap: float, mode: int) -> None:
    mask = random(5, 7, seed=9)
    past = [random(2, 3, 0, 8), random(2, 3, 0, 3)]
    check(
        "Attention",
        *_inputs(3, 3),
        mask,
        *past,
        outputs=[np.float32] * 4,
        softcap=softcap,
        qk_matmul_output_mode=mode,
        **CLOSE,
    )


@pytest.mark.costly
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("rank", [3, 4])
def test_heads_whose_size_a_run_decides(rank: int, causal: int, dtype: type) -> None:
    arrays = [random(2, 3, steps, 8, seed=steps, dtype=dtype) for steps in (5, 6, 6)]
    how: dict[str, Any] = {"opset": 23, "is_causal": causal, "softcap": 2.0}
    if rank == 3:
        arrays = [a.transpose(0, 2, 1, 3).reshape(2, -1, 24) for a in arrays]
        how |= {"q_num_heads": 3, "kv_num_heads": 3}
    built = model("Attention", arrays, **how)
    for value in built.graph.input:
        value.type.tensor_type.shape.dim[rank - 1].dim_param = "size"
    check_model(built, arrays, rtol=1e-4, atol=1e-5)


@pytest.mark.costly
@pytest.mark.parametrize("op", ["MultiHeadAttention", "GroupQueryAttention", "Attention"])
def test_heads_of_microsoft_whose_size_a_run_decides(op: str) -> None:
    parts = [random(1, 2, 24, seed=k) for k in range(3)]
    given: dict[str, tuple[list[np.ndarray | None], dict[str, Any]]] = {
        "MultiHeadAttention": (parts, {"num_heads": 3}),
        "Attention": ([parts[0], random(24, 72, seed=3), random(72, seed=4)], {"num_heads": 3}),
        "GroupQueryAttention": (
            [*parts, None, None, np.array([1], np.int32), np.array(2, np.int32)],
            {"num_heads": 3, "kv_num_heads": 3, "constants": [6], "outputs": [np.float32] * 3},
        ),
    }
    arrays, how = given[op]
    check(op, *arrays, domain="com.microsoft", symbolic=True, rtol=1e-4, atol=1e-5, **how)
