"""ONNX Runtime's profile of a session holds what the provider and the GPU did, on the same time line."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu import trace
from onnxruntime_ep_wgpu.device import adapters
from onnxruntime_ep_wgpu.device.adapters import Adapter
from onnxruntime_ep_wgpu.plugin import profiler
from onnxruntime_ep_wgpu.plugin.profiler import API, KERNEL

from . import models
from .c_api import Runtime

Event = dict[str, Any]
X = np.ones((2, 8), np.float32)

pytestmark = pytest.mark.skipif(
    int(ort.__version__.split(".")[1]) < 25, reason=f"onnxruntime {ort.__version__} has no profilers of providers"
)
timed = pytest.mark.skipif("timestamp-query" not in adapters()[0].features, reason="the adapter has no timestamps")


@pytest.fixture
def profiled(tmp_path: Path) -> Callable[..., ort.InferenceSession]:
    """Makes a session that ONNX Runtime profiles."""

    def make(model: bytes, **options: Any) -> ort.InferenceSession:
        settings = ort.SessionOptions()
        settings.enable_profiling = True
        settings.profile_file_prefix = str(tmp_path / "profile")
        settings.log_severity_level = 2
        return webgpu_ep.session(model, sess_options=settings, **options)

    return make


def events(session: ort.InferenceSession) -> list[Event]:
    return json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))


def of_kind(kind: str, found: list[Event]) -> list[Event]:
    """Our events of one kind, by time."""
    return sorted((it for it in found if it["args"].get("kind") == kind), key=lambda it: it["ts"])


def within(inner: Event, outer: Event) -> bool:
    # Times are cut to whole microseconds.
    return outer["ts"] - 1 <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 1


def runs(found: list[Event]) -> list[Event]:
    return sorted((it for it in found if it["name"] == "model_run"), key=lambda it: it["ts"])


@timed
def test_every_dispatch_is_an_event_with_its_operators_shapes_and_kernel(profiled: Any) -> None:
    session = profiled(models.chain())
    session.run(None, {"x": X})
    found = of_kind("dispatch", events(session))
    assert [it["args"]["operators"] for it in found] == ["Mul", "MatMul, LeakyRelu, Add"]
    assert [it["args"]["nodes"] for it in found] == ["mul", "matmul, relu, add"]
    assert {it["cat"] for it in found} == {"Kernel"}
    product = found[1]
    assert product["args"]["kernel"].startswith("matmul") and product["name"].startswith(product["args"]["kernel"])
    assert product["args"]["inputs"] == "float32[2, 8], float32[8, 8], float32[8]"
    assert product["args"]["outputs"] == "float32[2, 8]"
    assert int(product["args"]["flops"]) >= 2 * 2 * 8 * 8
    assert product["args"]["device"] == adapters()[0].name


@timed
def test_a_dispatch_lies_within_its_run_between_upload_and_download(profiled: Any) -> None:
    session = profiled(models.chain())
    for _ in range(3):
        session.run(None, {"x": X})
    found = events(session)
    assert len(runs(found)) == 3
    for run in runs(found):
        own = [it for it in found if "kind" in it["args"] and within(it, run)]
        dispatches = of_kind("dispatch", own)
        (upload,), (download,), (submit,) = (of_kind(kind, own) for kind in ("upload", "download", "submit"))
        assert len(dispatches) == 2
        assert upload["ts"] <= submit["ts"] <= dispatches[0]["ts"] <= dispatches[1]["ts"]
        assert dispatches[1]["ts"] + dispatches[1]["dur"] <= download["ts"] + download["dur"] + 1
        assert upload["args"]["bytes"] == download["args"]["bytes"] == "64"
    assert len(of_kind("dispatch", found)) == 6


@pytest.mark.parametrize("late", [0, 1])
def test_what_a_run_does_is_not_before_the_end_of_the_last_one(
    profiled: Any, monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    """Also where a busy machine lets the clock be read late when profiling starts."""
    now, delays = time.perf_counter_ns, iter([late * 10**9])
    monkeypatch.setattr(profiler, "time", SimpleNamespace(perf_counter_ns=lambda: now() + next(delays, 0)))
    session = profiled(models.chain())
    for _ in range(2):
        session.run(None, {"x": X})
    found = events(session)
    first = runs(found)[0]
    for kind in ("submit", "dispatch") if "timestamp-query" in adapters()[0].features else ("submit",):
        begins = [it["ts"] for it in of_kind(kind, found)]
        assert begins[0] < first["ts"] + first["dur"] <= begins[len(begins) // 2]


def test_compiling_and_planning_are_events_of_the_session_that_does_them(profiled: Any) -> None:
    session = profiled(models.square(columns=5))
    for rows in (2, 2, 3):
        session.run(None, {"x": np.ones((rows, 5), np.float32)})
    found = events(session)
    (initialization,) = (it for it in found if it["name"] == "session_initialization")
    (compiled,) = of_kind("compile", found)
    assert within(compiled, initialization)
    plans = of_kind("plan", found)
    assert [it["args"]["inputs"] for it in plans] == ["float32[2, 5]", "float32[3, 5]"]
    assert within(plans[0], runs(found)[0]) and within(plans[1], runs(found)[2])
    assert all(it["cat"] == "Api" and it["dur"] >= 0 for it in (compiled, *plans))


def test_events_of_the_cpu_are_on_the_thread_that_ran_the_session(profiled: Any) -> None:
    session = profiled(models.square())
    session.run(None, {"x": X})
    found = events(session)
    (run,) = runs(found)
    assert {it["tid"] for it in of_kind("submit", found)} == {run["tid"]}
    assert {it["pid"] for it in of_kind("submit", found)} == {run["pid"]}


def test_sessions_profiled_at_once_do_not_mix_their_events(profiled: Any) -> None:
    sessions = [profiled(models.square(columns=columns), deviceId=1500) for columns in (3, 4, 5)]
    barrier = threading.Barrier(len(sessions))

    def work(session: ort.InferenceSession, columns: int) -> None:
        for _ in range(10):
            barrier.wait()
            session.run(None, {"x": np.ones((2, columns), np.float32)})

    threads = [
        threading.Thread(target=work, args=(session, columns))
        for columns, session in zip((3, 4, 5), sessions, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for columns, session in zip((3, 4, 5), sessions, strict=True):
        found = events(session)
        assert len(of_kind("submit", found)) == 10
        assert {it["args"]["bytes"] for it in of_kind("upload", found)} == {str(2 * columns * 4)}
        assert {it["args"]["outputs"] for it in of_kind("dispatch", found)} <= {f"float32[2, {columns}]"}


@timed
def test_one_session_on_two_threads_has_the_events_of_both(profiled: Any) -> None:
    session = profiled(models.square())
    threads = [threading.Thread(target=session.run, args=(None, {"x": X})) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = events(session)
    assert len(of_kind("submit", found)) == len(of_kind("dispatch", found)) == 2
    assert {it["tid"] for it in of_kind("submit", found)} == {it["tid"] for it in runs(found)}


@timed
def test_results_that_stay_on_the_device_are_profiled_too(profiled: Any) -> None:
    session = profiled(models.square())
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "webgpu")
    for _ in range(2):
        session.run_with_iobinding(binding)
    found = events(session)
    submits, dispatches = of_kind("submit", found), of_kind("dispatch", found)
    assert len(submits) == len(dispatches) == 2
    assert all(submit["ts"] <= dispatch["ts"] for submit, dispatch in zip(submits, dispatches, strict=True))
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), X * X)


def test_a_session_beside_a_profiled_one_is_not_in_its_profile(profiled: Any, open_session: Any) -> None:
    session, other = profiled(models.square(columns=3)), open_session(models.square(columns=4))
    session.run(None, {"x": np.ones((2, 3), np.float32)})
    other.run(None, {"x": np.ones((2, 4), np.float32)})
    with pytest.raises(Exception, match="invalid dimensions"):  # ONNX Runtime never says that this run ended
        session.run(None, {"x": np.ones((2, 9), np.float32)})
    other.run(None, {"x": np.ones((2, 4), np.float32)})
    session.run(None, {"x": np.ones((2, 3), np.float32)})
    found = events(session)
    assert {it["args"]["bytes"] for it in of_kind("upload", found)} == {"24"}
    assert len(of_kind("submit", found)) == 2
    assert trace.listeners() == ()


def test_nothing_is_recorded_without_profiling(open_session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def heard(*_: Any) -> None:
        raise AssertionError("something was recorded")

    monkeypatch.setattr(trace.Recorder, "add", heard)
    monkeypatch.setattr(trace.Recorder, "dispatched", heard)
    session = open_session(models.chain())
    np.testing.assert_allclose(session.run(None, {"x": X})[0], models.chain_reference(X), rtol=1e-4, atol=1e-5)


def test_results_are_the_same_with_profiling(profiled: Any, open_session: Any) -> None:
    x = np.random.default_rng(3).standard_normal((5, 8)).astype(np.float32)
    plain = open_session(models.chain()).run(None, {"x": x})[0]
    np.testing.assert_array_equal(profiled(models.chain()).run(None, {"x": x})[0], plain)


@timed
def test_names_that_look_like_json_stay_text(profiled: Any) -> None:
    odd = '[odd] "name" \\ {'
    nodes = [helper.make_node("Mul", ["x", "x"], ["y"], odd)]
    model = models.model(nodes, [("x", models.FLOAT, [2, 8])], [("y", models.FLOAT, [2, 8])])
    session = profiled(model)
    session.run(None, {"x": X})
    assert {it["args"]["nodes"].strip() for it in of_kind("dispatch", events(session))} == {odd}


def test_an_adapter_without_timestamps_is_named_once_and_the_cpu_is_profiled(
    profiled: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = Adapter.target
    hidden = {"timestamp-query"}

    def target(self: Adapter, *settings: Any) -> Any:
        full = whole(self, *settings)
        object.__setattr__(full, "features", full.features - hidden)
        return full

    monkeypatch.setattr(Adapter, "target", target)
    session = profiled(models.square(), deviceId=1501)
    for _ in range(2):
        session.run(None, {"x": X})
    found = events(session)
    assert len(of_kind("submit", found)) == 2
    assert of_kind("dispatch", found) == []
    printed = capfd.readouterr()
    assert (printed.out + printed.err).count("has no timestamps (feature timestamp-query)") == 1
    assert adapters()[0].name in printed.out + printed.err


@pytest.fixture(scope="module")
def client() -> Runtime:
    return Runtime()


def test_a_single_run_can_be_profiled(client: Runtime, tmp_path: Path) -> None:
    client.register("profiling", webgpu_ep.get_library_path())
    session = client.session(models.square(), client.devices("WebGpuExecutionProvider")[0])
    client.run(session, X)
    client.run(session, X, profile=str(tmp_path / "run"))
    client.run(session, X)
    (path,) = tmp_path.iterdir()
    found = json.loads(path.read_text(encoding="utf-8"))
    assert len(of_kind("submit", found)) == 1
    for dispatch in of_kind("dispatch", found):
        assert dispatch["args"]["operators"] == "Mul"
    client.api.ReleaseSession(session)
    client.unregister("profiling")


def test_the_categories_are_those_that_onnx_runtime_knows() -> None:
    assert (KERNEL, API) == (2, 3)
