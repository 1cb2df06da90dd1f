"""Caches that a model makes longer have the rows that are asked for: the last ones, behind zeros where there are fewer."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.api.language.kept_rows import KEPT, keep_rows
from onnxruntime_ep_wgpu.api.language.state import round_rows

from .models import Decoder, growing_graph_of

CACHES = {f"past_key_values.0.{it}": f"present.0.{it}" for it in ("key", "value")}


@pytest.mark.costly
@pytest.mark.parametrize("batch", [1, 2])
def test_as_many_rows_as_asked_for(batch: int) -> None:
    decoder = Decoder(layers=1, groups=4)
    before, after = growing_graph_of(decoder), growing_graph_of(decoder)
    keep_rows(after, CACHES)
    cpu = ort.InferenceSession(before.SerializeToString(), providers=["CPUExecutionProvider"])
    cpu_after = ort.InferenceSession(after.SerializeToString(), providers=["CPUExecutionProvider"])
    ours = webgpu_ep.session(after.SerializeToString())
    random = np.random.default_rng(0)
    for rows, steps, kept in (
        (0, 5, 5),
        (0, 5, 8),
        (8, 1, 8),
        (8, 1, 8),
        (8, 3, 2),
        (7, 1, 20),
        (20, 4, 24),
        (3, 2, 4),
    ):
        feeds = {name: random.standard_normal((batch, 4, rows, decoder.size)).astype(np.float32) for name in CACHES}
        feeds["input_ids"] = random.integers(3, 200, (batch, steps))
        feeds["position_ids"] = np.broadcast_to(np.arange(steps) + rows, (batch, steps))
        feeds["attention_mask"] = np.ones((batch, rows + steps), np.int64)
        logits, *caches = cpu.run(None, feeds)
        wanted = [np.pad(it, ((0, 0), (0, 0), (kept, 0), (0, 0)))[:, :, -kept:] for it in caches]
        for session in (cpu_after, ours):
            got = session.run(None, feeds | {KEPT: np.zeros(kept, np.uint8)})
            np.testing.assert_allclose(got[0], logits, rtol=1e-3, atol=1e-4)
            for mine, theirs in zip(got[1:], wanted, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_rounded_rows_are_few_more_and_seldom_others() -> None:
    rounded = [round_rows(n) for n in range(1, 3000)]
    assert all(n <= rows < max(2 * n, 65, n + 256) for n, rows in enumerate(rounded, 1))
    assert len(set(rounded)) < 16
