"""Runs whose sizes grow by as much each time, as those of a decoder: the next one is prepared while somebody waits, and C code does
it; what comes instead is right."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.device import release_dead
from onnxruntime_ep_wgpu.plugin import memo
from onnxruntime_ep_wgpu.program.series import LONGEST

from . import models
from .loss import device_of, lose
from .test_memo import RANDOM, hits

FEW = 30  # elements, whose bytes stay in one size class
WIDE = 600  # elements, whose bytes are in another one
CLASSES = range(1024, 1024 * 128, 1024)  # elements; more kinds of bytes than are kept
MOST_OF_119 = 119 - 4 - 4 * 3  # runs: but for four to begin with, and three at each of the ends of size classes


def decoder(**options: Any) -> Any:
    """x (2, WIDE) and a mask (1, n) of int64 -> y = x times the sum of the mask, m = the mask plus one."""
    node = models.node
    weights = [("axes", np.array([1], np.int64)), ("one", np.array(1, np.int64))]
    nodes = [
        node("ReduceSum", ["mask", "axes"], ["sum"], "sum"),
        node("Cast", ["sum"], ["float"], "cast", to=models.FLOAT),
        node("Mul", ["x", "float"], ["y"], "mul"),
        node("Add", ["mask", "one"], ["m"], "add"),
    ]
    inputs = [("x", models.FLOAT, [2, WIDE]), ("mask", models.INT64, [1, "n"])]
    outputs = [("y", models.FLOAT, [2, WIDE]), ("m", models.INT64, [1, "n"])]
    return webgpu_ep.session(models.model(nodes, inputs, outputs, weights), **options)


def step(session: Any, length: int) -> int:
    """A run of this length; how many C code has done in it."""
    x, mask = RANDOM.standard_normal((2, WIDE), np.float32), RANDOM.integers(0, 9, (1, length))
    before = hits()
    y, m = session.run(None, {"x": x, "mask": mask})
    np.testing.assert_allclose(y, x * mask.sum(), rtol=1e-5)
    np.testing.assert_array_equal(m, mask + 1)
    return hits() - before


def steps(session: Any, lengths: range) -> int:
    return sum(step(session, length) for length in lengths)


def grows(session: Any) -> None:
    """Goes on until C code does the runs."""
    for _ in range(10):
        if steps(session, range(1, FEW)) > FEW // 2:
            return
    pytest.fail("no run was done by C code")


def test_steps_are_done_by_c_code_but_for_those_where_memory_is_another() -> None:
    session = decoder()
    grows(session)
    assert steps(session, range(1, 120)) >= MOST_OF_119


def test_sessions_before_whose_sizes_changed_are_forgotten() -> None:
    """While they ran, room for a range was seldom made; when they have gone there is room."""
    every = models.model(
        [models.node("Neg", ["x"], ["y"], "neg")], [("x", models.FLOAT, ["n"])], [("y", models.FLOAT, ["n"])]
    )
    before = webgpu_ep.session(every, deviceId=48)
    for _ in range(4):
        for length in CLASSES:
            x = np.ones(length, np.float32)
            np.testing.assert_array_equal(before.run(None, {"x": x})[0], -x)
    del before
    gc.collect()
    session = decoder(deviceId=48)
    grows(session)
    assert steps(session, range(1, 120)) >= MOST_OF_119


@pytest.mark.costly
@pytest.mark.parametrize("by", [2, 3, -1])
def test_steps_of_any_size_are_expected(by: int) -> None:
    session = decoder()
    grows(session)
    lengths = range(2, FEW, by) if by > 0 else range(FEW, 2, by)
    assert steps(session, lengths) >= len(lengths) - 5


def test_what_was_not_expected_is_right() -> None:
    session, order = decoder(), np.random.default_rng(3)
    grows(session)
    for _ in range(30):
        start, count = int(order.integers(1, 200)), int(order.integers(1, 7))
        steps(session, range(start, start + count))
        if order.integers(2):
            step(session, start + count - 1)  # once more
        if order.integers(2):
            step(session, max(1, start + count - 3))  # some taken back


def test_two_that_take_turns_are_right() -> None:
    session = decoder()
    for length in range(1, 60):
        step(session, length)
        step(session, length + 20)
        if length > 30:
            step(session, length)


def test_what_does_not_grow_is_that_of_the_run_and_not_of_the_one_before() -> None:
    """More sizes than a series has, between them a run of another width. Tensors are new in each, so C code knows none."""
    nodes = [models.node("Add", ["x", "x"], ["y"], "add")]
    session = webgpu_ep.session(
        models.model(nodes, [("x", models.FLOAT, ["n", "m"])], [("y", models.FLOAT, ["n", "m"])])
    )
    kept = []
    for length in range(1, 2 * LONGEST):
        for width in (2, 5) if length == LONGEST // 2 else (2,):
            x = RANDOM.standard_normal((length, width), np.float32)
            given = ort.OrtValue.ortvalue_from_numpy(x, "webgpu", 0)
            kept.append((given, session.run_with_ort_values(None, {"x": given})[0]))
            np.testing.assert_array_equal(kept[-1][1].numpy(), x + x)


def test_sessions_and_threads_grow_at_once() -> None:
    wrong: list[BaseException] = []
    both = [decoder(), decoder()]

    def work(number: int) -> None:
        try:
            order = np.random.default_rng(number)
            for length in range(1, 60):
                x, mask = order.standard_normal((2, WIDE)).astype(np.float32), order.integers(0, 9, (1, length))
                y, m = both[number % 2].run(None, {"x": x, "mask": mask})
                np.testing.assert_allclose(y, x * mask.sum(), rtol=1e-5)
                np.testing.assert_array_equal(m, mask + 1)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


def test_values_that_set_shapes_are_never_expected() -> None:
    node = models.node
    model = models.model(
        [node("Expand", ["x", "shape"], ["e"], "expand"), node("Add", ["e", "e"], ["y"], "add")],
        [("x", models.FLOAT, [1]), ("shape", models.INT64, [1])],
        [("y", models.FLOAT, ["n"])],
    )
    session, before = webgpu_ep.session(model), hits()
    x = np.ones(1, np.float32)
    for length in range(1, 20):
        (y,) = session.run(None, {"x": x, "shape": np.array([length])})
        np.testing.assert_array_equal(y, np.full(length, 2, np.float32))
    assert hits() == before


def test_tensors_that_are_empty_at_every_size_or_at_the_first_are_right() -> None:
    """They lie nowhere, and what has elements at a later size lies somewhere."""
    node = models.node
    model = models.model(
        [
            node("Concat", ["a", "a"], ["b"], "b", axis=1),
            node("Add", ["x", "one"], ["y"], "y"),
            node("Slice", ["x", "one_step", "end", "axis"], ["z"], "z"),
        ],
        [("a", models.FLOAT, ["n", 0]), ("x", models.FLOAT, ["n"])],
        [("b", models.FLOAT, ["n", 0]), ("y", models.FLOAT, ["n"]), ("z", models.FLOAT, [None])],
        [
            ("one", np.array([1], np.float32)),
            ("one_step", np.array([2])),
            ("end", np.array([1 << 40])),
            ("axis", np.array([0])),
        ],
    )
    session = webgpu_ep.session(model)
    for lengths in (range(8), range(8, 0, -1), range(0, 40, 2)):
        for length in lengths:
            x = RANDOM.standard_normal(length, np.float32)
            b, y, z = session.run(None, {"a": np.empty((length, 0), np.float32), "x": x})
            assert b.shape == (length, 0)
            np.testing.assert_array_equal(y, x + 1)
            np.testing.assert_array_equal(z, x[2:])


def test_a_tensor_that_is_exchanged_is_the_one_that_is_read() -> None:
    """x lies elsewhere in the step that was expected."""
    session = decoder()
    grows(session)
    binding = session.io_binding()
    given = [ort.OrtValue.ortvalue_from_numpy(np.full((2, WIDE), k, np.float32), "webgpu", 0) for k in (1, 2)]
    for length in range(1, FEW):
        k = length // 5 % 2
        binding.bind_ortvalue_input("x", given[k])
        binding.bind_cpu_input("mask", np.ones((1, length), np.int64))
        binding.bind_output("y", "cpu")
        binding.bind_output("m", "cpu")
        session.run_with_iobinding(binding)
        y, m = binding.copy_outputs_to_cpu()
        np.testing.assert_allclose(y, np.full((2, WIDE), (k + 1) * length, np.float32))
        np.testing.assert_array_equal(m, np.full((1, length), 2))


def test_tensors_that_take_turns_are_found_where_they_will_be() -> None:
    """An IOBinding allocates the mask that is bound before it frees the last one."""
    session = decoder()
    binding = session.io_binding()
    x = RANDOM.standard_normal((2, WIDE), np.float32)
    given = ort.OrtValue.ortvalue_from_numpy(x, "webgpu", 0)
    results = [ort.OrtValue.ortvalue_from_numpy(np.zeros((2, WIDE), np.float32), "webgpu", 0)]
    binding.bind_ortvalue_input("x", given)
    binding.bind_ortvalue_output("y", results[0])
    done = 0
    for _ in range(10):
        for length in range(1, FEW):
            mask = RANDOM.integers(0, 9, (1, length))
            binding.bind_ortvalue_input("mask", ort.OrtValue.ortvalue_from_numpy(mask))
            binding.bind_output("m", "webgpu", 0)
            before = hits()
            session.run_with_iobinding(binding)
            done = done + 1 if hits() > before else 0
            np.testing.assert_allclose(results[0].numpy(), x * mask.sum(), rtol=1e-5)
            np.testing.assert_array_equal(binding.get_outputs()[1].numpy(), mask + 1)
            if done > FEW // 2:
                return
    pytest.fail("no run was done by C code")


def test_what_was_prepared_ends_with_the_session() -> None:
    for _ in range(3):
        session = decoder(deviceId=46)
        grows(session)
        del session
        gc.collect()
        release_dead()
    assert device_of(46).counters["buffer_bytes"] <= 1 << 14  # a readback's


def test_a_lost_device_gets_none_of_it_and_the_next_one_grows_too() -> None:
    session = decoder(deviceId=47)
    for _ in range(3):
        grows(session)
        lose(device_of(47))
        with pytest.raises(webgpu_ep.DeviceLostError):
            step(session, FEW)
        step(session, FEW)


def test_what_is_noted_while_a_session_ends_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    session, seen = decoder(), []
    begin = memo.Memos._begin

    def closed_meanwhile(self: memo.Memos, *arguments: Any) -> None:
        self.close()
        seen.append(self)
        begin(self, *arguments)

    monkeypatch.setattr(memo.Memos, "_begin", closed_meanwhile)
    for length in range(1, FEW):
        step(session, length)
    assert seen
    assert seen[0].live_memos == 0


def test_a_session_that_is_closed_meanwhile_leaves_the_other_one_alone() -> None:
    stays = decoder()
    grows(stays)
    for _ in range(3):
        other = decoder()
        for length in range(1, FEW):
            step(stays, length)
            step(other, length)
        del other
        steps(stays, range(FEW, FEW + 5))
