"""ONNX Runtime's own session and run configuration: placement, fallback, ending runs early."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu import attempts
from onnxruntime_ep_wgpu.plugin.node import ComputeInfo

from . import models

X = np.random.default_rng(6).standard_normal((5, 8), np.float32)


def session(model: bytes, *entries: tuple[str, str], **options: Any) -> ort.InferenceSession:
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    for key, value in entries:
        settings.add_session_config_entry(key, value)
    return webgpu_ep.session(model, sess_options=settings, **options)


NO_FALLBACK = ("session.disable_cpu_ep_fallback", "1")
RECORD = ("session.record_ep_graph_assignment_info", "1")


def assigned(made: ort.InferenceSession) -> dict[str, str]:
    return {node.name: part.ep_name for part in made.get_provider_graph_assignment_info() for node in part.get_nodes()}


# Placement


def test_without_fallback_a_model_that_runs_here_is_made_and_runs() -> None:
    made = session(models.chain(), NO_FALLBACK)
    np.testing.assert_allclose(made.run(None, {"x": X})[0], models.chain_reference(X), rtol=1e-4, atol=1e-4)


def test_without_fallback_a_node_on_the_cpu_is_an_error_however_the_session_is_made(devices: list[Any]) -> None:
    with pytest.raises(Exception, match="fallback to CPU EP has been explicitly disabled"):
        session(models.chain(), NO_FALLBACK, forceCpuNodeNames="relu")
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    settings.add_session_config_entry(*NO_FALLBACK)
    settings.add_provider_for_devices(devices[:1], {"forceCpuNodeNames": "relu"})
    with pytest.raises(Exception, match="fallback to CPU EP has been explicitly disabled"):
        ort.InferenceSession(models.chain(), settings)


def test_the_recorded_assignment_names_every_node_and_agrees_with_the_report() -> None:
    made = session(models.chain(), RECORD, forceCpuNodeNames="relu")
    here = webgpu_ep.get_ep_name()
    assert assigned(made) == {"mul": here, "matmul": here, "relu": "CPUExecutionProvider", "add": here}
    assert assigned(made) == {node.name: node.provider for node in webgpu_ep.report(made).nodes}


def test_the_recorded_assignment_is_there_under_capture_and_without_fallback() -> None:
    made = session(models.chain(), RECORD, NO_FALLBACK, enableGraphCapture=1)
    assert set(assigned(made).values()) == {webgpu_ep.get_ep_name()}


def test_an_assignment_that_was_not_recorded_is_refused() -> None:
    with pytest.raises(Exception, match="record_ep_graph_assignment_info"):
        session(models.chain()).get_provider_graph_assignment_info()


# Ending a run early


@pytest.mark.parametrize("capture", [0, 1])
def test_a_run_that_is_ended_before_it_begins_raises_and_leaves_the_session_usable(capture: int) -> None:
    made = session(models.chain(), enableGraphCapture=capture)
    options = ort.RunOptions()
    for _ in range(3):
        options.terminate = True
        with pytest.raises(Exception, match="terminate flag"):
            made.run(None, {"x": X}, options)
        options.terminate = False
        got = made.run(None, {"x": X}, options)[0]
        np.testing.assert_allclose(got, models.chain_reference(X), rtol=1e-4, atol=1e-4)


def test_a_run_that_is_ended_between_its_groups_raises_and_leaves_the_session_usable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Or C code does the third run, and calls nothing here.
    monkeypatch.setattr(attempts.Attempts, "is_due", lambda *_: False)
    made = session(models.chain(), forceCpuNodeNames="relu")
    options = ort.RunOptions()
    compute, calls = ComputeInfo.compute, []

    def and_end(self: ComputeInfo, *arguments: Any) -> None:
        compute(self, *arguments)
        calls.append(self)
        options.terminate = True

    monkeypatch.setattr(ComputeInfo, "compute", and_end)
    for _ in range(3):
        options.terminate = False
        with pytest.raises(Exception, match="terminate flag"):
            made.run(None, {"x": X}, options)
    assert len(calls) == 3 and len(set(calls)) == 1
    monkeypatch.undo()
    for _ in range(3):
        np.testing.assert_allclose(made.run(None, {"x": X})[0], models.chain_reference(X), rtol=1e-4, atol=1e-4)


def test_a_run_may_be_ended_from_another_thread_at_any_moment() -> None:
    made = session(models.chain(), forceCpuNodeNames="relu")
    rows = np.tile(X, (2000, 1))
    wanted = models.chain_reference(rows)
    for turn in range(12):
        options = ort.RunOptions()
        timer = threading.Timer(turn * 0.001, lambda options=options: setattr(options, "terminate", True))
        timer.start()
        try:
            np.testing.assert_allclose(made.run(None, {"x": rows}, options)[0], wanted, rtol=1e-4, atol=1e-4)
        except ort.capi.onnxruntime_pybind11_state.Fail as error:
            assert "terminate flag" in str(error)
        timer.join()
    np.testing.assert_allclose(made.run(None, {"x": rows})[0], wanted, rtol=1e-4, atol=1e-4)
