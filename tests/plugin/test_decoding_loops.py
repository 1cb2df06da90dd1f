"""Sequences that grow by one in every run, their caches inputs and outputs of the model: nothing is compiled after the third step,
and what is held does not follow the number of steps.

Caches are given as a client may give them: arrays, OrtValues in host memory, and an IOBinding whose outputs stay on the device.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.device.sizes import size_class
from tests.zoo.exports import Export

from ..language.models import Decoder, graph_of, growing_graph_of
from .loss import device_of

SHORT, LONG = 200, 2000
POOLED = 64  # ranges that wait for the next run (csrc/memory.c)
WIDTH, HEADS, SIZE, WORDS = 32, 2, 16, 50


def joined() -> onnx.ModelProto:
    """A layer as torch's exporter spells it: keys and values are joined to those before, and positions and the mask follow from
    their shapes."""
    e = Export("joined")
    g = e.g
    ids = g.input("input_ids", np.int64, ["batch", "steps"])
    past = {name: g.input(f"past.{name}", np.float32, ["batch", HEADS, "past", SIZE]) for name in ("key", "value")}
    batch, steps, before = e.size(ids, 0), e.size(ids, 1), e.size(past["key"], 2)
    total = e.op("Add", before, steps)
    x = e.op("Gather", e.weight(WORDS, WIDTH), ids, axis=0)
    places = e.op("Range", before, total, g.const(1))
    angles = e.op("Unsqueeze", e.op("Mul", e.cast(places, onnx.TensorProto.FLOAT), g.const(0.01)), g.const([1]))
    x = e.op("Add", x, e.op("Sin", e.op("Mul", angles, e.weight(1, WIDTH))))

    def heads(y: str) -> str:
        return e.turned(e.view(e.op("MatMul", y, e.weight(WIDTH, HEADS * SIZE)), batch, -1, HEADS, SIZE), 0, 2, 1, 3)

    query, present = heads(x), {name: e.op("Concat", it, heads(x), axis=2) for name, it in past.items()}
    scores = e.op("Mul", e.op("MatMul", query, e.turned(present["key"], 0, 1, 3, 2)), g.const(SIZE**-0.5))
    seen = e.op(
        "LessOrEqual",
        e.op("Unsqueeze", e.op("Range", g.const(0), total, g.const(1)), g.const([0])),
        e.op("Unsqueeze", places, g.const([1])),
    )
    scores = e.op("Where", seen, scores, g.const(-1e9))
    merged = e.turned(e.op("MatMul", e.op("Softmax", scores, axis=-1), present["value"]), 0, 2, 1, 3)
    x = e.op("Add", x, e.op("MatMul", e.view(merged, batch, steps, HEADS * SIZE), e.weight(HEADS * SIZE, WIDTH)))
    g.output(e.op("MatMul", x, e.weight(WIDTH, WORDS), out="logits"), np.float32, ["batch", "steps", WORDS])
    for name, it in present.items():
        g.output(e.op("Identity", it, out=f"present.{name}"), np.float32, ["batch", HEADS, "past + steps", SIZE])
    return g.build()


def attention(length: int = LONG + 8) -> onnx.ModelProto:
    """Layers of MultiHeadAttention, as optimum exports them."""
    return growing_graph_of(Decoder(layers=2, length=length, vocabulary=64))


def group_query(length: int = LONG + 8) -> onnx.ModelProto:
    """Layers of GroupQueryAttention, whose caches are as long as what they hold."""
    return graph_of(Decoder(layers=2, length=length, vocabulary=64))


MODELS: dict[str, tuple[Callable[[], onnx.ModelProto], int]] = {
    "joined": (joined, HEADS),
    "attention": (attention, Decoder.heads),
    "group_query": (group_query, Decoder.groups),
}
"""Models, and heads of their caches."""


@dataclass
class Loop:
    """A session and the caches of a sequence, which begins empty."""

    session: Any
    heads: int

    def __post_init__(self) -> None:
        self.outputs = [it.name for it in self.session.get_outputs()]
        self.inputs = [it.name for it in self.session.get_inputs()]
        self.pasts = [name for name in self.inputs if name.startswith("past")]
        self.presents = [name.replace("past_key_values", "present").replace("past.", "present.") for name in self.pasts]

    def feeds(self, step: int) -> dict[str, np.ndarray]:
        given = {
            "input_ids": np.array([[3 + step % 40]], np.int64),
            "attention_mask": np.ones((1, step + 1), np.int64),
            "position_ids": np.array([[step]], np.int64),
        }
        return {name: it for name, it in given.items() if name in self.inputs}

    def empty(self) -> list[np.ndarray]:
        return [np.zeros((1, self.heads, 0, SIZE), np.float32) for _ in self.pasts]

    def arrays(self, steps: int) -> Iterator[np.ndarray]:
        """The logits of each step."""
        pasts: list[Any] = self.empty()
        for step in range(steps):
            made = self.session.run(self.outputs, self.feeds(step) | dict(zip(self.pasts, pasts, strict=True)))
            pasts = [made[self.outputs.index(it)] for it in self.presents]
            yield made[self.outputs.index("logits")]

    def ort_values(self, steps: int) -> Iterator[np.ndarray]:
        value = ort.OrtValue.ortvalue_from_numpy
        pasts = [value(it) for it in self.empty()]
        for step in range(steps):
            feeds = {name: value(it) for name, it in self.feeds(step).items()}
            made = self.session.run_with_ort_values(self.outputs, feeds | dict(zip(self.pasts, pasts, strict=True)))
            pasts = [made[self.outputs.index(it)] for it in self.presents]
            yield made[self.outputs.index("logits")].numpy()

    def binding(self, steps: int) -> Iterator[np.ndarray]:
        pasts = [ort.OrtValue.ortvalue_from_numpy(it, "webgpu", 0) for it in self.empty()]
        binding = self.session.io_binding()
        for step in range(steps):
            for name, it in self.feeds(step).items():
                binding.bind_cpu_input(name, it)
            for name, it in zip(self.pasts, pasts, strict=True):
                binding.bind_ortvalue_input(name, it)
            binding.bind_output("logits", "cpu")
            for name in self.presents:
                binding.bind_output(name, "webgpu", 0)
            self.session.run_with_iobinding(binding)
            logits, *pasts = binding.get_outputs()
            yield logits.numpy()


def decode(name: str, way: str, steps: int) -> None:
    make, heads = MODELS[name]
    text = make().SerializeToString()
    session = webgpu_ep.session(text, deviceId=71)
    cpu = Loop(ort.InferenceSession(text, providers=["CPUExecutionProvider"]), heads).arrays(steps)
    assert not webgpu_ep.report(session).on_cpu
    third: Any = None
    for step, logits in enumerate(getattr(Loop(session, heads), way)(steps)):
        np.testing.assert_allclose(logits, next(cpu), rtol=2e-3, atol=2e-3)
        if step == 2:
            third = webgpu_ep.report(session).pipelines, device_of(71).counters
    pipelines, before = third
    assert webgpu_ep.report(session).pipelines == pipelines, "nothing is compiled after the third step"
    gc.collect()
    after, held = device_of(71).counters, webgpu_ep.report(session).caches
    assert after["pipelines"] == before["pipelines"]
    # Tensors wait in the pool, and each step may use some that are as large. Everything else is of a few sizes.
    assert after["buffers"] <= POOLED + 4 * before["buffers"]
    largest = size_class(4 * heads * SIZE * steps)
    assert after["buffer_bytes"] <= before["buffer_bytes"] + (POOLED + 3 * 8) * largest
    assert held["uniform"].held_buffers <= 40


def test_steps_compile_nothing_after_the_third_and_hold_no_more() -> None:
    decode("joined", "arrays", SHORT)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", ["arrays", "ort_values", "binding"])
@pytest.mark.parametrize("name", MODELS)
def test_so_they_do_however_caches_are_given(name: str, way: str) -> None:
    decode(name, way, SHORT)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "way"), [*zip(MODELS, ["binding", "ort_values", "arrays"], strict=True)])
def test_two_thousand_steps_compile_nothing_after_the_third_and_hold_no_more(name: str, way: str) -> None:
    decode(name, way, LONG)
