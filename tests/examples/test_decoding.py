"""The decoding loops of examples/ give the ids of the CPU provider without caches, and bring nothing but ids to the host."""

from __future__ import annotations

import wave
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from PIL import Image

from examples import encoder_decoder, vision_language
from examples.encoder_decoder import EncoderDecoder
from examples.vision_language import VisionLanguage
from onnxruntime_ep_wgpu.device import Device

from . import models

RNG = np.random.default_rng(7)
STEPS = 9


def cpu(folder: Path, name: str) -> ort.InferenceSession:
    return ort.InferenceSession(str(folder / f"{name}.onnx"), providers=["CPUExecutionProvider"])


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of every download."""
    sizes: list[int] = []
    download = Device.download_all

    def noted(self: Device, ranges: Iterable[Any]) -> None:
        ranges = list(ranges)
        sizes.extend(memoryview(into).nbytes for _, _, into in ranges)
        download(self, ranges)

    monkeypatch.setattr(Device, "download_all", noted)
    return sizes


def text_inputs() -> dict[str, np.ndarray[Any, Any]]:
    mask = np.ones((3, 8), np.int64)
    mask[1, 5:] = mask[2, 1:] = 0
    return {"input_ids": RNG.integers(6, models.WORDS, (3, 8)), "attention_mask": mask}


def speech_inputs() -> dict[str, np.ndarray[Any, Any]]:
    return {"input_features": RNG.standard_normal((1, models.MELS, models.FRAMES)).astype(np.float32)}


@pytest.mark.costly
@pytest.mark.parametrize("speech", [False, True])
def test_an_encoder_and_a_decoder_say_what_they_say_on_the_cpu(
    speech: bool, tmp_path: Path, downloads: list[int]
) -> None:
    folder = models.write_encoder_decoder(tmp_path, speech)
    model = EncoderDecoder(folder)
    model.end = {-1}
    inputs = speech_inputs() if speech else text_inputs()
    got = list(model.ids(inputs, STEPS))
    assert downloads and max(downloads) <= 8 * len(got[0]), "more than ids came to the host"
    hidden = cpu(folder, "encoder_model").run(None, inputs)[0]
    decoder, ids = cpu(folder, "decoder_model"), np.full((len(hidden), 1), 3, np.int64)
    mask = {"encoder_attention_mask": inputs["attention_mask"]} if not speech else {}
    for _ in range(STEPS):
        logits = decoder.run(["logits"], {"input_ids": ids, "encoder_hidden_states": hidden, **mask})[0]
        ids = np.concatenate([ids, logits[:, -1:].argmax(-1)], 1)
    np.testing.assert_array_equal(np.transpose(got), ids[:, 1:])
    assert len(np.unique(ids[:, 1:])) > 1, "a model that says one word finds no fault"


def test_an_answer_ends_where_the_configuration_says(tmp_path: Path) -> None:
    model = EncoderDecoder(models.write_encoder_decoder(tmp_path, speech=False))
    model.end = {-1}
    inputs = text_inputs()
    whole = model.answers(inputs, STEPS)
    model.end = {whole[0][3]}
    for full, answer in zip(whole, model.answers(inputs, STEPS), strict=True):
        ends = [place for place, it in enumerate(full) if it in model.end]
        assert answer == (full[: ends[0]] if ends else full)


def test_a_picture_and_a_question(tmp_path: Path, downloads: list[int]) -> None:
    folder = models.write_vision_language(tmp_path)
    model = VisionLanguage(folder)
    model.end = {-1}
    pixels = RNG.standard_normal((1, 3, models.SIDE, models.SIDE)).astype(np.float32)
    rows = (models.SIDE // models.PATCH) ** 2
    prompt = [7, 8, *[models.IMAGE] * rows, 9, 10, 11]
    features = model.features(pixels)
    got = list(model.ids(features, prompt, STEPS))
    assert downloads and max(downloads) <= 8, "more than ids came to the host"
    decoder, embed = cpu(folder, "decoder_model_merged"), cpu(folder, "embed_tokens")
    picture = cpu(folder, "vision_encoder").run(None, {"pixel_values": pixels})[0]
    empty = np.empty((1, models.HEADS, 0, models.SIZE), np.float32)
    caches = {it.name: empty for it in decoder.get_inputs() if it.name.startswith("past")}
    ids = list(prompt)
    for _ in range(STEPS):
        embeds = embed.run(None, {"input_ids": np.array([ids])})[0]
        embeds[0, 2 : 2 + rows] = picture[0]
        ones = np.ones((1, len(ids)), np.int64)
        feeds = {"inputs_embeds": embeds, "attention_mask": ones, "position_ids": np.arange(len(ids))[None], **caches}
        ids.append(int(decoder.run(["logits"], feeds)[0][0, -1].argmax()))
    assert got == ids[len(prompt) :]
    with pytest.raises(ValueError, match="3 tokens for the picture's 9 rows"):
        next(model.ids(features, [models.IMAGE] * 3))


def test_the_programs_read_files_and_print_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = models.write_encoder_decoder(tmp_path / "text", speech=False)
    assert encoder_decoder.main([str(text), "--text", "w9 w8 w7", "--text", "w20", "--most", "4"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    with wave.open(str(tmp_path / "speech.wav"), "wb") as file:
        file.setnchannels(2), file.setsampwidth(2), file.setframerate(encoder_decoder.RATE)
        file.writeframes((RNG.standard_normal((4000, 2)) * 3000).astype("<i2").tobytes())
    speech = models.write_encoder_decoder(tmp_path / "speech", speech=True)
    assert (
        encoder_decoder.main([str(speech), "--speech", str(tmp_path / "speech.wav"), "--begin", "w4", "--most", "4"])
        == 0
    )
    assert capsys.readouterr().out.startswith("w")
    Image.fromarray(RNG.integers(0, 255, (30, 40, 3), np.uint8)).save(tmp_path / "picture.png")
    picture = models.write_vision_language(tmp_path / "vision")
    words = [str(picture), str(tmp_path / "picture.png"), "w9 <image> w8", "--side", str(models.SIDE), "--most", "4"]
    assert vision_language.main(words) == 0
    assert capsys.readouterr().out.startswith("w")


def test_a_folder_without_models_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="lacks encoder_model"):
        EncoderDecoder(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"lacks vision_encoder\.onnx"):
        VisionLanguage(tmp_path)


def test_a_tone_is_in_its_band_of_the_spectrogram() -> None:
    """1 kHz lies where Slaney's scale goes from linear to logarithmic: 15 of the 45.2 mel that 8 kHz is."""
    tone = np.sin(2 * np.pi * 1000 * np.arange(encoder_decoder.RATE) / encoder_decoder.RATE)
    bands = encoder_decoder.spectrogram(tone, 100)
    assert bands.shape == (1, encoder_decoder.MELS, 100)
    np.testing.assert_array_equal(bands[0, :, 10:90].argmax(0), 26)
    area = encoder_decoder.filters().sum(1) * encoder_decoder.RATE / encoder_decoder.WINDOW
    np.testing.assert_allclose(area[40:], 1, rtol=0.1)  # each triangle has the area 1
