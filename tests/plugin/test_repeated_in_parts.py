"""A run that C code repeats is submitted in parts: the GPU begins with the first dispatches while the others are finished."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import cffi
import numpy as np
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.device import encoding
from onnxruntime_ep_wgpu.device.native import address, lib, reported

from . import models
from .loss import device_of
from .test_memo import Bound, hits, made_by, repeats

LAYERS = 40
X = np.ones((1, 8), np.float32)
FINISH, SUBMIT = "wgpuCommandEncoderFinish", "wgpuQueueSubmitForIndex"
ffi = cffi.FFI()


def long() -> bytes:
    """A chain of products with a rotation, of which none is like another."""
    weight = np.linalg.qr(np.random.default_rng(0).standard_normal((8, 8)))[0].astype(np.float32)
    names = ["x", *(f"h{k}" for k in range(1, LAYERS)), "y"]
    nodes = [models.node("MatMul", [a, "w"], [b], b) for a, b in pairwise(names)]
    return models.model(nodes, [("x", models.FLOAT, ["N", 8])], [("y", models.FLOAT, ["N", 8])], [("w", weight)])


class Repeated(Bound):
    """Runs of a model with many dispatches, of which C code has repeated some."""

    def __init__(self, **options: Any) -> None:
        session = webgpu_ep.session(long(), **options)
        super().__init__(session, 1, made_by(session, X), made_by(session, X))
        self.array = self.x.numpy()
        self.expected = session.run(None, {"x": self.array})[0]
        assert repeats(self.check) >= 3

    def check(self) -> None:
        self.session.run_with_iobinding(self.binding)
        np.testing.assert_array_equal(self.y.numpy(), self.expected)


@contextmanager
def watched(before: Callable[[int], None] = lambda _: None) -> Iterator[list[str]]:
    """What C code calls of wgpu-native meanwhile, in order; `before` is called with the number of calls so far."""
    names: list[str] = []
    kept, table = [], encoding.FUNCTIONS
    for name, kind in ((FINISH, "void *(*)(void *, void *)"), (SUBMIT, "uint64_t (*)(void *, size_t, void *)")):
        call = ffi.cast(kind, address(getattr(lib, name)))

        def watch(*arguments: Any, name: str = name, call: Any = call) -> Any:
            before(len(names))
            names.append(name)
            return call(*arguments)

        kept.append(ffi.callback(kind, watch))
        place = encoding._FUNCTIONS.index(name)
        kept.append((place, table[place]))
        table[place] = int(ffi.cast("uintptr_t", kept[-2]))
    try:
        yield names
    finally:
        for place, function in kept[1::2]:
            table[place] = function


@pytest.fixture
def repeated() -> Iterator[Repeated]:
    yield Repeated()


@pytest.mark.parametrize("recorded", [True, False])
def test_each_part_is_submitted_before_the_next_one_is_finished(repeated: Repeated, recorded: bool) -> None:
    device = device_of(0)
    if not recorded:
        repeated.session.run_with_iobinding(repeated.binding)  # takes what has been recorded
    before, taken = device.counters, device.queue.shared.runs_ahead
    with watched() as calls:
        repeated.session.run_with_iobinding(repeated.binding)
    assert calls == [FINISH, SUBMIT] * 2
    after = device.counters
    assert after["submits"] == before["submits"] + 2
    assert after["dispatches"] == before["dispatches"] + LAYERS
    assert device.queue.shared.runs_ahead == taken + recorded
    repeated.check()


def test_no_part_is_longer_than_a_submission_may_be() -> None:
    repeated = Repeated(maxNumPendingDispatches="6", deviceId="63")
    with watched() as calls:
        repeated.session.run_with_iobinding(repeated.binding)
    assert calls == [FINISH, SUBMIT] * -(-LAYERS // 6)
    repeated.check()


def test_what_the_gpu_has_begun_is_done_once_whoever_wgpu_native_complains_to(repeated: Repeated) -> None:
    """Python would begin the run again."""

    def complain(calls: int) -> None:
        if calls == 2:  # the first part is submitted
            reported[0] += 1

    before = hits()
    with watched(complain) as calls:
        repeated.session.run_with_iobinding(repeated.binding)
    assert calls == [FINISH, SUBMIT, FINISH, FINISH, SUBMIT]
    assert hits() == before + 1
    repeated.check()


def test_a_device_that_is_lost_between_parts_is_an_error() -> None:
    repeated = Repeated(deviceId="64")
    device = device_of(64)

    def lose(calls: int) -> None:
        if calls == 2:
            lib.wgpuDeviceDestroy(device.handle)

    with watched(lose), pytest.raises(webgpu_ep.DeviceLostError):
        repeated.session.run_with_iobinding(repeated.binding)
    np.testing.assert_array_equal(repeated.session.run(None, {"x": repeated.array})[0], repeated.expected)
