"""Device tensors as inputs and outputs of runs, and shared between sessions and threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from onnxruntime_ep_wgpu.device import Device, adapters, context_of
from onnxruntime_ep_wgpu.plugin.abi import NULL, Logger
from onnxruntime_ep_wgpu.plugin.assign.ort_format import CopyGuard
from onnxruntime_ep_wgpu.plugin.callbacks import held
from onnxruntime_ep_wgpu.plugin.group import CompiledGroup
from onnxruntime_ep_wgpu.plugin.memory import allocation, pool
from onnxruntime_ep_wgpu.plugin.memory import space as memory
from onnxruntime_ep_wgpu.plugin.memory.allocation import Located, copy
from onnxruntime_ep_wgpu.plugin.node import ComputeInfo
from onnxruntime_ep_wgpu.plugin.provider import Provider
from tests import patience

from . import models
from .fakes import Fake
from .tensors import empty, on_device

RNG = np.random.default_rng(2)
X = RNG.standard_normal((5, 8), np.float32)
OpenSession = Callable[..., ort.InferenceSession]


def device_of(value: ort.OrtValue) -> Device:
    """Where a tensor lies."""
    return memory.space().read(value.data_ptr(), 1).device


def test_inputs_and_outputs_are_bound_to_device_tensors(open_session: OpenSession) -> None:
    session = open_session(models.chain())
    binding = session.io_binding()
    x, y = on_device(X), empty([5, 8])
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    for factor in (1, 2, 3):
        x.update_inplace(X * factor)
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(y.numpy(), models.chain_reference(X * factor), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["webgpu", "gpu"])
def test_an_output_is_bound_to_the_device_by_name(open_session: OpenSession, name: str) -> None:
    session = open_session(models.chain())
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", name, 0)
    for _ in range(3):
        session.run_with_iobinding(binding)
        (value,) = binding.get_outputs()
        assert memory.space().owns(value.data_ptr())
        np.testing.assert_allclose(value.numpy(), models.chain_reference(X), rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], value.numpy())
    binding.synchronize_inputs()
    binding.synchronize_outputs()


def test_a_device_tensor_is_fed_to_a_plain_run(open_session: OpenSession) -> None:
    session = open_session(models.square())
    got = session.run_with_ort_values(None, {"x": on_device(X)})[0].numpy()
    np.testing.assert_array_equal(got, X * X)


def test_input_and_output_may_be_one_tensor(open_session: OpenSession) -> None:
    """WebGPU forbids reading and writing one buffer in a dispatch; the result is right all the same."""
    session = open_session(models.square())
    value = on_device(X)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_ortvalue_output("y", value)
    want = X
    for _ in range(3):
        session.run_with_iobinding(binding)
        want = want * want
        np.testing.assert_allclose(value.numpy(), want, rtol=1e-5)


def test_a_part_of_a_device_tensor_is_bound_by_address(open_session: OpenSession) -> None:
    session = open_session(models.square())
    both = np.concatenate([X, -3 * X])
    value, out = on_device(both), empty([10, 8])
    binding = session.io_binding()
    for start in (0, X.nbytes, 0):
        binding.bind_input("x", "webgpu", 0, np.float32, [5, 8], value.data_ptr() + start)
        binding.bind_output("y", "webgpu", 0, np.float32, [5, 8], out.data_ptr() + start)
        session.run_with_iobinding(binding)
    np.testing.assert_array_equal(out.numpy(), both * both)
    np.testing.assert_array_equal(value.numpy(), both)


def test_sessions_hand_tensors_to_each_other(open_session: OpenSession) -> None:
    first, second = open_session(models.square()), open_session(models.chain())
    between, end = empty([5, 8]), empty([5, 8])
    one, two = first.io_binding(), second.io_binding()
    one.bind_cpu_input("x", X)
    one.bind_ortvalue_output("y", between)
    two.bind_ortvalue_input("x", between)
    two.bind_ortvalue_output("y", end)
    first.run_with_iobinding(one)
    del first, one
    second.run_with_iobinding(two)
    np.testing.assert_allclose(end.numpy(), models.chain_reference(X * X), rtol=1e-4, atol=1e-3)


def test_tensors_of_another_device_move_to_the_session_that_uses_them(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory that belongs to no session lies on one device. A session on another one has it moved once: no later run copies it."""
    lines: list[str] = []
    monkeypatch.setattr(Logger, "log", lambda self, level, line: lines.append(line))
    session = open_session(models.square(), {"deviceId": "7"})
    x, y = on_device(X), empty([5, 8])
    assert device_of(x) is not context_of(adapters()[0], 7).device()
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    moved: list[int] = []

    def noted(source: Located, destination: Located, nbytes: int) -> None:
        moved.append(nbytes)
        copy(source, destination, nbytes)

    monkeypatch.setattr(allocation, "copy", noted)
    for _ in range(3):
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(y.numpy(), X * X)
    assert moved == [x.numpy().nbytes] and not any("the session uses a device of" in it for it in lines)
    assert device_of(x) is device_of(y) is context_of(adapters()[0], 7).device()
    np.testing.assert_array_equal(x.numpy(), X)


def test_tensors_that_sessions_on_two_devices_use_are_copied_and_the_log_says_so(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(Logger, "log", lambda self, level, line: lines.append(line))
    sessions = [open_session(models.square(), {"deviceId": "7"}), open_session(models.square())]
    x, y = on_device(X), empty([5, 8])
    bindings = [it.io_binding() for it in sessions]
    for binding in bindings:
        binding.bind_ortvalue_input("x", x)
        binding.bind_ortvalue_output("y", y)
    for _ in range(6):
        for session, binding in zip(sessions, bindings, strict=True):
            session.run_with_iobinding(binding)
            np.testing.assert_array_equal(y.numpy(), X * X)
            np.testing.assert_array_equal(x.numpy(), X)
    (said,) = (line for line in lines if "the session uses a device of" in line)
    assert said.startswith("input 'x' is on a device of wgpu-native") and "each run copies it" in said


def test_threads_on_two_devices_read_a_tensor_while_it_moves(open_session: OpenSession) -> None:
    """Its buffer before is no other tensor's as long as a run on another thread may read it. Beside them others take buffers."""
    sessions = [open_session(models.square(), {"deviceId": "7"}), open_session(models.square())]
    wrong: list[np.ndarray] = []

    def read(session: ort.InferenceSession, x: ort.OrtValue) -> None:
        binding, y = session.io_binding(), empty([5, 8])
        binding.bind_ortvalue_input("x", x)
        binding.bind_ortvalue_output("y", y)
        for _ in range(4):
            session.run_with_iobinding(binding)
            check(y.numpy(), X)

    def take(session: ort.InferenceSession) -> None:
        for factor in range(2, 6):
            check(session.run(None, {"x": X * factor})[0], X * factor)

    def check(got: np.ndarray, x: np.ndarray) -> None:
        if not np.array_equal(got, x * x):
            wrong.append(got)

    for _ in range(10):
        shared = on_device(X)
        threads = [threading.Thread(target=read, args=(it, shared)) for it in sessions]
        threads += [threading.Thread(target=take, args=(it,)) for it in sessions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


@pytest.mark.parametrize("part", range(3))
def test_a_part_of_a_tensor_moves_with_the_rest_of_it(devices: list[Any], part: int) -> None:
    """ONNX Runtime puts several tensors into one allocation, some of which are in one buffer."""
    whole = np.arange(3 * X.size, dtype=X.dtype)
    value = on_device(whole)
    at, nbytes = value.data_ptr() + part * X.nbytes, X.nbytes
    there = context_of(adapters()[0], 7).device()
    found = memory.space().move(at, nbytes, there, "a part", keeps=False)
    assert found is not None and found.device is there
    np.testing.assert_array_equal(value.numpy(), whole)


def test_a_group_whose_results_have_sizes_from_data_moves_them_too(
    open_session: OpenSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(Logger, "log", lambda self, level, line: lines.append(line))
    nodes = [models.node("NonZero", ["x"], ["y"], "places")]
    built = models.model(nodes, [("x", models.FLOAT, ["A", "B"])], [("y", models.INT64, [2, "N"])])
    binding = (session := open_session(built, {"deviceId": "7"})).io_binding()
    x = on_device(X)
    binding.bind_ortvalue_input("x", x)
    binding.bind_output("y", "cpu")
    for _ in range(2):
        session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], np.nonzero(X))
    assert device_of(x) is context_of(adapters()[0], 7).device()
    assert not any("the session uses a device of" in it for it in lines)


def test_small_tensors_from_the_host_are_known_on_the_host(
    fake: Fake, open_session: OpenSession, devices: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shape that the host uploaded is not read back from the device, where C code has not had its memory before."""
    monkeypatch.setattr(pool.Owner, "pools", property(lambda self: False))
    nodes = [models.node("Reshape", ["x", "s"], ["r"], "reshape"), models.node("Relu", ["r"], ["y"], "relu")]
    model = models.model(
        nodes, [("x", models.FLOAT, ["N"]), ("s", models.INT64, [2])], [("y", models.FLOAT, ["A", "B"])]
    )
    session = open_session(model)
    (executable,) = fake.executables
    for shape in ([5, 8], [8, 5], [5, 8]):
        session.run(None, {"x": X.reshape(-1), "s": np.array(shape)})
        value, downloads = executable.host_values[-1]
        assert (value.tolist(), downloads) == (shape, 0)


def test_small_tensors_from_the_device_are_read_back(fake: Fake, open_session: OpenSession) -> None:
    """Here the first group makes the shape, on the device; the second one needs it on the host."""
    nodes = [
        models.node("Abs", ["s"], ["t"], "abs"),
        models.node("Relu", ["x"], ["r"], "relu"),
        models.node("Softmax", ["r"], ["p"], "softmax", axis=0),
        models.node("Reshape", ["p", "t"], ["y"], "reshape"),
    ]
    inputs = [("x", models.FLOAT, [4]), ("s", models.INT64, [2])]
    outputs = [("y", models.FLOAT, ["A", "B"]), ("t", models.INT64, [2])]
    session = open_session(models.model(nodes, inputs, outputs))
    for shape in ([-2, 2], [-4, 1]):
        y, t = session.run(None, {"x": np.ones(4, np.float32), "s": np.array(shape)})
        assert list(y.shape) == t.tolist() == [abs(size) for size in shape]


def test_host_pointers_are_accepted_by_a_compiled_group(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, open_session: OpenSession
) -> None:
    """ONNX Runtime passes host memory when its own Memcpy kernels are used, and may at any other time."""

    def no_kernels(self: Provider, out: Any) -> None:
        out[0] = NULL

    monkeypatch.setattr(Provider, "get_kernel_registry", no_kernels)
    monkeypatch.setattr(CopyGuard, "check_copies", lambda self: None)
    session = open_session(models.mixed())
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, {"x": X})[0], models.mixed_reference(X), rtol=1e-4, atol=1e-5)


def test_memory_that_onnx_runtime_did_not_get_is_an_error(
    monkeypatch: pytest.MonkeyPatch, open_session: OpenSession
) -> None:
    """ONNX Runtime does not look at what Alloc returns."""
    session = open_session(models.square())
    monkeypatch.setattr(memory.AddressSpace, "reserve", lambda *_: None)
    with pytest.raises(Exception, match=r"null pointer|no memory|Failed to allocate"):
        session.run(None, {"x": X})
    monkeypatch.undo()
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * X)


def test_memory_is_given_back(open_session: OpenSession) -> None:
    session = open_session(models.mixed())
    session.run(None, {"x": X})
    before = memory.space().bytes_in_use
    for rows in (5, 50, 500, 5):
        session.run(None, {"x": np.ones((rows, 8), np.float32)})
    assert memory.space().bytes_in_use == before


WAYS = pytest.mark.parametrize("alias", [False, True], ids=["without memory pattern", "with memory pattern"])


@WAYS
@pytest.mark.parametrize("with_fake", [False, True], ids=["kernels", "stand-in"])
def test_several_groups_give_right_results_run_after_run(
    open_session: OpenSession,
    alias: bool,
    with_fake: bool,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the second run on ONNX Runtime's memory pattern puts the tensors of a run into one allocation."""
    if with_fake:
        request.getfixturevalue("fake")
    written: list[int] = []
    write = memory.AddressSpace.write

    def noted(self: memory.AddressSpace, address: int, nbytes: int, *what: str) -> Located:
        if address not in self._allocations:
            written.append(address)
        return write(self, address, nbytes, *what)

    monkeypatch.setattr(memory.AddressSpace, "write", noted)
    session = open_session(models.crossing(), {"forceCpuNodeNames": "softmax"}, alias=alias)
    for rows in (5, 5, 5, 9, 9, 5):
        x = RNG.standard_normal((rows, 8), np.float32)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], models.crossing_reference(x), rtol=1e-4, atol=1e-5)
    assert bool(written) == alias, "addresses inside an allocation are what this is about"


@WAYS
def test_the_runtime_need_not_separate_inputs_from_outputs(open_session: OpenSession, alias: bool) -> None:
    session = open_session(models.crossing(), {"forceCpuNodeNames": "softmax"}, alias=alias)
    nodes = [it for it in list(held.values()) if isinstance(it, ComputeInfo) and isinstance(it.group, CompiledGroup)]
    assert nodes
    copied = sum(it.group.on_device().executable.copied_inputs for it in nodes)
    for _ in range(4):
        np.testing.assert_allclose(session.run(None, {"x": X})[0], models.crossing_reference(X), rtol=1e-4, atol=1e-5)
    assert sum(it.group.on_device().executable.copied_inputs for it in nodes) == copied


def test_eight_threads_share_a_session_and_its_device(open_session: OpenSession) -> None:
    session = open_session(models.mixed(), {"forceCpuNodeNames": "softmax"}, alias=True)
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            mine = np.random.default_rng(seed)
            for _ in range(12):
                x = mine.standard_normal((int(mine.integers(1, 9)), 8), np.float32)
                np.testing.assert_allclose(
                    session.run(None, {"x": x})[0], models.mixed_reference(x), rtol=1e-4, atol=1e-5
                )
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_sessions_are_made_and_dropped_in_threads(open_session: OpenSession) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(3):
                session = open_session(models.chain())
                np.testing.assert_allclose(
                    session.run(None, {"x": X})[0], models.chain_reference(X), rtol=1e-4, atol=1e-4
                )
                del session
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_asynchronous_runs_and_parallel_execution_work(open_session: OpenSession) -> None:
    session = open_session(models.mixed(), execution_mode=ort.ExecutionMode.ORT_PARALLEL, inter_op_num_threads=2)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], models.mixed_reference(X), rtol=1e-4, atol=1e-5)
    done, results = threading.Event(), []

    def finished(outputs: Any, _data: Any, error: str) -> None:
        results.append((outputs, error))
        done.set()

    session.run_async(None, {"x": X}, finished, None)
    assert done.wait(patience.SECONDS)
    ((outputs, error),) = results
    assert error == ""
    np.testing.assert_allclose(outputs[0], models.mixed_reference(X), rtol=1e-4, atol=1e-5)
