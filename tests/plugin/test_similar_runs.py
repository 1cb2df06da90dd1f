"""Runs that have most in common with the one before, as steps of a decoder have: results are right whatever changes between them.

Every sequence is random: shapes that grow, shrink and come again, tensors that are new, exchanged, updated in place, given by host
memory, and several threads. The CPU provider runs the same.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep

from ..language.models import Decoder, graph_of, growing_graph_of
from .loss import device_of

ROWS = 40
DECODER = Decoder(layers=2, length=ROWS, vocabulary=64)
NAMES = [f"{k}.{x}" for k in range(DECODER.layers) for x in ("key", "value")]


def on_device(array: np.ndarray) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy(array, "webgpu", 0)


def opened(graph: Any) -> tuple[Any, Any]:
    """Our session and the CPU provider's."""
    text = graph.SerializeToString()
    return webgpu_ep.session(text), ort.InferenceSession(text, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def in_place() -> tuple[Any, Any]:
    return opened(graph_of(DECODER))


@pytest.fixture(scope="module")
def growing() -> tuple[Any, Any]:
    return opened(growing_graph_of(DECODER))


class Sequence:
    """A decoder whose caches stay in place, on both providers; `step` may change whatever a client may change."""

    def __init__(self, sessions: tuple[Any, Any], seed: int) -> None:
        self.ours, self.cpu = sessions
        self.random = np.random.default_rng(seed)
        self.used = 0
        self.host = {n: np.zeros((1, DECODER.groups, ROWS, DECODER.size), np.float32) for n in NAMES}
        self.caches = {n: on_device(a) for n, a in self.host.items()}
        self.logits: dict[int, ort.OrtValue] = {}
        self.ids: dict[int, ort.OrtValue] = {}
        self.binding = self.ours.io_binding()
        self.bind_caches()

    def bind_caches(self) -> None:
        for n, value in self.caches.items():
            self.binding.bind_ortvalue_input(f"past_key_values.{n}", value)
            self.binding.bind_ortvalue_output(f"present.{n}", value)

    def change(self) -> None:
        """Something that is not the next step."""
        which = self.random.integers(8)
        if which == 0:
            self.used = int(self.random.integers(self.used + 1))  # rewound
        elif which == 1:  # a cache elsewhere
            name = NAMES[self.random.integers(len(NAMES))]
            self.caches[name] = on_device(self.caches[name].numpy())
            self.bind_caches()
        elif which == 2:
            a, b = self.random.choice(len(NAMES), 2, replace=False)  # two caches change places
            for them in (self.caches, self.host):
                them[NAMES[a]], them[NAMES[b]] = them[NAMES[b]], them[NAMES[a]]
            self.bind_caches()
        elif which == 3:
            self.logits.clear()
        elif which == 4:
            self.ids.clear()

    def step(self) -> None:
        self.change()
        count = 1 if self.used and self.random.random() < 0.8 else int(self.random.integers(1, 6))
        if self.used + count > ROWS:
            self.used = 0
        ids = self.random.integers(3, 60, (1, count))
        mask = np.ones((1, self.used + count), np.int64)
        feeds = {"input_ids": ids, "attention_mask": mask} | {f"past_key_values.{n}": a for n, a in self.host.items()}
        wanted, *presents = self.cpu.run(None, feeds)
        names = [it.name.removeprefix("present.") for it in self.cpu.get_outputs()[1:]]
        self.host = dict(zip(names, presents, strict=True))
        if count in self.ids:
            self.ids[count].update_inplace(ids)
        else:
            self.ids[count] = on_device(ids)
        self.binding.bind_ortvalue_input("input_ids", self.ids[count])
        if self.random.random() < 0.2:
            self.binding.bind_cpu_input("attention_mask", mask)
        else:
            self.binding.bind_ortvalue_input("attention_mask", on_device(mask))
        if self.random.random() < 0.2:
            self.binding.bind_output("logits", "webgpu", 0)
        else:
            if count not in self.logits:
                self.logits[count] = on_device(np.zeros((1, count, DECODER.vocabulary), np.float32))
            self.binding.bind_ortvalue_output("logits", self.logits[count])
        self.ours.run_with_iobinding(self.binding)
        outputs = dict(zip([it.name for it in self.ours.get_outputs()], self.binding.get_outputs(), strict=False))
        got = next(value for value in outputs.values() if value.shape()[-1] == DECODER.vocabulary).numpy()
        np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=2e-3)
        self.used += count


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(4))
def test_steps_of_a_decoder_whose_mask_is_longer_each_time(in_place: tuple[Any, Any], seed: int) -> None:
    sequence = Sequence(in_place, seed)
    for _ in range(60):
        sequence.step()


def test_steps_with_ids_and_mask_in_host_memory(in_place: tuple[Any, Any]) -> None:
    """And logits, with caches in place: what is uploaded lies elsewhere in each step. Now and then another one."""
    ours, cpu = in_place
    random, results = np.random.default_rng(5), [it.name for it in ours.get_outputs()]
    for _ in range(3):
        host = {n: np.zeros((1, DECODER.groups, ROWS, DECODER.size), np.float32) for n in NAMES}
        caches, binding = {n: on_device(a) for n, a in host.items()}, ours.io_binding()
        logits = ort.OrtValue.ortvalue_from_numpy(np.zeros((1, 1, DECODER.vocabulary), np.float32))
        for n, value in caches.items():
            binding.bind_ortvalue_input(f"past_key_values.{n}", value)
            binding.bind_ortvalue_output(f"present.{n}", value)
        binding.bind_ortvalue_output("logits", logits)
        used = 0
        while used < ROWS:
            if random.random() < 0.05:
                used = int(random.integers(used + 1))
            ids, mask = random.integers(3, 60, (1, 1)), np.ones((1, used + 1), np.int64)
            feeds = {"input_ids": ids, "attention_mask": mask}
            wanted = dict(
                zip(
                    results, cpu.run(results, feeds | {f"past_key_values.{n}": a for n, a in host.items()}), strict=True
                )
            )
            host = {n: wanted[f"present.{n}"] for n in NAMES}
            values = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in feeds.items()}
            for name, value in values.items():
                binding.bind_ortvalue_input(name, value)
            ours.run_with_iobinding(binding)
            np.testing.assert_allclose(logits.numpy(), wanted["logits"], rtol=2e-3, atol=2e-3)
            used += 1


def test_sequences_in_turns_and_in_threads(in_place: tuple[Any, Any]) -> None:
    wrong: list[BaseException] = []
    first, second = Sequence(in_place, 10), Sequence(in_place, 11)
    for _ in range(15):
        first.step()
        second.step()

    def work(sequence: Sequence) -> None:
        try:
            for _ in range(25):
                sequence.step()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(it,)) for it in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(2))
def test_steps_of_a_decoder_whose_caches_grow(growing: tuple[Any, Any], seed: int) -> None:
    ours, cpu = growing
    random = np.random.default_rng(seed)
    outputs = [it.name for it in ours.get_outputs()]
    for _ in range(3):
        host = {n: np.zeros((1, DECODER.heads, 0, DECODER.size), np.float32) for n in NAMES}
        caches = {n: on_device(a) for n, a in host.items()}
        used = 0
        while used < ROWS - 6:
            count = 1 if used and random.random() < 0.8 else int(random.integers(1, 5))
            ids, mask = random.integers(3, 60, (1, count)), np.ones((1, used + count), np.int64)
            feeds = {"input_ids": ids, "attention_mask": mask, "position_ids": np.arange(used, used + count)[None]}
            wanted = cpu.run(outputs, feeds | {f"past_key_values.{n}": a for n, a in host.items()})
            binding = ours.io_binding()
            for name, array in feeds.items():
                binding.bind_ortvalue_input(name, on_device(array))
            for n, value in caches.items():
                binding.bind_ortvalue_input(f"past_key_values.{n}", value)
            for name in outputs:
                binding.bind_output(name, "webgpu", 0)
            ours.run_with_iobinding(binding)
            got = dict(zip(outputs, binding.get_outputs(), strict=True))
            for name, array in zip(outputs, wanted, strict=True):
                np.testing.assert_allclose(got[name].numpy(), array, rtol=2e-3, atol=2e-3, err_msg=name)
            caches = {n: got[f"present.{n}"] for n in NAMES}
            host = {n: wanted[outputs.index(f"present.{n}")] for n in NAMES}
            used += count


def test_a_step_makes_one_dispatch_anew() -> None:
    """A mask that is one longer is all that changes: no other bind group is made, and where it grows none at all."""
    sequence = Sequence(opened(graph_of(DECODER)), 3)
    ids, logits = on_device(np.ones((1, 1), np.int64)), on_device(np.zeros((1, 1, DECODER.vocabulary), np.float32))
    sequence.binding.bind_ortvalue_input("input_ids", ids)
    sequence.binding.bind_ortvalue_output("logits", logits)
    made = []
    for used in range(10, 20):
        sequence.binding.bind_ortvalue_input("attention_mask", on_device(np.ones((1, used), np.int64)))
        before = device_of(0).counters["bind_groups"]
        sequence.ours.run_with_iobinding(sequence.binding)
        made.append(device_of(0).counters["bind_groups"] - before)
    assert made[0] > 10
    assert made[1] <= 1 and not any(made[4:]), made
