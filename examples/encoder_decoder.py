"""Whisper, T5, BART and Marian: an encoder, and a decoder with KV caches that stay on the GPU.

    python -m examples.encoder_decoder FOLDER --text "translate English to German: The house is small."
    python -m examples.encoder_decoder FOLDER --speech recording.wav --begin "<|en|><|transcribe|><|notimestamps|>"

FOLDER is the output of `optimum-cli export onnx --model openai/whisper-tiny FOLDER`: encoder_model.onnx, config.json,
tokenizer.json, and the decoder. The decoder is decoder_model.onnx with decoder_with_past_model.onnx, or the two merged. The
encoder's output stays on the device, as do keys and values. Each step downloads one id per sequence.
"""

from __future__ import annotations

import argparse
import json
import wave
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

import onnxruntime_ep_wgpu as webgpu_ep

DEVICE = "webgpu"
RATE, WINDOW, HOP, MELS = 16_000, 400, 160, 80  # parameters of Whisper's spectrograms


def likeliest() -> bytes:
    """Returns a model from logits (batch, steps, vocabulary) to the likeliest id of the last step, (batch, 1)."""
    nodes = [
        helper.make_node("Slice", ["logits", "last", "end", "axis"], ["step"]),
        helper.make_node("ArgMax", ["step"], ["ids"], axis=2, keepdims=0),
    ]
    value = helper.make_tensor_value_info
    numbers = {"last": -1, "end": np.iinfo(np.int64).max, "axis": 1}
    graph = helper.make_graph(
        nodes,
        "likeliest",
        [value("logits", TensorProto.FLOAT, ["batch", "steps", "vocabulary"])],
        [value("ids", TensorProto.INT64, ["batch", 1])],
        [helper.make_tensor(name, TensorProto.INT64, [1], [number]) for name, number in numbers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


def run(session: ort.InferenceSession, feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Runs a session and returns all outputs by name, on the device.

    `feeds` has arrays, or OrtValues of an earlier run. Entries without an input of that name are ignored."""
    binding = session.io_binding()
    for it in session.get_inputs():
        feed = feeds[it.name]
        if isinstance(feed, np.ndarray):
            binding.bind_cpu_input(it.name, feed)
        else:
            binding.bind_ortvalue_input(it.name, feed)
    names = [it.name for it in session.get_outputs()]
    for name in names:
        binding.bind_output(name, DEVICE)
    session.run_with_iobinding(binding)
    return dict(zip(names, binding.get_outputs(), strict=True))


class EncoderDecoder:
    """The models of a folder. `start` are the ids that every answer begins with; an id of `end` completes it."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        files = ["encoder_model.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx"]
        merged = not (self.folder / files[1]).is_file()
        if merged:
            files[1:] = ["decoder_model_merged.onnx"]
        missing = [name for name in (*files, "config.json") if not (self.folder / name).is_file()]
        if missing:
            raise FileNotFoundError(f"{self.folder} lacks {', '.join(missing)}: export a model with optimum-cli")
        self.encoder, self.first, *rest = (webgpu_ep.session(str(self.folder / name)) for name in files)
        self.next = rest[0] if rest else self.first
        self.pick = webgpu_ep.session(likeliest())
        config = json.loads((self.folder / "config.json").read_text())
        generation = self.folder / "generation_config.json"
        config |= json.loads(generation.read_text()) if generation.is_file() else {}
        forced = [number for _, number in config.get("forced_decoder_ids") or [] if number is not None]
        self.start: list[int] = [config["decoder_start_token_id"], *forced]
        end = config["eos_token_id"]
        self.end = set(end if isinstance(end, list) else [end])

    def _empty(self, batch: int) -> dict[str, np.ndarray[Any, Any]]:
        """Returns caches without rows, which a merged decoder requires in its first step."""
        shapes = {it.name: it.shape for it in self.first.get_inputs() if it.name.startswith("past_key_values.")}
        return {name: np.empty((batch, shape[1], 0, shape[3]), np.float32) for name, shape in shapes.items()}

    def ids(self, inputs: Mapping[str, np.ndarray[Any, Any]], most: int = 128) -> Iterator[list[int]]:
        """Yields one id per sequence and step, for the encoder's `inputs`, until every sequence has ended."""
        state: dict[str, Any] = {"encoder_hidden_states": next(iter(run(self.encoder, inputs).values()))}
        if "attention_mask" in inputs:
            state["encoder_attention_mask"] = inputs["attention_mask"]
        batch = len(next(iter(inputs.values())))
        state |= self._empty(batch) | {"use_cache_branch": np.array([False])}
        state["input_ids"] = np.array([self.start] * batch, np.int64)
        session, ended = self.first, np.zeros(batch, bool)
        for step in range(most):
            found = run(session, state)
            ids = run(self.pick, {"logits": found.pop("logits")})["ids"]
            picked = ids.numpy()[:, 0]
            yield picked.tolist()
            ended |= np.isin(picked, list(self.end))
            if ended.all():
                return
            for name, it in found.items():
                if step == 0 or ".encoder." not in name:  # later steps return the encoder's caches empty, or not at all
                    state[name.replace("present", "past_key_values")] = it
            state |= {"input_ids": ids, "use_cache_branch": np.array([True])}
            session = self.next

    def answers(self, inputs: Mapping[str, np.ndarray[Any, Any]], most: int = 128) -> list[list[int]]:
        """Returns the ids of every sequence, without the one that ends it."""
        found: list[list[int]] = []
        for row in zip(*self.ids(inputs, most), strict=True):
            ends = [place for place, it in enumerate(row) if it in self.end]
            found.append(list(row[: ends[0]] if ends else row))
        return found


def spectrogram(samples: np.ndarray[Any, Any], frames: int) -> np.ndarray[Any, Any]:
    """Returns Whisper's input, (1, MELS, frames): the logarithmic energy per band of samples from -1 to 1 at RATE."""
    samples = np.pad(samples[: frames * HOP], (0, max(0, frames * HOP - len(samples))))
    padded = np.pad(samples, WINDOW // 2, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP][:frames]
    shape = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    energy = np.abs(np.fft.rfft(windows * shape)) ** 2
    bands = np.log10(np.maximum(energy @ filters().T, 1e-10)).T
    bands = (np.maximum(bands, bands.max() - 8) + 4) / 4
    return np.ascontiguousarray(bands[None], np.float32)


def filters() -> np.ndarray[Any, Any]:
    """Returns the triangular filters of Slaney's mel scale, (MELS, WINDOW // 2 + 1): linear to 1 kHz, logarithmic above."""
    step = np.log(6.4) / 27

    def mel(hertz: Any) -> Any:
        return np.where(hertz < 1000, hertz * 3 / 200, 15 + np.log(np.maximum(hertz, 1e-9) / 1000) / step)

    def hertz(mel: Any) -> Any:
        return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp((mel - 15) * step))

    edges = hertz(np.linspace(0, mel(np.array(RATE / 2)), MELS + 2))
    bins = np.linspace(0, RATE / 2, WINDOW // 2 + 1)
    up = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    return np.maximum(0, np.minimum(up, down)) * (2 / (edges[2:] - edges[:-2]))[:, None]


def recorded(path: str) -> np.ndarray[Any, Any]:
    """Returns the samples of a WAV file with 16 bits at RATE. Several channels are mixed. Raises ValueError for other
    formats."""
    with wave.open(path) as file:
        if file.getframerate() != RATE or file.getsampwidth() != 2:
            raise ValueError(
                f"{path}: {file.getframerate()} Hz, {8 * file.getsampwidth()} bits; convert it to {RATE} Hz, 16"
            )
        data = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, file.getnchannels())
    return data.mean(1) / 32768


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Translates, sums up or transcribes, with an exported encoder and decoder."
    )
    parser.add_argument("folder", help="what optimum-cli wrote")
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--text", action="append", help="what the encoder reads; several are a batch")
    given.add_argument("--speech", metavar="WAV", help=f"what it hears: 16 bits at {RATE} Hz, at most 30 s")
    parser.add_argument("--begin", default="", help="special tokens that the answer begins with")
    parser.add_argument("--most", type=int, default=128, help="ids of an answer")
    chosen = parser.parse_args(words)
    from tokenizers import Tokenizer

    model = EncoderDecoder(chosen.folder)
    tokenizer = Tokenizer.from_file(str(model.folder / "tokenizer.json"))
    model.start += tokenizer.encode(chosen.begin, add_special_tokens=False).ids
    if chosen.speech:
        frames = model.encoder.get_inputs()[0].shape[2]
        inputs = {"input_features": spectrogram(recorded(chosen.speech), frames if isinstance(frames, int) else 3000)}
    else:
        tokenizer.enable_padding()
        encoded = tokenizer.encode_batch(chosen.text)
        inputs = {
            "input_ids": np.array([it.ids for it in encoded], np.int64),
            "attention_mask": np.array([it.attention_mask for it in encoded], np.int64),
        }
    for ids in model.answers(inputs, chosen.most):
        print(tokenizer.decode(ids))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
