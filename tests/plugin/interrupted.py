"""A process that is interrupted at random moments, thousands of times, while it runs, makes and drops what a user may.

In: how many bursts of interrupts, a seed, whose sessions. Out: one line, the number of interrupts; exit code 0. Anything else
on stdout or stderr, a hang, a wrong result or memory that was lost is a failure. An interrupt that is lost is a hang, too.
"""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.api.language.state import State
from onnxruntime_ep_wgpu.device import release_dead
from onnxruntime_ep_wgpu.plugin import watch
from onnxruntime_ep_wgpu.plugin.memory import space as memory
from tests.language.models import Decoder, write
from tests.plugin import models
from tests.plugin.loss import device_of
from tests.plugin.storms import uninterrupted

ROWS, TEXT = 40, 60
LOST_BYTES = 1 << 20  # what thousands of interrupts may leave behind in all


SENDER = """
import random, sys, time
from tests.plugin.storms import burst
chance, parent, sent = random.Random(int(sys.argv[1])), int(sys.argv[2]), 0
while asked := sys.stdin.buffer.raw.read(1):
    if asked == b"+":
        time.sleep(0.001 + chance.random() ** 3 * 0.008)
        sent += burst(parent, chance)
    else:
        sys.stdout.write(f"{sent}\\n")  # at once, also where PYTHONUNBUFFERED makes print() write twice
        sys.stdout.flush()
"""


class Sender:
    """A process that sends one to three interrupts, microseconds apart, whenever it is asked for `more`, while this one lives."""

    def __init__(self, seed: int) -> None:
        command = [sys.executable, "-S", "-c", SENDER, str(seed), str(os.getpid())]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._pipe, self._answers = self._process.stdin.fileno(), self._process.stdout.fileno()
        self.bursts = 0
        """How often it was asked; an interrupt may end `more` before it counts."""

    def more(self) -> None:
        os.write(self._pipe, b"+")
        self.bursts += 1

    def sent(self) -> int:
        """How many interrupts it has sent, all of them, as none is under way now.

        May be called again after an interrupt, unlike Popen.wait, whose lock one of those may leave taken.
        """
        os.write(self._pipe, b"?")
        return int(os.read(self._answers, 100).split()[-1])


def session_of(whose: str, model: bytes, **options: Any) -> Any:
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    if whose == "ours":
        return webgpu_ep.session(model, sess_options=settings, **options)
    settings.add_provider_for_devices(webgpu_ep.devices()[:1], {key: str(value) for key, value in options.items()})
    return ort.InferenceSession(model, settings, enable_fallback=0)


class Work:
    """What is interrupted. Every step checks its result."""

    def __init__(self, whose: str, seed: int) -> None:
        self.whose, self.random = whose, random.Random(seed)
        self.models = [(models.chain(), models.chain_reference), (models.mixed(), models.mixed_reference)]
        self.sessions = [
            (session_of(whose, model, sessionBufferPoolGenerations=self.random.randrange(3)), reference)
            for model, reference in self.models
        ]
        self.data = np.random.default_rng(seed).standard_normal((ROWS, 8), np.float32)
        self.bound: dict[int, Any] = {}
        with tempfile.TemporaryDirectory() as scratch:
            self.decoder = webgpu_ep.LanguageModel(write(Decoder(layers=1, length=TEXT), Path(scratch)))
        self.caches = State(self.decoder.decoder, 1)
        self.ids = [5, *(it for _, it in self.decoder.tokens([[5]], ends=(), state=self.caches))]

    def check(self, session: Any, reference: Callable[[np.ndarray], np.ndarray], rows: int) -> None:
        x = self.data[:rows]
        np.testing.assert_allclose(session.run(None, {"x": x})[0], reference(x), rtol=1e-4, atol=1e-4)

    def run(self) -> None:
        session, reference = self.random.choice(self.sessions)
        self.check(session, reference, self.random.randrange(1, ROWS))

    def tensors(self) -> None:
        x = self.data[: self.random.randrange(1, ROWS)]
        value = ort.OrtValue.ortvalue_from_numpy(x, "webgpu", 0)
        np.testing.assert_array_equal(value.numpy(), x)
        del value

    def binding(self) -> None:
        session, reference = self.sessions[0]
        x = self.data[: self.random.randrange(1, ROWS)]
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(x, "webgpu", 0))
        binding.bind_output("y", "webgpu", 0)
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(binding.get_outputs()[0].numpy(), reference(x), rtol=1e-4, atol=1e-4)

    def repeated(self) -> None:
        """Runs with the same tensors, which C code repeats."""
        rows = self.random.randrange(1, 4)
        if rows not in self.bound:
            x, y = (ort.OrtValue.ortvalue_from_numpy(self.data[:rows], "webgpu", 0) for _ in range(2))
            binding = self.sessions[0][0].io_binding()
            binding.bind_ortvalue_input("x", x)
            binding.bind_ortvalue_output("y", y)
            self.bound[rows] = binding, y
        binding, y = self.bound[rows]
        for _ in range(4):
            self.sessions[0][0].run_with_iobinding(binding)
        np.testing.assert_allclose(y.numpy(), self.sessions[0][1](self.data[:rows]), rtol=1e-4, atol=1e-4)

    def text(self) -> None:
        """A text that goes on from where an interrupt has left it, or before. C code submits most of its steps."""
        self.caches.rewind(self.random.randrange(1, min(int(self.caches.used[0]) + 1, TEXT)))
        (before,) = self.caches.ids
        first = len(before)
        assert before == self.ids[:first]
        more = self.random.randrange(1, TEXT - first + 2)
        text = self.decoder.tokens([self.ids[first:][:1]], ends=(), state=self.caches, max_new_tokens=more)
        assert [it for _, it in text] == self.ids[first + 1 :][:more]

    def another_session(self) -> None:
        model, reference = self.random.choice(self.models)
        try:
            session = session_of(self.whose, model)
        except Exception as error:
            # ONNX Runtime makes text of an interrupt while it makes a session; the interrupt itself follows.
            assert self.whose == "theirs" and "KeyboardInterrupt" in str(error), error
            return
        self.check(session, reference, 3)

    def step(self) -> None:
        often = [*[self.run] * 40, *[self.tensors] * 5, *[self.binding] * 5, *[self.repeated] * 10, *[self.text] * 4]
        self.random.choice([*often, self.another_session])()

    def everything(self) -> None:
        for session, reference in self.sessions:
            for rows in range(1, ROWS, 3):
                self.check(session, reference, rows)
        self.tensors()
        self.binding()
        for _ in range(8):
            self.repeated()
            self.text()
        self.another_session()


def held() -> tuple[int, int]:
    """Bytes on the device, and bytes of tensors that ONNX Runtime holds."""
    while gc.collect():  # finalisers may leave what the next collection finds
        pass
    release_dead()
    return device_of(0).counters["buffer_bytes"], memory.space().bytes_in_use


def storm(bursts: int, sender: Sender, work: Work) -> None:
    """Asks for a burst of interrupts and works until one comes, so often."""
    while sender.bursts < bursts:
        sender.more()
        while True:
            work.step()


def main(bursts: int, seed: int, whose: str) -> None:
    ort.set_default_logger_severity(4)
    work = Work(whose, seed)
    for _ in range(2):
        work.everything()
    before, live = held(), len(watch.live())
    sender = Sender(seed)

    def stormy() -> None:
        storm(bursts, sender, work)
        sender.sent()
        work.everything()  # the last interrupts may come while it does

    uninterrupted(stormy)  # one call: between two of them an interrupt would end this process
    work.everything()
    after = held()
    assert len(watch.live()) == live, (len(watch.live()), live)
    assert after[0] <= before[0] + LOST_BYTES and after[1] <= before[1] + LOST_BYTES, (before, after, sender.sent())
    print(sender.sent())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
