"""Weights in files are read while a session is made."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu import platform
from onnxruntime_ep_wgpu.runtime.read_ahead import LEAST_BYTES, PIECE_BYTES, ReadAhead
from onnxruntime_ep_wgpu.runtime.weight_file import FileRange
from tests import patience
from tests.plugin import models

PLENTY = 1 << 40


class Asked:
    """What the system was asked to read, in order; `after` is called with each."""

    def __init__(self, expected: int, after: Callable[[], None] = lambda: None) -> None:
        self.parts: list[tuple[int, int]] = []
        self._expected, self._after, self._all = expected, after, threading.Event()

    def will_read(self, file: int, offset: int, nbytes: int) -> None:
        assert os.fstat(file).st_size >= offset + nbytes
        self.parts.append((offset, nbytes))
        self._after()
        if sum(count for _, count in self.parts) >= self._expected:
            self._all.set()

    def wait(self) -> None:
        assert self._all.wait(patience.SECONDS)


def watched(patch: pytest.MonkeyPatch, asked: Asked, free: int = PLENTY) -> None:
    patch.setattr(platform, "will_read", asked.will_read)
    patch.setattr(platform, "memory_for_files", lambda: free)


def test_a_session_has_its_weights_read_in_the_order_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces, each once, however often ONNX Runtime asks about the graph; small ones are read when they are needed."""
    chance = np.random.default_rng(0)
    shapes = {"w0": (8, 64), "w1": (64, 40_000), "w2": (40_000, 64), "w3": (64, 8192)}
    weights = [(name, chance.standard_normal(shape).astype(np.float32)) for name, shape in shapes.items()]
    names = ["x", "a", "b", "c", "y"]
    nodes = [models.node("MatMul", [names[k], f"w{k}"], [names[k + 1]]) for k in range(4)]
    given = [("x", models.FLOAT, ["n", 8])], [("y", models.FLOAT, ["n", 8192])]
    model = onnx.load_from_string(models.model(nodes, *given, weights))
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=0)
    large = [array.nbytes for _, array in weights if array.nbytes >= LEAST_BYTES]
    asked = Asked(sum(large))
    assert len(large) == 3 and max(large) > PIECE_BYTES
    watched(monkeypatch, asked)
    session = webgpu_ep.session(path)
    asked.wait()
    assert asked.parts == sorted(asked.parts)
    assert sum(count for _, count in asked.parts) == sum(large)
    assert max(count for _, count in asked.parts) == PIECE_BYTES
    x = chance.standard_normal((3, 8)).astype(np.float32)
    want = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=1e-3, atol=1e-2 * np.abs(want).max())


def made(path: Path, count: int) -> list[FileRange]:
    path.write_bytes(bytes(count * PIECE_BYTES))
    return [FileRange(path, number * PIECE_BYTES, PIECE_BYTES) for number in range(count)]


def test_half_of_the_memory_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranges, asked = made(tmp_path / "weights", 3), Asked(2 * PIECE_BYTES)
    watched(monkeypatch, asked, free=5 * PIECE_BYTES)
    ahead = ReadAhead()
    ahead.begin(ranges[::-1])
    asked.wait()
    ahead.begin([*ranges, FileRange(tmp_path / "weights", 1, PIECE_BYTES)])
    assert asked.parts == [(it.offset, it.nbytes) for it in ranges[:2]]


def test_a_session_that_ends_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = ReadAhead()
    asked = Asked(PIECE_BYTES, after=ahead.stop)
    watched(monkeypatch, asked)
    ahead._read(made(tmp_path / "weights", 3))
    assert len(asked.parts) == 1


def test_a_file_that_is_gone_is_left_to_who_needs_it(tmp_path: Path) -> None:
    ReadAhead()._read([FileRange(tmp_path / "none", 0, PIECE_BYTES)])


def test_the_system_says_what_is_free_or_takes_no_advice() -> None:
    free = platform.memory_for_files()
    assert free >= 0
    if free:
        with open(__file__, "rb") as file:
            platform.will_read(file.fileno(), 0, PIECE_BYTES)
