"""A lost device: the runs that use it raise, the next run is right again on a new one, and what was on it is gone aloud."""

from __future__ import annotations

import queue
import re
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.device import Device
from onnxruntime_ep_wgpu.plugin.callbacks import held
from onnxruntime_ep_wgpu.plugin.group import CompiledGroup
from onnxruntime_ep_wgpu.plugin.node import ComputeInfo
from onnxruntime_ep_wgpu.runtime.weight_sources import InFile, InMemory
from tests import patience
from tests.support import compile_model

from . import models
from .loss import device_of, lose

X = np.random.default_rng(5).standard_normal((5, 8), np.float32)
OpenSession = Callable[..., ort.InferenceSession]
KINDS = ["inside the file", "in external data", "given as bytes"]


def chain(kind: str, folder: Path) -> Path | bytes:
    if kind == "given as bytes":
        return models.chain()
    path = folder / "model.onnx"
    external = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
    onnx.save(onnx.load_from_string(models.chain()), path, **(external if "external" in kind else {}))
    return path


def groups() -> list[CompiledGroup]:
    found = [it.group for it in list(held.values()) if isinstance(it, ComputeInfo)]
    return [it for it in found if isinstance(it, CompiledGroup)]


def run(session: Any, x: np.ndarray = X) -> None:
    np.testing.assert_allclose(session.run(None, {"x": x})[0], models.chain_reference(x), rtol=1e-4, atol=1e-4)


@pytest.mark.costly
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_on_a_lost_device_raises_and_the_next_one_is_right(kind: str, tmp_path: Path) -> None:
    session = webgpu_ep.session(chain(kind, tmp_path), deviceId=31)
    run(session)
    for _ in range(2):
        device = device_of(31)
        lose(device)
        with pytest.raises(webgpu_ep.DeviceLostError, match=rf"{re.escape(device.adapter.name)}.* was lost"):
            session.run(None, {"x": X})
        run(session)
        run(session, X[:2])
        assert device_of(31) is not device


def test_a_session_that_onnx_runtime_made_says_the_same_in_words(open_session: OpenSession) -> None:
    session = open_session(models.chain(), {"deviceId": "31"}, log_severity_level=4)
    run(session)
    lose(device_of(31))
    with pytest.raises(Exception, match=r"DeviceLostError: the device .* was lost"):
        session.run(None, {"x": X})
    run(session)


def test_all_groups_and_sessions_of_a_device_go_on_with_its_successor(open_session: OpenSession) -> None:
    sessions = [open_session(models.mixed(), {"deviceId": "31", "forceCpuNodeNames": "softmax"}) for _ in range(3)]
    wanted = models.mixed_reference(X)
    for session in sessions:
        np.testing.assert_allclose(session.run(None, {"x": X})[0], wanted, rtol=1e-4, atol=1e-5)
    lose(device_of(31))
    with pytest.raises(Exception, match="DeviceLostError"):
        sessions[0].run(None, {"x": X})
    for _ in range(3):
        for session in sessions:
            np.testing.assert_allclose(session.run(None, {"x": X})[0], wanted, rtol=1e-4, atol=1e-5)


def test_eight_threads_that_fail_at_once_rebuild_once(tmp_path: Path) -> None:
    before = set(map(id, groups()))
    session = webgpu_ep.session(chain(KINDS[0], tmp_path), deviceId=32)
    (group,) = (it for it in groups() if id(it) not in before)
    run(session)
    device = device_of(32)
    together, lost, failures = threading.Barrier(8), threading.Event(), []

    def work(number: int) -> None:
        together.wait(patience.SECONDS)
        for _ in range(20):
            if number == 0 and not lost.is_set():
                lose(device)
                lost.set()
            try:
                run(session)
            except webgpu_ep.DeviceLostError as error:
                failures.append(error)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert failures
    assert group.rebuilt == 1
    assert group.on_device().device is device_of(32) is not device


def test_threads_that_find_the_device_lost_wait_for_one_rebuild() -> None:
    made = []

    def current() -> Device:
        made.append(device_of(32))
        return made[-1]

    group = CompiledGroup(compile_model(onnx.load_from_string(models.chain())), current)
    lose(made[0])
    with pytest.raises(webgpu_ep.DeviceLostError):
        made[0].buffer(16)
        made[0].wait()
    together = threading.Barrier(8)

    def ask(_: int) -> object:
        together.wait(patience.SECONDS)
        return group.on_device()

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(ask, range(8)))) == 1
    assert len(made) == 2 and group.rebuilt == 1


def test_weights_in_the_model_file_are_not_kept_in_host_memory(tmp_path: Path) -> None:
    for kind in KINDS:
        before = set(map(id, groups()))
        session = webgpu_ep.session(chain(kind, tmp_path), deviceId=31)
        (group,) = (it for it in groups() if id(it) not in before)
        expected = InMemory if kind == "given as bytes" else InFile
        assert [type(source) for source in group.sources.by_name.values()] == [expected] * 2
        assert group.on_device().executable.program.weights == ()
        run(session)


@pytest.mark.costly
@pytest.mark.parametrize("kind", KINDS[:2])
def test_a_model_file_that_has_changed_meanwhile_is_an_error_that_says_so(kind: str, tmp_path: Path) -> None:
    path = chain(kind, tmp_path)
    session = webgpu_ep.session(path, deviceId=31)
    run(session)
    place = tmp_path / ("weights.bin" if "external" in kind else "model.onnx")
    content = place.read_bytes()
    weight = np.random.default_rng(0).standard_normal((8, 8), np.float32).tobytes()
    assert content.count(weight) == 1
    place.write_bytes(content.replace(weight, bytes(reversed(weight))))
    lose(device_of(31))
    with pytest.raises(webgpu_ep.DeviceLostError):
        session.run(None, {"x": X})
    for _ in range(2):
        with pytest.raises(webgpu_ep.ModelChangedError, match=rf"'w'.*{place.name}.*has changed"):
            session.run(None, {"x": X})
    place.unlink()
    with pytest.raises(webgpu_ep.ModelChangedError, match=rf"{place.name}.*cannot be read"):
        session.run(None, {"x": X})
    place.write_bytes(content)
    with pytest.raises(webgpu_ep.ModelChangedError, match=rf"{place.name}.*has changed.*create the session again"):
        session.run(None, {"x": X})  # nobody reads it to find out that it has the bytes that it had
    run(webgpu_ep.session(path, deviceId=31))


def on_device(session: Any, x: Any) -> Any:
    """The result of a run, left on the session's device; `x` is an array or such a result."""
    binding = session.io_binding()
    binding.bind_cpu_input("x", x) if isinstance(x, np.ndarray) else binding.bind_ortvalue_input("x", x)
    binding.bind_output("y", "webgpu")
    session.run_with_iobinding(binding)
    return binding.get_outputs()[0]


def test_values_that_a_caller_held_are_gone_and_say_so() -> None:
    squares, session = webgpu_ep.session(models.square(), deviceId=33), webgpu_ep.session(models.chain(), deviceId=33)
    small, large = on_device(squares, X), on_device(squares, np.ones((2000, 8), np.float32))
    np.testing.assert_allclose(on_device(session, small).numpy(), models.chain_reference(X * X), rtol=1e-4, atol=1e-4)
    lose(device_of(33))
    with pytest.raises(webgpu_ep.DeviceLostError):
        session.run(None, {"x": X})
    run(session)
    for value in (small, large):
        with pytest.raises(
            Exception, match=r"DeviceLostError: a tensor of \d+ bytes was on the device .*lost and must be computed"
        ):
            value.numpy()
    with pytest.raises(webgpu_ep.DeviceLostError, match=r"input 'x' of 160 bytes .* lost and must be computed"):
        on_device(session, small)
    small.update_inplace(X)
    np.testing.assert_allclose(on_device(session, small).numpy(), models.chain_reference(X), rtol=1e-4, atol=1e-4)


def test_losses_under_load_raise_and_end_neither_the_process_nor_the_session() -> None:
    """Threads encode, submit, wait for results and rebuild while the device is lost again and again."""
    session = webgpu_ep.session(models.slow(), deviceId=34)
    x = np.ones((64, 64), np.float32)
    expected = session.run(None, {"x": x})[0]
    stop, losses, failures = threading.Event(), 0, 0
    told = queue.SimpleQueue[tuple[int, BaseException | None]]()

    def work(_: int) -> None:
        while not stop.is_set():
            before = losses
            try:
                np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)
                told.put((before, None))
            except BaseException as error:
                told.put((before, error))
                if not isinstance(error, webgpu_ep.DeviceLostError):
                    raise

    def right_twice() -> None:
        """Waits for two runs that are right and began after the last loss."""
        nonlocal failures
        right = 0
        while right < 2:
            before, error = told.get(timeout=patience.SECONDS)
            assert error is None or isinstance(error, webgpu_ep.DeviceLostError), error
            right += error is None and before == losses
            failures += error is not None

    with ThreadPoolExecutor(4) as pool:
        for number in range(4):
            pool.submit(work, number)
        try:
            for _ in range(10):
                right_twice()
                lose(device_of(34))
                losses += 1
            right_twice()
        finally:
            stop.set()
    assert failures >= 10
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)


def test_an_error_that_is_kept_keeps_no_memory_of_the_device() -> None:
    """Its traceback has frames that held buffers."""
    nodes = [models.node("Add", ["a", "b"], ["y"])]
    shape = ["N", "M"]
    model = models.model(nodes, [("a", models.FLOAT, shape), ("b", models.FLOAT, shape)], [("y", models.FLOAT, shape)])
    session = webgpu_ep.session(model)
    with pytest.raises(webgpu_ep.InputError) as caught:
        session.run(None, {"a": np.ones((2, 3), np.float32), "b": np.ones((4, 3), np.float32)})
    frames = [frame for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    ours = [frame for frame in frames if frame.f_code.co_filename.endswith("node.py")]
    assert ours
    assert not any(frame.f_locals for frame in ours)
