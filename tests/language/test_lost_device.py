"""A `LanguageModel` whose device is lost: the call that meets it says so, the next one gives the same text on a new device."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.errors import DeviceLostError
from tests import patience
from tests.plugin import models
from tests.plugin.loss import device_of, lose

from .models import Decoder, write, write_growing

KINDS: dict[str, tuple[Callable[[Decoder, Path], Path], Decoder]] = {
    "in place": (write, Decoder(layers=1)),
    "growing": (write_growing, Decoder(layers=1, groups=4)),
    "growing without positions": (write_growing, Decoder(layers=1, groups=4, positions=False)),
}
CONTEXT = 761  # a device of these tests alone
FIRST = """
import sys

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.errors import DeviceLostError
from tests.plugin.loss import lose, device_of

model = webgpu_ep.LanguageModel(sys.argv[1])
chat, other = model.chat(), model.chat()
said = ["".join(other.say(it, max_new_tokens=6)) for it in "ab"]
assert "".join(chat.say("a", max_new_tokens=6)) == said[0]
text = model.generate("Hello", max_new_tokens=6)
for make, wanted in (
    (lambda: model.generate("Hello", max_new_tokens=6), text),
    (lambda: "".join(model.chat().say("a", max_new_tokens=6)), said[0]),
    (lambda: "".join(chat.say("b", max_new_tokens=6)), said[1]),
):
    lose(device_of(0))
    try:
        make()
    except DeviceLostError:
        assert make() == wanted
    else:
        raise AssertionError("nobody met the loss")
"""
HOW: dict[str, Any] = {"max_new_tokens": 6}


@pytest.fixture(params=[pytest.param(it, marks=pytest.mark.exhaustive if "without" in it else ()) for it in KINDS])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> webgpu_ep.LanguageModel:
    make, decoder = KINDS[request.param]
    return webgpu_ep.LanguageModel(make(decoder, tmp_path / "model"), deviceId=CONTEXT)


def _lose() -> None:
    lose(device_of(CONTEXT))


@pytest.mark.costly
def test_the_next_text_is_right(model: webgpu_ep.LanguageModel) -> None:
    wanted = model.generate(["Hello", "Hi"], **HOW)
    for _ in range(2):
        _lose()
        with pytest.raises(DeviceLostError):
            model.generate(["Hello", "Hi"], **HOW)
        for _ in range(3):
            assert model.generate(["Hello", "Hi"], **HOW) == wanted


def test_the_next_text_is_right_beside_a_session_on_the_shared_device(model: webgpu_ep.LanguageModel) -> None:
    """Memory that is no session's is kept for its next user there, and moves to the model's device when the model uses it."""
    beside = webgpu_ep.session(models.square())
    wanted = model.generate(["Hello", "Hi"], **HOW)
    assert wanted == model.generate(["Hello", "Hi"], **HOW)
    _lose()
    with pytest.raises(DeviceLostError):
        model.generate(["Hello", "Hi"], **HOW)
    for _ in range(3):
        assert model.generate(["Hello", "Hi"], **HOW) == wanted
    x = np.ones((5, 8), np.float32)
    np.testing.assert_array_equal(beside.run(None, {"x": x})[0], x)


@pytest.mark.parametrize(
    "model",
    [pytest.param(it, marks=() if it == "in place" else pytest.mark.exhaustive) for it in KINDS],
    indirect=True,
)
def test_ids_and_caches_on_the_first_device(model: webgpu_ep.LanguageModel) -> None:
    """It is where ONNX Runtime puts them, also for sessions on others, and other tests use it: a process of its own loses it."""
    done = patience.run([sys.executable, "-c", FIRST, str(model.folder.path)])
    assert done.returncode == 0, done.stderr


@pytest.mark.costly
def test_a_text_that_is_being_made_ends(model: webgpu_ep.LanguageModel) -> None:
    wanted = list(model.tokens([[5, 77, 130]], **HOW))
    tokens = model.tokens([[5, 77, 130]], **HOW)
    next(tokens)
    _lose()
    with pytest.raises(DeviceLostError):
        list(tokens)
    assert list(model.tokens([[5, 77, 130]], **HOW)) == wanted


@pytest.mark.costly
@pytest.mark.parametrize("ends", [(), None], ids=["goes on", "ends"])
def test_a_chat_goes_on(model: webgpu_ep.LanguageModel, ends: Any) -> None:
    other = model.chat("be brief")
    first = list(other.say("a", ends=ends, **HOW))
    second = list(other.say("b", ends=ends, **HOW))
    chat = model.chat("be brief")
    assert list(chat.say("a", ends=ends, **HOW)) == first
    _lose()
    with pytest.raises(DeviceLostError):
        list(chat.say("b", ends=ends, **HOW))
    assert list(chat.say("b", ends=ends, **HOW)) == second and chat.reused == 0


@pytest.mark.costly
def test_a_chat_that_did_not_meet_the_loss_goes_on(model: webgpu_ep.LanguageModel) -> None:
    """Somebody else has made the new device, and its caches are lost all the same."""
    other, chat = model.chat(), model.chat()
    wanted = [list(other.say(it, **HOW)) for it in "ab"]
    assert list(chat.say("a", **HOW)) == wanted[0]
    _lose()
    with pytest.raises(DeviceLostError):
        model.generate("Hello", **HOW)
    try:
        got = list(chat.say("b", **HOW))  # one that reads nothing of its caches has nothing to lose
    except DeviceLostError:
        got = list(chat.say("b", **HOW))
    assert got == wanted[1]


@pytest.mark.costly
def test_another_model_and_chat_of_it_are_made_after_a_loss(model: webgpu_ep.LanguageModel) -> None:
    wanted = model.generate("Hello", **HOW), list(model.chat().say("a", **HOW))
    _lose()
    chat = model.chat()
    with pytest.raises(DeviceLostError):
        list(chat.say("a", **HOW))
    assert list(chat.say("a", **HOW)) == wanted[1]
    another = webgpu_ep.LanguageModel(model.folder.path, deviceId=CONTEXT)
    assert (another.generate("Hello", **HOW), list(another.chat().say("a", **HOW))) == wanted
