"""When dispatches ran: the GPU's clock in terms of the CPU's, and what timed submissions promise."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import time
import weakref

import numpy as np
import pytest

from onnxruntime_ep_wgpu.device import Device, open_device
from onnxruntime_ep_wgpu.device.clock import Clock, Sample
from onnxruntime_ep_wgpu.device.timing import PER_SET
from onnxruntime_ep_wgpu.errors import UnsupportedError

from .conftest import AddOne, get, put


@pytest.fixture
def timed_device(device: Device) -> Device:
    if not device.has_timestamps:
        pytest.skip(f"{device.adapter.name} has no timestamps")
    return device


def test_the_clocks_are_as_far_apart_as_all_samples_allow() -> None:
    clock = Clock(period=2.0)
    # The GPU's tick 0 is the CPU's 1,000 ns; the passes last 10 ticks, and waiting takes its time before and after.
    clock.set([Sample(100, 110, 1200 - 50, 1220 + 7), Sample(200, 210, 1400 - 3, 1420 + 80)])
    assert abs(clock.at(0) - 1000) <= clock.error <= 5
    assert clock.at(500) - clock.at(0) == 1000


def test_slow_drift_between_two_settings_is_spread_evenly() -> None:
    clock = Clock(period=1.0)
    clock.set([Sample(0, 0, 0, 0)])
    clock.set([Sample(1000, 1000, 1010, 1010)])
    assert [clock.at(ticks) for ticks in (0, 500, 1000, 2000)] == [0, 505, 1010, 2010]


def test_a_clock_that_jumped_uses_its_narrowest_sample() -> None:
    clock = Clock(period=1.0)
    clock.set([Sample(0, 1, 0, 100), Sample(10, 11, 5000, 5011)])
    assert abs(clock.at(10) - 5005) <= clock.error


def test_large_ticks_lose_no_nanoseconds() -> None:
    start = 1_700_000_000_000_000_001
    clock = Clock(period=1.0)
    clock.set([Sample(start, start, 7, 7)])
    assert clock.at(start + 3) == 10


def test_dispatches_lie_one_after_another_between_the_submit_and_the_download(timed_device: Device) -> None:
    x = np.arange(1000, dtype=np.float32)
    add = AddOne(timed_device, x.size)
    a, b = put(timed_device, x), timed_device.buffer(x.nbytes)
    recording = timed_device.record([add.dispatch(a, b), add.dispatch(b, a), add.dispatch(a, b)])
    before = time.perf_counter_ns()
    timed = timed_device.submit_timed(recording)
    np.testing.assert_array_equal(get(timed_device, b, x), x + 3)
    after = time.perf_counter_ns()
    times = [edge for dispatch in timed.read() for edge in dispatch]
    assert len(times) == 6
    assert times == sorted(times)
    assert before <= times[0] and times[-1] <= after


def test_more_dispatches_than_a_query_set_holds(timed_device: Device) -> None:
    x = np.zeros(64, np.float32)
    add = AddOne(timed_device, x.size)
    dispatch = add.dispatch(put(timed_device, x), timed_device.buffer(x.nbytes))
    times = timed_device.submit_timed(timed_device.record([dispatch] * (PER_SET + 2))).read()
    assert len(times) == PER_SET + 2
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(times))


def test_copies_run_before_the_timed_dispatches(timed_device: Device) -> None:
    x = np.arange(64, dtype=np.float32)
    add = AddOne(timed_device, x.size)
    source, a, b = put(timed_device, x), timed_device.buffer(x.nbytes), timed_device.buffer(x.nbytes)
    timed_device.submit_timed(timed_device.record([add.dispatch(a, b)]), [(source, 0, a, 0, x.nbytes)])
    np.testing.assert_array_equal(get(timed_device, b, x), x + 1)


def test_a_few_dispatches_at_a_time_are_timed_as_one_list(timed_device: Device) -> None:
    x = np.arange(64, dtype=np.float32)
    add = AddOne(timed_device, x.size)
    a, b = put(timed_device, x), timed_device.buffer(x.nbytes)
    c = timed_device.buffer(x.nbytes)
    recording = timed_device.record([add.dispatch(a, b), add.dispatch(b, a)] * 2 + [add.dispatch(a, b)])
    submits = timed_device.counters["submits"]
    timed = timed_device.submit_timed(recording, (), [(b, 0, c, 0, x.nbytes)], 2)
    assert timed_device.counters["submits"] - submits == 3
    np.testing.assert_array_equal(get(timed_device, c, x), x + 5)
    times = [edge for dispatch in timed.read() for edge in dispatch]
    assert len(times) == 10 and times == sorted(times)


def test_timestamps_keep_their_device_until_they_are_read(timed_device: Device) -> None:
    own = open_device(timed_device.adapter, context=1010)
    x = np.zeros(64, np.float32)
    add = AddOne(own, x.size)
    timed = own.submit_timed(own.record([add.dispatch(put(own, x), own.buffer(x.nbytes))]))
    gone = weakref.ref(own)
    del own, add
    gc.collect()
    assert gone() is not None
    assert len(timed.read()) == 1
    gc.collect()
    assert gone() is None


def test_nothing_to_do_takes_no_time(timed_device: Device) -> None:
    assert timed_device.measure([]) == []
    assert timed_device.submit_timed(timed_device.record([])).read() == []


def test_an_adapter_without_timestamps_is_named(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    features = device.target.features - {"timestamp-query"}
    monkeypatch.setattr(device, "target", dataclasses.replace(device.target, features=features))
    with pytest.raises(UnsupportedError, match=r"has no timestamps \(feature timestamp-query\)"):
        device.submit_timed(device.record([]))
