"""A capture is a run on the places of its tensors, which is done again, and says what does not fit."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.device import Place
from onnxruntime_ep_wgpu.program.dtypes import DType
from onnxruntime_ep_wgpu.runtime.executable import Executable
from onnxruntime_ep_wgpu.runtime.inputs import DeviceTensor
from tests.support import compile_model, device, make_model

F = np.float32
X = np.random.default_rng(7).standard_normal((4, 8), F)


@pytest.fixture(scope="module")
def executable() -> Executable:
    """y = softmax(x) + x over any number of rows."""
    nodes = [node("Softmax", ["x"], ["s"]), node("Add", ["s", "x"], ["y"])]
    return Executable(compile_model(make_model(nodes, {"x": (F, ["n", 8])})), device())


def reference(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) + x


def place(nbytes: int = X.nbytes, offset: int = 0) -> Place:
    return Place(device().buffer(nbytes + offset), offset)


def put(where: Place, x: np.ndarray) -> None:
    device().upload(*where, np.ascontiguousarray(x).tobytes())


def get(where: Place, shape: tuple[int, ...] = X.shape) -> np.ndarray:
    y = np.empty(shape, F)
    device().download(*where, y.reshape(-1).view(np.uint8).data)
    return y


def plan(executable: Executable, rows: int = 4):
    return executable.plan([DeviceTensor(DType.of_numpy(np.dtype(F)), (rows, 8), None)])


@pytest.mark.parametrize("kept", [(True, True), (True, False), (False, True), (False, False)])
def test_a_capture_runs_nothing_and_a_replay_what_was_captured(executable: Executable, kept: tuple[bool, bool]) -> None:
    x, y = place(), place()
    made = executable.capture(plan(executable), [x, y], kept)
    put(x, X)
    assert not get(y).any()
    for factor in (1, 2, 3):
        put(x, X * factor)
        assert made.difference(plan(executable), [x, y]) is None
        executable.replay(made, [x, y])
        np.testing.assert_allclose(get(y), reference(X * factor), rtol=1e-5)


def test_what_is_not_kept_may_lie_anywhere_each_time(executable: Executable) -> None:
    made = executable.capture(plan(executable), [place(), place()], (False, False))
    for offset in (0, 4, 256, 20):
        x, y = place(offset=offset), place(offset=3 * offset)
        put(x, X + offset)
        assert made.difference(plan(executable), [x, y]) is None
        executable.replay(made, [x, y])
        np.testing.assert_allclose(get(y), reference(X + offset), rtol=1e-5)


def test_what_is_kept_must_not_move_and_is_named(executable: Executable) -> None:
    x, y = place(), place()
    made = executable.capture(plan(executable), [x, y], (True, True))
    assert made.difference(plan(executable), [place(), y]) == "input 'x' is in other memory than when it was captured"
    assert "output 'y'" in str(made.difference(plan(executable), [x, (y[0], 16)]))
    assert "output 'y'" in str(made.difference(plan(executable), [x, None]))


def test_another_shape_is_a_difference(executable: Executable) -> None:
    x, y = place(), place()
    made = executable.capture(plan(executable), [x, y], (True, True))
    found = made.difference(plan(executable, 3), [x, y])
    assert found == "input 'x' has shape [3, 8], it was captured with [4, 8]"


@pytest.mark.parametrize(("start", "end"), [(0, 256), (4, 512), (256, 20)])
def test_kept_tensors_may_share_a_buffer_and_lie_where_the_adapter_cannot_bind(
    executable: Executable, start: int, end: int
) -> None:
    buffer = device().buffer(1024)
    x, y = Place(buffer, start), Place(buffer, end)
    made = executable.capture(plan(executable), [x, y], (True, True))
    for factor in (1, 2):
        put(x, X * factor)
        executable.replay(made, [x, y])
        np.testing.assert_allclose(get(y), reference(X * factor), rtol=1e-5)


def test_an_empty_tensor_has_no_place(executable: Executable) -> None:
    made = executable.capture(plan(executable, 0), [None, None], (False, False))
    assert made.difference(plan(executable, 0), [None, None]) is None
    executable.replay(made, [None, None])


def test_a_replay_makes_nothing(executable: Executable) -> None:
    x, y = place(), place()
    made = executable.capture(plan(executable), [x, y], (True, True))
    executable.replay(made, [x, y])
    before = device().counters
    for _ in range(10):
        executable.replay(made, [x, y])
    after = device().counters
    assert after["submits"] == before["submits"] + 10
    assert all(after[it] == before[it] for it in ("pipelines", "bind_groups", "buffers", "buffer_bytes"))


def test_a_plan_lives_as_long_as_its_capture(executable: Executable) -> None:
    x, y = place(), place()
    made = executable.capture(plan(executable), [x, y], (True, True))
    for rows in range(10, 60):
        plan(executable, rows)
    assert plan(executable) is made.plan
