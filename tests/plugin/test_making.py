"""The making of a session as its user sees it: `on_progress`, and what `report` says of parts and pipelines."""

from __future__ import annotations

import gc
import weakref
from queue import SimpleQueue
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu import progress_line
from onnxruntime_ep_wgpu.runtime.progress import PARTS
from tests import patience, provider

from . import models

X = np.random.default_rng(0).standard_normal((2, 8), np.float32)


def test_progress_goes_through_the_parts_and_counts_bytes_and_pipelines() -> None:
    told: list[Any] = []
    session = webgpu_ep.session(models.chain(), deviceId=61, free_dimensions={"N": 2}, on_progress=told.append)
    assert list(dict.fromkeys(it.part for it in told)) == [*PARTS]
    weights = [(it.done, it.total) for it in told if it.part == "weights" and it.total]
    assert weights[-1] == (8 * 8 * 4 + 8 * 4,) * 2 and sorted(weights) == weights
    made = webgpu_ep.report(session).pipelines.at_creation.pipelines
    steps = [(it.done, it.total) for it in told if it.part == "pipelines" and it.total]
    assert steps == [(k + 1, made) for k in range(made)] and made
    assert [it.seconds for it in told] == sorted(it.seconds for it in told)
    told.clear()
    np.testing.assert_allclose(session.run(None, {"x": X})[0], models.chain_reference(X), rtol=1e-4, atol=1e-4)
    assert not told, "a run is no part of it"


@pytest.mark.parametrize("part", ["reading", "claiming", "compiling", "weights", "pipelines"])
def test_what_the_callback_raises_ends_the_making(part: str) -> None:
    class EnoughError(Exception):
        pass

    def stop(progress: Any) -> None:
        if progress.part == part:
            raise EnoughError(part)

    with pytest.raises(EnoughError, match=part):
        webgpu_ep.session(models.chain(), deviceId=62, on_progress=stop)
    session = webgpu_ep.session(models.chain(), deviceId=62)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], models.chain_reference(X), rtol=1e-4, atol=1e-4)


def test_the_callback_is_let_go_of_when_the_session_is_made() -> None:
    class Callback:
        def __call__(self, _progress: Any) -> None:
            pass

    callback = Callback()
    there = weakref.ref(callback)
    session = webgpu_ep.session(models.square(), on_progress=callback)
    del callback
    gc.collect()
    assert there() is None and session is not None


@pytest.mark.parametrize("made_by", ["session", "onnxruntime"])
def test_a_report_has_the_milliseconds_of_each_part(made_by: str) -> None:
    if made_by == "session":
        session: ort.InferenceSession = webgpu_ep.session(models.chain())
    else:
        session = provider.open_session(models.chain("made by onnxruntime"))
    found = webgpu_ep.report(session)
    assert [*found.creation] == [*PARTS, "total"]
    parts = [found.creation[name] for name in PARTS]
    assert min(parts) >= 0 and 0 < sum(parts) <= found.creation["total"] + 1e-6
    assert webgpu_ep.report(session).creation == found.creation, "it has an end"
    line = f"made in {found.creation['total']:.0f} ms: reading "
    assert line in str(found) and line in found._repr_html_()
    assert str(found.pipelines) in str(found)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> SimpleQueue[str]:
    """What is told, where people read and every piece of work takes long."""
    lines: SimpleQueue[str] = SimpleQueue()
    monkeypatch.setattr(progress_line, "SECONDS", float("-inf"))
    defaults = {"wanted": lambda: True, "waits": lambda _ended, seconds: seconds > 0, "out": lines.put}
    monkeypatch.setattr(
        progress_line.ProgressLine.__init__,
        "__kwdefaults__",
        progress_line.ProgressLine.__init__.__kwdefaults__ | defaults,
    )
    return lines


def next_of(told: SimpleQueue[str]) -> str:
    """The beginning of the next line, which another thread writes."""
    line = told.get(timeout=patience.SECONDS)
    return line.removeprefix("onnxruntime-ep-wgpu: ").partition(",")[0].partition(";")[0]


def test_a_session_and_its_first_run_are_told_of_once_each(told: SimpleQueue[str]) -> None:
    for _ in range(2):
        session = webgpu_ep.session(models.chain())
        assert next_of(told) == "a session is being made"
        session.run(None, {"x": X})
        assert next_of(told) == "the first run compiles kernels"
        session.run(None, {"x": X})


def test_a_program_that_shows_progress_itself_has_no_lines(told: SimpleQueue[str]) -> None:
    webgpu_ep.session(models.chain(), on_progress=lambda _: None).run(None, {"x": X})
    assert told.empty()
    webgpu_ep.session(models.square())
    assert next_of(told) == "a session is being made"


def test_runs_that_repeat_make_no_pipelines() -> None:
    session = webgpu_ep.session(models.chain(), deviceId=63)
    before = webgpu_ep.report(session).pipelines
    assert before.at_creation.pipelines
    for _ in range(3):
        session.run(None, {"x": X})
    once = webgpu_ep.report(session).pipelines
    for rows in (1, 2, 300, 7):
        session.run(None, {"x": np.ones((rows, 8), np.float32)})
    every = webgpu_ep.report(session).pipelines
    for rows in (300, 5, 2, 1):
        session.run(None, {"x": np.ones((rows, 8), np.float32)})
    assert webgpu_ep.report(session).pipelines == every
    assert every.at_creation == once.at_creation == before.at_creation


def test_where_all_sizes_are_known_runs_make_no_pipelines() -> None:
    session = webgpu_ep.session(models.chain(), deviceId=64, free_dimensions={"N": 2})
    made = webgpu_ep.report(session).pipelines
    assert made.at_creation.pipelines and not made.in_runs.pipelines
    session.run(None, {"x": X})
    assert webgpu_ep.report(session).pipelines == made


def test_a_kernel_that_does_not_compile_is_an_error_of_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxruntime_ep_wgpu.device.pipelines import Compiler

    whole = Compiler.compile

    def spoilt(self: Any, wgsl: str, bindings: Any, label: str, checked: bool) -> Any:
        return whole(self, wgsl.replace("fn main", "fn other"), bindings, label, checked)

    monkeypatch.setattr(Compiler, "compile", spoilt)
    with pytest.raises(webgpu_ep.ShaderError, match="does not compile"):
        webgpu_ep.session(models.chain(), deviceId=65, free_dimensions={"N": 2})
