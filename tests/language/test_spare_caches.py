"""A text that has ended leaves its caches in place to the next text, and a prompt of a known length needs no new plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.api.language import decoder
from onnxruntime_ep_wgpu.errors import DeviceLostError
from onnxruntime_ep_wgpu.runtime import plans, temps
from tests.plugin import models
from tests.plugin.loss import device_of, lose

from .models import Decoder, write

CONTEXT = 763  # a device of these tests alone
PROMPTS = [[5, 77, 130, 9, 200], [8, 61, 12, 13, 14], [9, 61, 100]]
HOW: dict[str, Any] = {"max_new_tokens": 6, "ends": ()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(Decoder(layers=2), tmp_path_factory.mktemp("models") / "decoder")


def fresh(folder: Path, *prompts: list[int]) -> list[tuple[int, int]]:
    """The ids by a model without earlier texts."""
    return list(webgpu_ep.LanguageModel(folder).tokens(prompts, **HOW))


def kept(model: webgpu_ep.LanguageModel) -> dict[int, list[int]]:
    """The addresses of the spare caches, by batch size."""
    return {batch: [it.data_ptr() for it in them.values()] for batch, them in model.decoder.spare_caches._kept.items()}


def test_the_next_text_of_the_batch_size_takes_them(folder: Path) -> None:
    model = webgpu_ep.LanguageModel(folder)
    assert list(model.tokens([PROMPTS[0]], **HOW)) == fresh(folder, PROMPTS[0])
    first = kept(model)
    for prompt in PROMPTS:
        assert list(model.tokens([prompt], **HOW)) == fresh(folder, prompt)
        assert kept(model) == first and [*first] == [1]


def test_those_of_another_batch_size_are_freed(folder: Path) -> None:
    model = webgpu_ep.LanguageModel(folder)
    list(model.tokens([PROMPTS[0]], **HOW))
    text = model.tokens(PROMPTS[:2], **HOW)
    begun = next(text)
    assert not kept(model)
    assert [begun, *text] == fresh(folder, *PROMPTS[:2]) and [*kept(model)] == [2]


def test_texts_at_the_same_time_have_caches_of_their_own(folder: Path) -> None:
    model = webgpu_ep.LanguageModel(folder)
    list(model.tokens([PROMPTS[2]], **HOW))
    texts = [model.tokens([it], **HOW) for it in PROMPTS[:2]]
    found = [*zip(*texts, strict=True)]
    assert [[*it] for it in zip(*found, strict=True)] == [fresh(folder, it) for it in PROMPTS[:2]]
    assert [*kept(model)] == [1]


def test_a_text_that_is_left_gives_them_back(folder: Path) -> None:
    model = webgpu_ep.LanguageModel(folder)
    list(model.tokens([PROMPTS[0]], **HOW))
    first = kept(model)
    text = model.tokens([PROMPTS[1]], **HOW)
    next(text)
    text.close()
    assert kept(model) == first
    assert list(model.tokens([PROMPTS[0]], **HOW)) == fresh(folder, PROMPTS[0])


def test_those_of_a_lost_device_are_not_used(folder: Path) -> None:
    model = webgpu_ep.LanguageModel(folder, deviceId=CONTEXT)
    beside = webgpu_ep.session(models.square(), deviceId=CONTEXT)
    wanted = list(model.tokens([PROMPTS[0]], **HOW))
    lose(device_of(CONTEXT))
    x = np.ones((5, 8), np.float32)
    with pytest.raises(DeviceLostError):
        beside.run(None, {"x": x})
    beside.run(None, {"x": x})  # on the new device
    assert list(model.tokens([PROMPTS[0]], **HOW)) == wanted


def test_a_prompt_of_a_known_length_needs_no_new_plan(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Steps of decoding share no buffers with prompts, as at real sizes.
    monkeypatch.setattr(temps, "SMALL", 0)
    monkeypatch.setattr(temps, "LARGER", 1)
    made: list[Any] = []
    plan = plans.Plan
    monkeypatch.setattr(plans, "Plan", lambda *given, **more: made.append(given) or plan(*given, **more))

    def of_the_third_text(**options: Any) -> int:
        model = webgpu_ep.LanguageModel(folder, **options)
        for _ in range(3):
            made.clear()
            list(model.tokens([PROMPTS[0]], **HOW))
        return len(made)

    assert of_the_third_text() == 0
    assert of_the_third_text(sessionBufferPoolGenerations=0) > 0


def test_buffers_stay_for_eight_runs_unless_an_option_says_otherwise(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    opened = decoder.session_of
    monkeypatch.setattr(decoder, "session_of", lambda *them: given.append(them[-1]) or opened(*them))
    webgpu_ep.LanguageModel(folder)
    webgpu_ep.LanguageModel(folder, sessionBufferPoolGenerations=3)
    assert [it["sessionBufferPoolGenerations"] for it in given] == [8, 3]
