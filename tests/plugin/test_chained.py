"""Which runs C code does again as one submission: those of which it knows every tensor, while these are what they were."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.api.language.memory import AdapterMemory, BoundRun, chain
from onnxruntime_ep_wgpu.plugin import memo

from . import models

MEMORY = AdapterMemory(0)
ONES = np.ones((64, 64), np.float32)
X = np.random.default_rng(0).standard_normal((3, 8), np.float32)


@pytest.fixture(scope="module")
def session() -> ort.InferenceSession:
    return webgpu_ep.session(models.chain())


def known(session: Any, x: Any, y: Any) -> BoundRun:
    """A run that C code has done."""
    run = BoundRun(session, {"x": x})
    run.write("y", y)
    for _ in range(8):
        run.run()
        if run.known is not None:
            return run
    raise AssertionError("C code does not repeat it")


def tensors() -> tuple[Any, Any, Any]:
    shape = models.chain_reference(X).shape
    return MEMORY.put(X), MEMORY.empty(shape, np.float32), MEMORY.put(np.array([[7], [8]]))


def test_runs_are_done_again_with_what_is_written_before_and_read_behind_them(session: ort.InferenceSession) -> None:
    (x, y, ids), given = tensors(), np.empty_like(X)
    made = chain([known(session, x, y)], ids, (x, given))
    assert made is not None
    for factor in (1, 2, 3):
        given[:] = factor * X
        assert made.submit() and not made.submit(), "one submission is on its way at a time"
        assert made.wait() == [7, 8]
        np.testing.assert_allclose(MEMORY.read(y), models.chain_reference(factor * X), rtol=1e-4, atol=1e-4)


def test_a_tensor_is_read_behind_what_has_been_submitted() -> None:
    _, _, ids = tensors()
    made = chain([], ids)
    assert made is not None
    for number in range(3):
        MEMORY.write(ids, np.array([[number], [9]]))
        assert made.submit()
        MEMORY.write(ids, np.array([[-1], [-1]]))
        assert made.wait() == [number, 9]


def test_runs_with_a_tensor_that_is_not_the_caller_s_make_no_chain(session: ort.InferenceSession) -> None:
    x, y, ids = tensors()
    run = known(session, x, y)
    of_another = known(session, *tensors()[:2])
    of_another.known = run.known
    assert chain([of_another], ids) is None
    run.outputs["z"] = ids  # which another node would have made
    assert chain([run], ids) is None
    del run.outputs["z"]
    assert chain([run], ids) is not None


def test_runs_that_python_has_done_make_no_chain(session: ort.InferenceSession) -> None:
    x, y, ids = tensors()
    run = BoundRun(session, {"x": x})
    run.write("y", y)
    run.run()
    assert run.known is None and chain([run], ids) is None


def test_a_chain_comes_between_no_parts_of_a_run() -> None:
    """They keep what is between their nodes in the same buffers."""
    session = webgpu_ep.session(models.slow())
    tensors = [(MEMORY.put(it), MEMORY.empty(it.shape, np.float32)) for it in (ONES, 2 * ONES)]
    run, other = (known(session, *it) for it in tensors)
    made, ended = chain([other], MEMORY.put(np.array([1]))), threading.Event()
    assert made is not None

    def submit() -> None:
        while not ended.is_set():
            assert made.submit() and made.wait() == [1]

    thread = threading.Thread(target=submit)
    thread.start()
    try:
        for _ in range(50):
            run.run()
            np.testing.assert_array_equal(MEMORY.read(tensors[0][1]), ONES)
    finally:
        ended.set()
        thread.join()
    np.testing.assert_array_equal(MEMORY.read(tensors[1][1]), 2 * ONES)


@pytest.mark.parametrize("how", ["the memo ends", "its place is another memo", "a host copy", "the session ends"])
def test_a_chain_is_refused_once_something_is_not_what_it_was(how: str) -> None:
    session = webgpu_ep.session(models.chain())
    x, y, ids = tensors()
    run = known(session, x, y)
    made = chain([run], ids)
    assert made is not None and made.submit() and made.wait() == [7, 8]
    if how == "a host copy":
        y.update_inplace(np.zeros(y.shape(), np.float32))  # which the next run would have to drop
    elif how == "the session ends":
        run._session = run.binding = session = None  # type: ignore[assignment]
    else:
        for node in memo.nodes:
            node.end_all()
        if how == "its place is another memo":
            assert known(session, x, y).known is not None
    assert not made.submit()
    assert MEMORY.read(ids).ravel().tolist() == [7, 8]
