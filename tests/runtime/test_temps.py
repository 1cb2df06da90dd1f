"""Buffers for intermediate values: how long they are kept, and that no run loses one that it uses."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest

from onnxruntime_ep_wgpu.device import Device, Settings, adapters, open_device
from onnxruntime_ep_wgpu.runtime.settings import RunSettings
from tests.support import Runner, compile_model

from .test_plan import F, chain, run_chain

_contexts = itertools.count(90_000)  # beyond those of any way in tests/targets.py
STEPS = 3


@pytest.fixture
def alone() -> Device:
    """A device whose caches nobody else uses."""
    return open_device(adapters()[0], next(_contexts))


def runner(device: Device, generations: int) -> Runner:
    return Runner(compile_model(chain(STEPS)), RunSettings(temp_generations=generations), device)


def run(runner: Runner, rows: int) -> None:
    x = np.random.default_rng(rows).random((rows, 8), F)
    np.testing.assert_allclose(runner(x)[0], run_chain(x, STEPS), rtol=1e-4)


@pytest.mark.parametrize("generations", [1, 2, 4])
def test_a_buffer_is_given_back_after_as_many_runs_without_it(alone: Device, generations: int) -> None:
    it = runner(alone, generations)
    run(it, 2)
    given_back = []
    for _ in range(6):
        run(it, 500)  # needs larger buffers
        given_back.append(alone.caches.storage.counters.held_buffers > 0)
    assert given_back == [number >= generations for number in range(1, 7)]
    assert len(it.executable.plans) == 1
    run(it, 2)


def test_zero_gives_everything_back_after_each_run(alone: Device) -> None:
    it = runner(alone, 0)
    for rows in (3, 500, 3):
        run(it, rows)
        assert not it.executable.plans
        assert not it.executable._plans.of_graph.temps._buffers
    assert alone.caches.storage.counters.hits > 0


def test_runs_of_one_shape_give_nothing_back_and_take_nothing(alone: Device) -> None:
    it = runner(alone, 1)
    run(it, 7)
    before = alone.caches.storage.counters
    for _ in range(5):
        run(it, 7)
    assert alone.caches.storage.counters == before


def test_given_back_buffers_serve_other_groups(alone: Device) -> None:
    first, second = runner(alone, 0), runner(alone, 0)
    run(first, 9)
    before = alone.caches.storage.counters
    run(second, 9)
    after = alone.caches.storage.counters
    assert after.misses == before.misses
    assert after.hits > before.hits


@pytest.mark.costly
@pytest.mark.parametrize("generations", [0, 1])
@pytest.mark.parametrize("mode", ["disabled", "bucket"])
def test_threads_with_different_shapes_do_not_take_each_others_buffers(generations: int, mode: str) -> None:
    device = open_device(adapters()[0], next(_contexts), Settings(storage_cache=mode))
    it = Runner(compile_model(chain(STEPS)), RunSettings(temp_generations=generations, per_submission=1), device)
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for rows in np.random.default_rng(seed).integers(1, 400, 15):
                run(it, int(rows))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]
    assert not any(plan.in_use for plan in it.executable.plans.values())
