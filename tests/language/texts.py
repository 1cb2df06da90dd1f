"""Random decoders, and random texts of them: `python -m tests.language.texts SEED COUNT`.

In: seeds. Out: a line for what is wrong. Every id is compared with the CPU provider's logits of the whole text; nothing is on a
device at the end.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.api.language import generate
from onnxruntime_ep_wgpu.api.language.sampler import CANDIDATES
from onnxruntime_ep_wgpu.api.language.state import State
from onnxruntime_ep_wgpu.api.reports import state_of
from onnxruntime_ep_wgpu.errors import DeviceLostError
from tests.plugin.loss import lose
from tests.programs import in_threads, run_programs

from .models import Decoder, write, write_growing

TOLERANCE = {"fp32": 2e-4, "int4-fp32": 0.12, "fp16": 0.12, "int4": 0.25}  # of a logit
TRIALS = 60  # sets of errors for an id that is not the one without
Row = Sequence[int]


class Model:
    """A decoder on the device that the options choose, beside the CPU provider."""

    def __init__(self, r: random.Random, folder: Path, options: dict[str, Any]) -> None:
        kind = r.choice([*TOLERANCE, "fp32"])
        growing = kind == "fp32" and r.random() < 0.5
        groups = r.choice([1, 2, 3])
        heads = groups * r.choice([1, 2, 4])
        if kind.startswith("int4"):
            groups, heads = r.choice([(2, 4), (1, 2), (2, 2), (1, 4)])
        self.decoder = Decoder(
            kind, r.random() < 0.5, layers=r.choice([1, 2, 3]), heads=heads, groups=heads if growing else groups,
            size=8 if growing else 16, vocabulary=r.choice([1, 2, 63, 64, 65, 320, 1025, 3000]),
            length=r.choice([8, 20, 70, 300]), seed=r.randrange(1000), positions=r.random() < 0.7,
        )  # fmt: skip
        (write_growing if growing else write)(self.decoder, folder)
        self.model = webgpu_ep.LanguageModel(folder, **options)
        exact = onnx.load(folder / "model.onnx")
        for node in exact.graph.node:
            for attribute in node.attribute:
                if attribute.name == "accuracy_level":
                    attribute.i = 1  # rows are not rounded to bytes
        self._cpu = ort.InferenceSession(exact.SerializeToString(), providers=["CPUExecutionProvider"])
        self._given = f"{self.decoder} growing={growing} {options}"

    def __str__(self) -> str:
        return self._given

    def ids(self, r: random.Random, count: int) -> list[int]:
        return [r.randrange(self.decoder.vocabulary) for _ in range(count)]

    def logits(self, ids: Row) -> np.ndarray:
        """(ids, vocabulary) of the CPU provider."""
        feeds: dict[str, np.ndarray] = {
            "input_ids": np.array([ids]),
            "attention_mask": np.ones((1, len(ids)), np.int64),
            "position_ids": np.arange(len(ids))[None],
        }
        inputs = self._cpu.get_inputs()
        for it in inputs:
            if it.name.startswith("past"):
                dtype = np.float16 if "float16" in it.type else np.float32
                feeds[it.name] = np.zeros([1, it.shape[1], 0, it.shape[3]], dtype)
        found = self._cpu.run(["logits"], {it.name: feeds[it.name] for it in inputs})[0]
        return np.asarray(found)[0].astype(np.float64)

    def check(self, before: Row, new: Row, how: dict[str, Any], uniforms: Row | np.ndarray) -> None:
        """`new` are ids that may be picked behind `before`."""
        if not new:
            return
        every = self.logits([*before, *new[:-1]])[len(before) - 1 :]
        seen = np.zeros(self.decoder.vocabulary, bool)
        seen[list(before)] = True
        penalty = how.get("repetition_penalty", 1.0)
        error = TOLERANCE[self.decoder.kind] * max(penalty, 1 / penalty)
        for x, token, uniform in zip(every, new, uniforms, strict=False):
            y = np.where(seen, np.where(x > 0, x / penalty, x * penalty), x)
            seen[token] = True
            if "temperature" not in how:
                assert y[token] >= y.max() - 2 * error, f"{token} of {y[token]}, not {y.argmax()} of {y.max()}"
            else:
                random_errors = np.random.default_rng(0)
                errors = (error * k * random_errors.uniform(-1, 1, y.shape) for k in [0, *[1] * TRIALS])
                found = (token in _drawn(y + it, how, uniform, max(1e-5, error / 10)) for it in errors)
                assert any(found), f"{token} at {uniform}"


def _drawn(x: np.ndarray, how: dict[str, Any], uniform: float, slack: float) -> set[int]:
    """The ids whose share of the probability has a place near `uniform`."""
    top_k, top_p = how.get("top_k", 0), how.get("top_p", 1.0)
    count = min(top_k or (CANDIDATES if top_p < 1 else len(x)), len(x))
    in_order = count < len(x) or top_p < 1
    order = np.argsort(-x, kind="stable")[:count] if in_order else np.arange(len(x))
    p = np.exp((x[order] - x.max()) / how["temperature"])
    p = np.where(p < how.get("min_p", 0), 0, p / p.sum())  # the largest was 1
    if top_p < 1:
        p = np.where(np.cumsum(p) - p < top_p * p.sum(), p, 0)
    sums = np.cumsum(p)
    near = (sums > (uniform - slack) * sums[-1]) & (sums - p < (uniform + slack) * sums[-1]) & (p > 0)
    return {int(it) for it in order[near]}


def _sampling(r: random.Random) -> dict[str, Any]:
    how: dict[str, Any] = {}
    if r.random() < 0.6:
        how |= {"temperature": r.choice([0.3, 1.0, 2.5]), "seed": r.randrange(1000)}
        more = {"top_k": [1, 5, 50, 2000], "top_p": [0.1, 0.7, 0.99], "min_p": [0.1]}
        how |= {name: r.choice(values) for name, values in more.items() if r.random() < 0.4}
    return how | ({"repetition_penalty": r.choice([1.3, 0.7, 5.0])} if r.random() < 0.35 else {})


class Asked:
    """Texts of a model that are being picked together, behind what the caches of `state` have."""

    def __init__(self, m: Model, r: random.Random, state: State | None = None) -> None:
        self.m = m
        self.state = state or State(m.model.decoder, r.choice([1, 1, 2, 3, 5]))
        self.before, room = self.state.ids, m.decoder.length
        longest = max(1, min(room - max(map(len, self.before)), r.choice([1, 2, 5, 17, 40])))
        alike = any(self.before) or r.random() < 0.5
        lengths = [longest if alike or not k else r.randrange(1, longest + 1) for k in range(self.state.batch)]
        self.prompts = [m.ids(r, it) for it in lengths]
        self.how, self.count = _sampling(r), r.choice([None, 1, 2, 7, 30, 30])
        self.ends = m.ids(r, 3) if m.decoder.vocabulary > 50 and r.random() < 0.25 else []
        self.found: list[list[int]] = [[] for _ in self.prompts]
        self.tokens = m.model.tokens(
            self.prompts, max_new_tokens=self.count, state=self.state, ends=self.ends, **self.how
        )

    def some(self, count: int = 1 << 30) -> bool:
        """Picks so many ids; whether there may be more."""
        for _ in range(count):
            found = next(self.tokens, None)
            if found is None:
                self._check_length()
                return False
            self.found[found[0]].append(found[1])
        return True

    def check(self) -> None:
        """The text may be left here."""
        self.tokens.close()
        numbers, rows = np.random.default_rng(self.how.get("seed", 0)), np.empty((len(self.found), 1), np.float32)
        drawn = [numbers.random(None, np.float32, rows).copy() for _ in range(max(map(len, self.found)))]
        try:
            for k, (before, prompt, new) in enumerate(zip(self.before, self.prompts, self.found, strict=True)):
                assert not set(new) & set(self.ends)
                self.m.check([*before, *prompt], new, self.how, [float(it[k, 0]) for it in drawn])
        except AssertionError as error:
            raise AssertionError(f"{error}: {self}") from None

    def _check_length(self) -> None:
        longest = max(len(b) + len(p) for b, p in zip(self.before, self.prompts, strict=True))
        most = self.m.decoder.length - longest + 1
        wanted = most if self.count is None else min(most, self.count)
        assert self.ends or [*map(len, self.found)] == [wanted] * len(self.found), f"{self}"

    def __str__(self) -> str:
        lengths = [[*map(len, it)] for it in (self.before, self.prompts, self.found)]
        return f"{self.m}: {lengths} ids before, of prompts and found; {self.how} count={self.count} ends={self.ends}"


class Program:
    """What one seed does."""

    def __init__(self, seed: int, scratch: Path) -> None:
        self.r = r = random.Random(seed)
        options: list[dict[str, Any]] = [{}, {}, {"deviceId": 7}, {"enableGraphCapture": 1}]
        self.models = [Model(r, scratch / str(k), r.choice(options)) for k in range(r.choice([1, 1, 2]))]

    def run(self) -> None:
        steps = [self.alone, self.left, self.in_turns, self.on_threads, self.continued, self.lost]
        for step in self.r.choices(steps, [4, 2, 4, 2, 4, 1], k=self.r.choice([4, 8])):
            step()

    def asked(self, state: State | None = None) -> Asked:
        return Asked(self.r.choice(self.models), self.r, state)

    def alone(self) -> None:
        it = self.asked()
        it.some()
        it.check()

    def left(self) -> None:
        it = self.asked()
        it.some(self.r.randrange(1, 40))
        it.check()

    def in_turns(self) -> None:
        every = [self.asked() for _ in range(self.r.choice([2, 3]))]
        going = list(every)
        while going:
            it = self.r.choice(going)
            if not it.some(self.r.choice([1, 1, 2, 5])) or self.r.random() < 0.01:
                going.remove(it)
        for it in every:
            it.check()

    def on_threads(self) -> None:
        every = [self.asked() for _ in range(self.r.choice([2, 3, 4]))]
        in_threads(lambda it: it.some(), every)
        for it in every:
            it.check()

    def continued(self) -> None:
        m = self.r.choice(self.models)
        state = State(m.model.decoder, self.r.choice([1, 1, 2, 3]))
        for _ in range(self.r.choice([2, 3, 4])):
            longest = max(map(len, state.ids))
            if longest + 2 >= m.decoder.length:
                return
            if longest and m.model.decoder.in_place and self.r.random() < 0.5:
                state.rewind(self.r.randrange(1, longest + 1))
            it = Asked(m, self.r, state)
            it.some(self.r.choice([3, 30, 1000]))
            it.check()
            for before, prompt, new, ids in zip(it.before, it.prompts, it.found, state.ids, strict=True):
                assert it.ends or ids == [*before, *prompt, *new][: len(ids)], f"the caches have {ids}: {it}"

    def lost(self) -> None:
        it = self.asked()
        if it.some(self.r.randrange(1, 40)):
            lose(state_of(it.m.model.decoder.session).device())
        it.tokens.close()
        for _ in range(3):  # what meets the loss first says so
            it = Asked(it.m, self.r)
            try:
                it.some()
            except DeviceLostError:
                continue
            return it.check()
        raise AssertionError(f"a device is lost for ever: {it}")


def run(seed: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        generate.CHUNK = random.Random(seed).choice([1024, 1024, 3])
        Program(seed, Path(scratch)).run()


if __name__ == "__main__":
    sys.exit(run_programs(run, int(sys.argv[1]), int(sys.argv[2])))
