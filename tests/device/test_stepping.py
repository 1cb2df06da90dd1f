"""Copies of iterations as dispatches: what they leave in memory is what the library's copies leave."""

from __future__ import annotations

import random

import numpy as np
import pytest

from onnxruntime_ep_wgpu.device import Buffer, Device
from onnxruntime_ep_wgpu.device.encoding import Recording
from onnxruntime_ep_wgpu.device.rounds import Round, SteppedCopy, run_rounds
from onnxruntime_ep_wgpu.device.stepping import MOST_BYTES, MOST_TOGETHER, SteppedCopies
from onnxruntime_ep_wgpu.device.turn import Turn

from .conftest import AddOne, get, put

COUNT, WORDS = 20, 4096


def drawn(rng: random.Random, buffers: list[Buffer]) -> SteppedCopy:
    """A copy between two buffers, each range inside of its own in every iteration."""
    source, destination = rng.sample(buffers, 2)
    nbytes = 4 * rng.choice([1, 2, 3, 64, 70])
    step, place_step = (4 * rng.choice([0, 0, 1, 5, nbytes // 4]) for _ in range(2))
    start, place = (4 * rng.randint(0, WORDS - (COUNT * it + nbytes) // 4) for it in (step, place_step))
    return SteppedCopy(source, start, step, destination, place, place_step, nbytes)


def left_by(device: Device, buffers: list[Buffer], two: list[Round], first: int, stepping: bool) -> list[np.ndarray]:
    """What is in the buffers behind the iterations, which begin with the same numbers each time."""
    rng = np.random.default_rng(0)
    for it in buffers:
        device.upload(it, 0, rng.integers(0, 1 << 20, WORDS, np.uint32).astype(np.float32).data)
    numbers = put(device, np.full(2, 77, np.uint32))
    if stepping:
        copies = SteppedCopies(device, numbers, COUNT)
        made = copies.rounds(two)
        assert made is not None
        assert not any(it.before or it.after for it in made)
        run_rounds(device.queue, Turn(), made, first, COUNT)
        copies.give()
    else:
        run_rounds(device.queue, Turn(), two, first, COUNT)
    return [get(device, it, np.empty(WORDS, np.float32)) for it in buffers]


@pytest.mark.parametrize("seed", range(12))
def test_dispatches_leave_what_copies_leave(device: Device, seed: int) -> None:
    rng = random.Random(seed)
    buffers = [put(device, np.zeros(WORDS, np.float32)) for _ in range(4)]
    add = AddOne(device, 8)
    two = []
    for x, y in (buffers[:2], buffers[1::-1]):
        before, after = ([drawn(rng, buffers) for _ in range(rng.randint(0, 2 * MOST_TOGETHER))] for _ in range(2))
        two.append(Round(Recording([add.dispatch(x, y)]), before, after))
    first = rng.randint(0, 1)
    for made, wanted in zip(
        left_by(device, buffers, two, first, True), left_by(device, buffers, two, first, False), strict=True
    ):
        np.testing.assert_array_equal(made, wanted)


def test_what_cannot_be_dispatches(device: Device) -> None:
    small, large = put(device, np.zeros(64, np.float32)), device.buffer(MOST_BYTES + 256)
    copies = SteppedCopies(device, put(device, np.zeros(2, np.uint32)), COUNT)
    for copy in (SteppedCopy(small, 0, 0, small, 64, 0, 16), SteppedCopy(large, 0, 0, small, 0, 0, MOST_BYTES + 4)):
        assert copies.rounds([Round(Recording([]), [copy], []), Round(Recording([]), [], [])]) is None
