"""Which ids a sampler takes, beside the definition in numpy, for logits and settings of any kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxruntime_ep_wgpu.api.language.sampler import CANDIDATES, NOTHING, Sampling, model_of
from onnxruntime_ep_wgpu.errors import InputError
from onnxruntime_ep_wgpu.program.program import Storage
from tests import support

VOCABULARY, ROWS = 50, 16
SETTINGS = [
    Sampling(), Sampling(temperature=1.0), Sampling(temperature=0.5, top_k=7), Sampling(temperature=2.0, top_p=0.6),
    Sampling(temperature=1.0, top_k=20, top_p=0.8), Sampling(temperature=1.5, min_p=0.2), Sampling(repetition_penalty=1.7),
    Sampling(temperature=0.9, top_k=30, top_p=0.9, min_p=0.05, repetition_penalty=1.3),
]  # fmt: skip


def wanted(settings: Sampling, logits: np.ndarray, uniform: float, seen: np.ndarray) -> set[int]:
    """The id at a place in the sums of probabilities; all whose edge is as near as rounding."""
    x = logits.astype(np.float64)
    if settings.remembers:
        less = np.where(x > 0, x / settings.repetition_penalty, x * settings.repetition_penalty)
        x = np.where(seen > 0.5, less, x)
    if settings.is_greedy:
        return {int(x.argmax())}
    x = x / settings.temperature
    ordered = bool(settings.top_k) or settings.top_p < 1
    order = np.argsort(-x, kind="stable") if ordered else np.arange(len(x))
    if ordered:
        order = order[: settings.top_k or CANDIDATES]
    p = np.exp(x[order] - x.max())
    p /= p.sum()
    if settings.min_p:
        p = np.where(p < settings.min_p * p.max(), 0, p)
    if settings.top_p < 1:
        p = np.where(np.cumsum(p) - p < settings.top_p * p.sum(), p, 0)
    sums = np.cumsum(p)
    return {int(order[(sums > place * sums[-1]).argmax()]) for place in (uniform - 1e-5, uniform, uniform + 1e-5)}


@pytest.mark.costly
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("vocabulary", [VOCABULARY, 5003])
def test_ids_are_those_of_the_definition(settings: Sampling, half: bool, vocabulary: int) -> None:
    make, batch = np.random.default_rng(1), 40
    logits = (make.standard_normal((batch, 1, vocabulary)) * 3).astype(np.float16 if half else np.float32)
    lengths = make.integers(1, ROWS - 1, batch)
    uniform = make.random((batch, 1), np.float32)
    seen = (make.random((batch, vocabulary)) < 0.3).astype(np.float32)
    model = model_of(settings, 10 if half else 1, vocabulary)
    feeds = {"logits": logits, "lengths": lengths, "columns": np.arange(ROWS), "uniform": uniform, "seen": seen}
    got = support.run_model(model, *(feeds[it.name] for it in model.graph.input))
    found = dict(zip([it.name for it in model.graph.output], got, strict=True))
    for row in range(batch):
        token = int(found["ids"][row, 0])
        assert token in wanted(settings, logits[row, 0], float(uniform[row, 0]), seen[row])
        if settings.remembers:
            seen[row, token] = 1
    if settings.remembers:
        np.testing.assert_array_equal(found["seen_next"], seen)
    np.testing.assert_array_equal(found["lengths_next"], lengths + 1)
    np.testing.assert_array_equal(found["positions"][:, 0], lengths)
    np.testing.assert_array_equal(found["mask"], np.arange(ROWS)[None] <= lengths[:, None])


@pytest.mark.parametrize("settings", [SETTINGS[0], SETTINGS[4]], ids=str)
def test_a_logit_that_is_not_a_number_is_seen(settings: Sampling) -> None:
    logits = np.zeros((2, 1, VOCABULARY), np.float32)
    logits[1, 0, 30] = np.nan
    model = model_of(settings, 1, VOCABULARY)
    more = [] if settings.is_greedy else [np.full((2, 1), 0.5, np.float32)]
    ids = support.run_model(model, logits, np.ones(2, np.int64), np.arange(ROWS), *more)[0]
    assert ids[0, 0] >= 0 and ids[1, 0] == -1


@pytest.mark.parametrize(
    "wrong", [{"temperature": -1}, {"top_p": 0}, {"min_p": 2}, {"top_k": -1}, {"repetition_penalty": 0}], ids=str
)
def test_a_setting_out_of_range_is_named(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(wrong))} is "):
        Sampling(**wrong)


@pytest.mark.parametrize(
    "more", [{}, {"top_k": 7}, {"top_p": 0.6}, {"min_p": 0.1}, {"repetition_penalty": 1.7}], ids=str
)
@pytest.mark.parametrize("temperature", [0, 1e-400, 1e-60, 1e-45, 1e-38, 1e-31, 1e-30, 1e-20, 1e-6, 1e-3])
def test_the_colder_the_likelier(temperature: float, more: dict[str, Any]) -> None:
    for largest in (20.0, 1e4, 3e38):
        logits = np.random.default_rng(4).permuted(
            np.linspace(-largest, largest, VOCABULARY, dtype=np.float32)[None], axis=1
        )
        assert _id(Sampling(temperature=temperature, **more), logits) == logits.argmax(), largest


@pytest.mark.parametrize("settings", [*SETTINGS, Sampling(temperature=1e300), Sampling(temperature=np.inf)], ids=str)
def test_what_is_infinitely_likely_or_unlikely(settings: Sampling) -> None:
    logits = np.full((1, VOCABULARY), -np.inf, np.float32)
    logits[0, 30] = -5
    assert _id(settings, logits) == 30
    logits[0, 31] = np.inf
    assert _id(settings, logits) == 31
    assert _id(settings, np.full_like(logits, -np.inf)) == NOTHING


@pytest.mark.parametrize("penalty", [1e30, 1e300, np.inf])
def test_no_penalty_is_too_large(penalty: float) -> None:
    logits = np.linspace(-5, 5, VOCABULARY, dtype=np.float32)[None]
    logits[0, [7, 10]] = 0.5, 0
    all_but = (np.arange(VOCABULARY) != 7).astype(np.float32)[None]
    for temperature in (0, 1e-3):
        settings = Sampling(temperature=temperature, repetition_penalty=penalty)
        assert _id(settings, logits, all_but) == 7
        assert _id(settings, logits, 1 - all_but) == VOCABULARY - 1


def test_a_number_that_no_float_can_be_is_named_or_the_largest() -> None:
    with pytest.raises(InputError, match="min_p is 1000"):
        Sampling(min_p=10**400)
    assert 0 <= _id(Sampling(temperature=10**400), np.zeros((1, VOCABULARY), np.float32)) < VOCABULARY


def _id(settings: Sampling, logits: np.ndarray, seen: np.ndarray | None = None) -> int:
    """The id that is picked of logits (1, vocabulary)."""
    model = model_of(settings, 1, VOCABULARY)
    feeds = {"logits": logits[:, None], "lengths": np.ones(1, np.int64), "columns": np.arange(ROWS)}
    feeds |= {"uniform": np.full((1, 1), 0.4, np.float32), "seen": np.zeros_like(logits) if seen is None else seen}
    return int(support.run_model(model, *(feeds[it.name] for it in model.graph.input))[0][0, 0])


@pytest.mark.parametrize("kind", [1, 10])
def test_the_likeliest_is_picked_of_logits_where_they_are(kind: int) -> None:
    """They are read once, and nothing of their size is stored."""
    program = support.compile_model(model_of(Sampling(), kind, VOCABULARY))
    temps = [it for it in program.values if it.storage is Storage.TEMP]
    assert not [it for it in temps if VOCABULARY in it.shape]
    (logits,) = (k for k in program.inputs if program.values[k].name == "logits")
    assert sum(logits in it.args for it in program.dispatches) == 1
