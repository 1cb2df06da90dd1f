"""A step of a decoder and what picks from its logits, which C code submits as one: the text is the same, whatever comes between."""

from __future__ import annotations

import gc
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.api.language import picker
from onnxruntime_ep_wgpu.api.language.state import State
from onnxruntime_ep_wgpu.plugin import memo
from onnxruntime_ep_wgpu.plugin.chained import ChainedRuns
from onnxruntime_ep_wgpu.trace import Recorder
from tests import patience
from tests.plugin.loss import device_of

from .models import Decoder, write, write_growing

KINDS: dict[str, Callable[[Path], Path]] = {
    "in place": lambda folder: write(Decoder("int4-fp32", layers=1), folder),
    "growing": lambda folder: write_growing(Decoder(layers=1, groups=4), folder),
}
PROMPTS = [[5, 77, 130], [40, 41, 42]]
HOWS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "drawn": {"temperature": 0.9, "top_k": 5, "seed": 3},
    "penalty": {"temperature": 3.0, "seed": 5, "repetition_penalty": 1.3},
}
COUNT = 100
LOST = """
import sys

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.errors import DeviceLostError
from onnxruntime_ep_wgpu.plugin.chained import ChainedRuns
from tests.plugin.loss import device_of, lose

submit, done = ChainedRuns.submit, []
ChainedRuns.submit = lambda self: (done.append(submit(self) and self._words.count), done[-1] is not False)[1]
model = webgpu_ep.LanguageModel(sys.argv[1])
wanted = list(model.tokens([[5, 77, 130]], max_new_tokens=40, ends=()))
for before in (20, 21):
    text = model.tokens([[5, 77, 130]], max_new_tokens=40, ends=())
    for _ in range(before):
        next(text)
    assert done[-1]
    lose(device_of(0))
    try:
        list(text)
    except DeviceLostError:
        pass
    else:
        raise AssertionError("nothing met the loss")
    assert list(model.tokens([[5, 77, 130]], max_new_tokens=40, ends=())) == wanted and done[-1]
"""


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return KINDS[request.param](tmp_path_factory.mktemp("model") / "model")


@pytest.fixture(scope="module")
def model(folder: Path) -> webgpu_ep.LanguageModel:
    return webgpu_ep.LanguageModel(folder)


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether C code did each step that it was asked for."""
    submit, found = ChainedRuns.submit, list[bool]()

    def noted(self: ChainedRuns) -> bool:
        done = submit(self)
        if self._words.count:  # which is no picked id alone
            found.append(done)
        return done

    monkeypatch.setattr(ChainedRuns, "submit", noted)
    return found


def tokens(model: webgpu_ep.LanguageModel, count: int = COUNT, **how: Any) -> Iterator[tuple[int, int]]:
    return model.tokens(PROMPTS, max_new_tokens=count, ends=(), **how)


def unchained(model: webgpu_ep.LanguageModel, how: dict[str, Any], count: int = COUNT) -> list[tuple[int, int]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(picker, "chain", lambda *_: None)
        return list(tokens(model, count, **how))


@pytest.mark.parametrize("how", HOWS.values(), ids=HOWS)
def test_c_code_does_nearly_all_steps_and_the_text_is_the_same(
    model: webgpu_ep.LanguageModel, how: dict[str, Any], submitted: list[bool]
) -> None:
    assert list(tokens(model, **how)) == unchained(model, how)
    assert all(submitted) and len(submitted) > COUNT - 30


def test_with_graph_capture_texts_are_the_same_and_c_code_does_their_steps(
    folder: Path, model: webgpu_ep.LanguageModel, submitted: list[bool]
) -> None:
    how = HOWS["drawn"]
    capturing = webgpu_ep.LanguageModel(folder, enableGraphCapture=1)
    wanted = list(tokens(model, **how))
    submitted.clear()
    for _ in range(2):
        assert list(tokens(capturing, **how)) == wanted
    assert all(submitted) and len(submitted) > 2 * (COUNT - 30)


def test_a_steady_token_is_one_submission_and_few_calls(model: webgpu_ep.LanguageModel) -> None:
    text = tokens(model)
    device = device_of(0)
    for _ in range(30):
        next(text)
    before, calls = Counter(device.counters), list[tuple[str, str]]()

    def noted(frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            calls.append((frame.f_code.co_filename, getattr(argument, "__name__", frame.f_code.co_name)))

    sys.setprofile(noted)
    try:
        for _ in range(2 * 8):  # of two sequences
            next(text)
    finally:
        sys.setprofile(None)
    done = Counter(device.counters) - before
    assert (done["submits"], done["downloads"], done["uploads"]) == (8, 8, 0)
    assert len(calls) < 8 * 40, calls
    assert not [it for it in calls if "onnxruntime/" in it[0]]


@pytest.mark.parametrize("how", HOWS.values(), ids=HOWS)
def test_steps_that_c_code_refuses_are_done_by_onnx_runtime(
    model: webgpu_ep.LanguageModel, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers that were drawn for them are used."""
    wanted, numbers = unchained(model, how), random.Random(1)
    submit = ChainedRuns.submit
    monkeypatch.setattr(ChainedRuns, "submit", lambda self: numbers.random() < 0.7 and submit(self))
    assert list(tokens(model, **how)) == wanted


def test_what_c_code_knows_may_end_at_any_moment(model: webgpu_ep.LanguageModel, submitted: list[bool]) -> None:
    wanted, found = unchained(model, {}), []
    for k, it in enumerate(tokens(model)):
        found.append(it)
        if k % 25 == 24:
            for node in memo.nodes:
                node.end_all()
    assert found == wanted and submitted.count(False) >= 2 and submitted.count(True) > 30


def test_a_recorder_sees_steps_as_they_are_without(model: webgpu_ep.LanguageModel, submitted: list[bool]) -> None:
    wanted, text = unchained(model, {}), tokens(model)
    found = [next(text) for _ in range(60)]
    recorder = Recorder()
    with recorder.listening():
        found += [next(text) for _ in range(8)]
    spans = recorder.finish()
    assert sum(it.kind == "dispatch" for it in spans) > 8 and any(it.kind == "download" for it in spans)
    assert [*found, *text] == wanted and not all(submitted) and submitted[-1]


def test_texts_of_threads_do_not_mix(model: webgpu_ep.LanguageModel) -> None:
    """Nor with runs that ONNX Runtime does."""
    hows = [*HOWS.values()]
    wanted = [unchained(model, how, 60) for how in hows]
    found: list[list[tuple[int, int]]] = [[] for _ in hows]

    def generate(number: int) -> None:
        for _ in range(2):
            found[number] = list(tokens(model, 60, **hows[number]))

    threads = [threading.Thread(target=generate, args=[k]) for k in range(len(hows))]
    for it in threads:
        it.start()
    other = [unchained(model, hows[0], 20) for _ in range(4)]
    for it in threads:
        it.join()
    assert found == wanted and other == [wanted[0][: len(other[0])]] * 4


def test_a_text_that_is_left_leaves_nothing(model: webgpu_ep.LanguageModel) -> None:
    device = device_of(0)
    wanted = list(tokens(model, 50))

    def left(number: int) -> int:
        text = tokens(model, 50)
        for _ in range(number):
            next(text)
        text.close()
        del text
        gc.collect()
        return device.counters["buffers"]

    counts = [left(it) for it in (60, 61, 62, 63) * 3]
    assert max(counts[4:]) <= max(counts[:4]) and list(tokens(model, 50)) == wanted


@pytest.mark.costly
def test_a_device_that_is_lost_between_two_steps(folder: Path) -> None:
    """The first one, where ONNX Runtime puts tensors; other tests use it: a process of its own loses it."""
    done = patience.run([sys.executable, "-c", LOST, str(folder)])
    assert done.returncode == 0, done.stderr


def test_caches_that_are_left_and_continued(model: webgpu_ep.LanguageModel) -> None:
    whole = list(tokens(model, 50))
    caches = State(model.decoder, 2)
    text = model.tokens(PROMPTS, max_new_tokens=50, state=caches, ends=())
    begun = [next(text) for _ in range(2 * 30)]
    text.close()
    last = [[token] for _, token in begun[-2:]]
    assert caches.ids == [
        [*prompt, *(token for row, token in begun[:-2] if row == k)] for k, prompt in enumerate(PROMPTS)
    ]
    assert begun + list(model.tokens(last, max_new_tokens=20, state=caches, ends=())) == whole
