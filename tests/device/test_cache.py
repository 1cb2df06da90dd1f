"""A device's free buffers are kept as the mode of their cache says, and the counters tell."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from onnxruntime_ep_wgpu.device import BufferCache, CacheCounters, Device, Settings, adapters, cache, open_device
from onnxruntime_ep_wgpu.errors import LimitError

from .conftest import AddOne, get, put

MODES = ("disabled", "lazyRelease", "simple", "bucket")


@pytest.fixture
def make(device: Device) -> Callable[[str], BufferCache]:
    def cache_of(mode: str) -> BufferCache:
        return BufferCache(mode, device.buffer, device.target.max_buffer_bytes)

    return cache_of


def test_disabled_lets_go_at_once(make: Callable[[str], BufferCache], device: Device) -> None:
    before = device.counters["buffer_bytes"]
    disabled = make("disabled")
    buffer = disabled.take(1000, "x")
    disabled.give(buffer)
    del buffer
    assert device.counters["buffer_bytes"] == before
    disabled.take(1000, "x")
    assert disabled.counters == CacheCounters(hits=0, misses=2, released=1, held_buffers=0, held_bytes=0)


def test_lazy_release_lets_go_when_the_next_run_ends(make: Callable[[str], BufferCache], device: Device) -> None:
    before = device.counters["buffer_bytes"]
    lazy = make("lazyRelease")
    lazy.give(lazy.take(1000, "x"))
    other = lazy.take(1000, "y")  # what waits to be let go is not used again
    assert lazy.counters == CacheCounters(hits=0, misses=2, released=0, held_buffers=1, held_bytes=1008)
    assert device.counters["buffer_bytes"] == before + 2016
    lazy.end_of_run()
    assert lazy.counters == CacheCounters(hits=0, misses=2, released=1, held_buffers=0, held_bytes=0)
    assert device.counters["buffer_bytes"] == before + 1008
    del other


def test_simple_keeps_a_buffer_for_its_exact_size(make: Callable[[str], BufferCache]) -> None:
    simple = make("simple")
    buffer = simple.take(1000, "x")
    simple.give(buffer)
    assert simple.take(900, "smaller") is not buffer
    assert simple.take(1001, "of as many words of sixteen bytes") is buffer
    assert simple.counters == CacheCounters(hits=1, misses=2, released=0, held_buffers=0, held_bytes=0)


def test_bucket_keeps_a_buffer_for_its_power_of_two(make: Callable[[str], BufferCache]) -> None:
    bucket = make("bucket")
    buffer = bucket.take(600, "x")
    assert buffer.size == 768
    bucket.give(buffer)
    assert bucket.take(500, "smaller") is not buffer
    assert bucket.take(768, "larger") is buffer
    assert (bucket.counters.hits, bucket.counters.misses) == (1, 2)


def test_runs_end_without_effect_on_what_is_kept(make: Callable[[str], BufferCache]) -> None:
    for mode in ("simple", "bucket"):
        kept = make(mode)
        buffer = kept.take(512, "x")
        kept.give(buffer)
        kept.end_of_run()
        assert kept.take(512, "x") is buffer


def test_a_full_cache_lets_go(make: Callable[[str], BufferCache], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "KEPT_BYTES", 2048)
    bucket = make("bucket")
    for buffer in [bucket.take(1024, "x") for _ in range(3)]:
        bucket.give(buffer)
    assert bucket.counters == CacheCounters(hits=0, misses=3, released=1, held_buffers=2, held_bytes=2048)


def test_a_full_cache_lets_go_of_what_waited_longest(
    make: Callable[[str], BufferCache], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that sizes which do not come again make room for those of now."""
    monkeypatch.setattr(cache, "KEPT_BYTES", 4096)
    bucket = make("bucket")
    first, second, new = (bucket.take(nbytes, "x") for nbytes in (1024, 2048, 2048))
    for buffer in (first, second):
        bucket.give(buffer)
        bucket.end_of_run()
    bucket.give(new)
    assert bucket.counters.released == 1 and bucket.counters.held_bytes == 4096
    assert {bucket.take(2048, "y"), bucket.take(2048, "y")} == {second, new}
    bucket.give(bucket.take(8192, "larger than all that may wait"))
    assert bucket.counters.held_buffers == 0 and bucket.counters.released == 2


@pytest.mark.parametrize("mode", ["simple", "bucket"])
def test_sizes_that_do_not_come_again_are_let_go_of(make: Callable[[str], BufferCache], mode: str) -> None:
    """A sequence that grows: each size is wanted in a few runs."""
    growing, held = make(mode), []
    for step in range(2000):
        growing.give(growing.take(4096 * (1 + step // 4), "x"))
        growing.end_of_run()
        held.append(growing.counters.held_buffers)
    assert max(held[200:]) <= (cache.KEPT_FOR + cache.EVICT_EVERY) // 4 + 1
    counters = growing.counters
    assert counters.released >= counters.misses - max(held) and len(growing._free) <= max(held)


def test_sizes_that_come_again_within_some_runs_are_kept(make: Callable[[str], BufferCache]) -> None:
    """Many shapes in turn: what was let go too early teaches the cache to keep for longer."""
    turns = make("bucket")
    sizes = [1024 * (8 + k) for k in range(8)] + [16384 * (8 + k) for k in range(8)]
    for _ in range(40):
        for nbytes in sizes:
            for _ in range(20):  # runs of each: 320 until the first one comes again
                turns.give(turns.take(nbytes, "x"))
                turns.end_of_run()
    assert turns._kept_for == cache.KEPT_FOR, "one request of 20 is no reason"
    many = [256 * (1024 + 128 * k) for k in range(100)]
    for _ in range(12):
        for nbytes in many:
            turns.give(turns.take(nbytes, "x"))
            turns.end_of_run()
    misses = turns.counters.misses
    for nbytes in many * 3:
        turns.give(turns.take(nbytes, "x"))
        turns.end_of_run()
    assert turns.counters.misses == misses
    assert cache.KEPT_FOR < turns._kept_for <= cache.MOST_KEPT_FOR


def test_runs_that_ended_elsewhere_count_too(device: Device) -> None:
    elsewhere = [0]
    kept = BufferCache("bucket", device.buffer, 1 << 20, repeated=lambda: elsewhere[0])
    kept.give(kept.take(1024, "x"))
    elsewhere[0] = 2 * cache.KEPT_FOR
    assert kept.counters.held_buffers == 1
    kept.end_of_run()
    assert kept.counters.held_buffers == 0


def test_a_bucket_is_never_larger_than_the_adapter_allows(device: Device) -> None:
    requests = []
    small = BufferCache("bucket", lambda nbytes, label: requests.append(nbytes) or device.buffer(nbytes), 700)
    small.take(600, "x")
    assert requests == [688]  # whole words of sixteen bytes within 700


def test_a_buffer_above_the_limit_is_refused_by_its_name(make: Callable[[str], BufferCache], device: Device) -> None:
    for mode in MODES:
        with pytest.raises(LimitError, match="the large tensor needs"):
            make(mode).take(device.target.max_buffer_bytes + 1, "the large tensor")


@pytest.mark.parametrize("mode", MODES)
def test_calculating_and_reading_back_is_right_in_every_mode(mode: str) -> None:
    settings = Settings(storage_cache=mode, uniform_cache=mode, query_resolve_cache=mode, default_cache=mode)
    device = open_device(adapters()[0], 1001, settings)
    for count in (10, 1000, 10):
        x = np.arange(count, dtype=np.float32)
        add = AddOne(device, count)
        results = [device.caches.storage.take(x.nbytes, "y") for _ in range(2)]
        for result in results:
            device.submit([add.dispatch(put(device, x), result)])
        for result in results:
            np.testing.assert_array_equal(get(device, result, x), x + 1)
            device.caches.storage.give(result)
        device.caches.uniform.give(add.uniform)
        device.caches.end_of_run()
    kept = mode in ("simple", "bucket")
    counters = device.caches.counters()
    assert (counters["storage"].hits > 0) is kept
    assert (counters["default"].hits > 0) is kept
    assert (counters["storage"].released > 0) is not kept
    assert counters["uniform"].hits == (2 if kept else 0)


def test_a_buffer_is_used_again_while_the_queue_still_works_on_it(device: Device) -> None:
    """The next user's upload comes after the work of the one before, though nobody waits for it."""
    count = 100_000
    add = AddOne(device, count)
    first, second = (np.full(count, value, np.float32) for value in (1, 5))
    storage = device.caches.storage
    shared, results = storage.take(first.nbytes, "shared"), []
    for x in (first, second):
        device.upload(shared, 0, x.data)
        results.append(device.buffer(x.nbytes))
        device.submit([add.dispatch(shared, results[-1])])
        storage.give(shared)
        assert storage.take(x.nbytes, "shared") is shared
    np.testing.assert_array_equal(get(device, results[0], first), first + 1)
    np.testing.assert_array_equal(get(device, results[1], second), second + 1)


def test_timestamps_use_the_cache_of_query_buffers() -> None:
    device = open_device(adapters()[0], 1002, Settings(query_resolve_cache="simple"))
    if "timestamp-query" not in device.target.features:
        pytest.skip("the adapter has no timestamps")
    add = AddOne(device, 8)
    dispatch = add.dispatch(device.buffer(32), device.buffer(32))
    for _ in range(3):
        device.measure([dispatch])
    counters = device.caches.counters()["query_resolve"]
    assert (counters.hits, counters.misses) == (2, 1)
