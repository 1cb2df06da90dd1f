"""A run that C code repeats is submitted in parts: the GPU begins with the first dispatches while the others are finished. What is
refused meanwhile is an error, and nothing runs twice; work of others may come between the parts, and none that uses the same
buffers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import cffi
import numpy as np
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.device import Device, encoding
from onnxruntime_ep_wgpu.device.webgpu.header import new
from onnxruntime_ep_wgpu.device.webgpu.messages import errors
from tests import patience

from . import models
from .loss import device_of
from .test_memo import RANDOM, Bound, hits, made_by, repeats

LAYERS = 40
X = np.ones((1, 8), np.float32)
# Calls of the library, of which C code makes all three for a part.
FINISH, LOOK, SUBMIT = "wgpuCommandEncoderFinish", "wgpuQueueWriteBuffer", "submit"
KINDS = {
    FINISH: "void *(*)(void *, void *)",
    LOOK: "void (*)(void *, void *, uint64_t, void *, size_t)",
    SUBMIT: "uint64_t (*)(void *, size_t, void *)",
}
CHANCE = 0.5  # seconds in which another thread could go wrong: nothing that is right takes part of them
RECORD = {"wgpuDeviceCreateCommandEncoder": "void *(*)(void *, void *)"}
ffi = cffi.FFI()


def long() -> bytes:
    """A chain of products with a rotation, of which none is like another."""
    weight = np.linalg.qr(np.random.default_rng(0).standard_normal((8, 8)))[0].astype(np.float32)
    names = ["x", *(f"h{k}" for k in range(1, LAYERS)), "y"]
    nodes = [models.node("MatMul", [a, "w"], [b], b) for a, b in pairwise(names)]
    return models.model(nodes, [("x", models.FLOAT, ["N", 8])], [("y", models.FLOAT, ["N", 8])], [("w", weight)])


class Repeated(Bound):
    """Runs of a model with many dispatches, of which C code has repeated some. `in_place`: each goes on from what the last one
    gave."""

    def __init__(self, in_place: bool = False, **options: Any) -> None:
        session = webgpu_ep.session(long(), **options)
        x = made_by(session, X)
        super().__init__(session, 1, x, x if in_place else made_by(session, X))
        assert repeats(self.check) >= 3

    def begin(self) -> None:
        self.session.run_with_iobinding(self.binding)

    def check(self) -> None:
        before = self.x.numpy()
        self.begin()
        np.testing.assert_array_equal(self.y.numpy(), self.session.run(None, {"x": before})[0])


@contextmanager
def watched(
    before: Callable[[list[str]], None] = lambda _: None, kinds: dict[str, str] = KINDS, number: int = 0
) -> Iterator[list[str]]:
    """What this thread has C code call of the library of a device meanwhile, in order; `before` a call it is called with the names,
    this one the last."""
    names: list[str] = []
    queue = device_of(number).queue
    kept, here = [], threading.get_ident()
    for name, kind in kinds.items():
        submits = name == SUBMIT
        table = queue.tickets.functions if submits else encoding.functions_of(queue.library)
        place = 0 if submits else encoding._FUNCTIONS.index(name)
        call = ffi.cast(kind, table[place])

        def watch(*arguments: Any, name: str = name, call: Any = call) -> Any:
            if threading.get_ident() == here:
                names.append(name)
                before(names)
            return call(*arguments)

        watcher = ffi.callback(kind, watch)
        kept.append((watcher, table, place, table[place]))
        table[place] = int(ffi.cast("uintptr_t", watcher))
    try:
        yield names
    finally:
        for _, table, place, function in kept:
            table[place] = function


def refuse(device: Device) -> None:
    """The library refuses a call of this thread."""
    device.queue.lib.wgpuQueueWriteBuffer(
        device.queue.handle, device.queue._nothing, 0, new("char[]", 64), 64
    )  # it has 16 bytes


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.fixture
def repeated() -> Iterator[Repeated]:
    yield Repeated()


@pytest.mark.costly
@pytest.mark.parametrize("recorded", [True, False])
def test_each_part_is_submitted_before_the_next_one_is_finished(repeated: Repeated, recorded: bool) -> None:
    device = device_of(0)
    if not recorded:
        repeated.session.run_with_iobinding(repeated.binding)  # takes what has been recorded
    before, taken = device.counters, device.queue.shared.runs_ahead
    with watched() as calls:
        repeated.session.run_with_iobinding(repeated.binding)
    assert calls == [FINISH, LOOK, SUBMIT] * 2
    after = device.counters
    assert after["submits"] == before["submits"] + 2
    assert after["dispatches"] == before["dispatches"] + LAYERS
    assert device.queue.shared.runs_ahead == taken + recorded
    repeated.check()


def test_no_part_is_longer_than_a_submission_may_be() -> None:
    repeated = Repeated(maxNumPendingDispatches="6", deviceId="63")
    with watched(number=63) as calls:
        repeated.session.run_with_iobinding(repeated.binding)
    assert calls == [FINISH, LOOK, SUBMIT] * -(-LAYERS // 6)
    repeated.check()


def test_what_wgpu_native_refuses_another_thread_is_nothing_to_a_run(repeated: Repeated) -> None:
    device = device_of(0)

    def complain(calls: list[str]) -> None:
        in_thread(lambda: refuse(device)).join()

    before = hits()
    with watched(complain) as calls:
        repeated.begin()
    assert calls == [FINISH, LOOK, SUBMIT] * 2
    assert hits() == before + 1
    repeated.check()


@pytest.mark.parametrize("what", [FINISH, LOOK])
@pytest.mark.parametrize("in_place", [False, True])
def test_a_first_part_that_is_refused_once_is_no_fault_and_runs_once(what: str, in_place: bool) -> None:
    repeated, device = Repeated(in_place), device_of(0)
    for _ in range(2):
        before = repeated.x.numpy()
        with watched(lambda calls: refuse(device) if calls.count(what) == 1 and calls[-1] == what else None) as calls:
            repeated.begin()
        assert calls.count(SUBMIT) == 1  # by Python, whole
        np.testing.assert_array_equal(repeated.y.numpy(), repeated.session.run(None, {"x": before})[0])
    assert repeats(repeated.check, 2) >= 2


@pytest.mark.costly
@pytest.mark.parametrize("what", [FINISH, LOOK])
@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("part", [0, 1])
def test_a_part_that_is_refused_for_good_is_an_error_and_nothing_runs_twice(
    what: str, recorded: bool, part: int
) -> None:
    repeated, device = Repeated(in_place=True), device_of(0)
    if not recorded:
        repeated.begin()  # takes what has been recorded
    value, counted, done = repeated.x.numpy() if recorded else None, device.counters, hits()
    message = "the rest of a run that had begun was refused.*set tensors anew" if part else "the work was refused"
    with (
        watched(lambda calls: refuse(device) if calls.count(SUBMIT) == part and calls[-1] == what else None) as calls,
        pytest.raises(webgpu_ep.DeviceError, match=message),
    ):
        repeated.begin()
    assert calls.count(SUBMIT) == part
    assert hits() == done
    assert device.counters["submits"] == counted["submits"]
    assert not errors.messages
    if value is not None and not part:
        np.testing.assert_array_equal(repeated.x.numpy(), value)
    repeated.put(X)
    repeated.array = X
    assert repeats(repeated.check, 4) >= 2


def test_a_device_that_is_lost_between_parts_is_an_error() -> None:
    repeated = Repeated(deviceId="64")
    device = device_of(64)
    x, expected = repeated.x.numpy(), repeated.y.numpy()

    def lose(calls: list[str]) -> None:
        if calls == [FINISH, LOOK, SUBMIT, FINISH]:
            device.queue.lib.wgpuDeviceDestroy(device.handle)

    with watched(lose, number=64) as calls, pytest.raises(webgpu_ep.DeviceLostError):
        repeated.begin()
    assert calls.count(SUBMIT) == 1
    np.testing.assert_array_equal(repeated.session.run(None, {"x": x})[0], expected)


def test_recording_ahead_ends_with_the_first_part_that_is_refused(repeated: Repeated) -> None:
    """And whoever waits is not told."""
    device = device_of(0)
    repeated.begin()  # takes what has been recorded
    queue = device.queue
    running = queue.works.get(queue.shared.last[queue.shared.runs % len(queue.shared.last)])
    assert running is not None
    with watched(lambda _: refuse(device), RECORD) as calls:
        running.record_ahead()
    assert calls == [*RECORD]
    assert not errors.messages
    repeated.check()


# ---- others


def test_another_session_submits_between_the_parts_of_a_run(repeated: Repeated) -> None:
    """It would wait while all of them are finished."""
    other = Bound(webgpu_ep.session(models.chain()), 5)
    assert repeats(other.run) >= 3
    times: list[int] = []

    def run(calls: list[str]) -> None:
        if calls[-1] == FINISH:
            thread = in_thread(lambda: other.session.run_with_iobinding(other.binding))
            thread.join(patience.SECONDS)
            times.append(thread.is_alive())

    with watched(run) as calls:
        repeated.begin()
    assert calls == [FINISH, LOOK, SUBMIT] * 2
    assert times == [False, False]
    other.run()
    repeated.check()


@pytest.mark.costly
@pytest.mark.parametrize("known", [True, False], ids=["repeated", "new"])
def test_no_run_of_the_same_graph_comes_between_the_parts_of_a_run(repeated: Repeated, known: bool) -> None:
    """Intermediate values of both lie in the same buffers."""
    session = repeated.session
    x = RANDOM.standard_normal((1, 8), np.float32)
    expected = session.run(None, {"x": x})[0]
    other = Bound(session, 1, made_by(session, x), made_by(session, X))
    other.put(x)
    if known:
        assert repeats(lambda: [session.run_with_iobinding(other.binding), other.y.numpy()]) >= 3
    repeated.check()
    begun: list[tuple[threading.Thread, bool]] = []

    def run(calls: list[str]) -> None:
        if calls == [FINISH, LOOK, SUBMIT, FINISH]:
            thread = in_thread(lambda: session.run_with_iobinding(other.binding))
            thread.join(CHANCE)  # ends before only if it comes between
            begun.append((thread, thread.is_alive()))

    with watched(run) as calls:
        repeated.begin()
        ((thread, waited),) = begun
        thread.join()  # it too calls what is watched
    assert calls == [FINISH, LOOK, SUBMIT] * 2
    assert waited
    np.testing.assert_array_equal(other.y.numpy(), expected)
    np.testing.assert_array_equal(repeated.y.numpy(), session.run(None, {"x": repeated.x.numpy()})[0])
