"""Memory that is freed and allocated again by every run stays where it is, and C code allocates and fills it: less is done in
Python, and everything else is as ever."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu import trace
from onnxruntime_ep_wgpu._ort import ffi
from onnxruntime_ep_wgpu.device import Place, release_dead
from onnxruntime_ep_wgpu.device.sizes import size_class
from onnxruntime_ep_wgpu.errors import DeviceError
from onnxruntime_ep_wgpu.plugin.abi import address
from onnxruntime_ep_wgpu.plugin.memory import pool
from onnxruntime_ep_wgpu.plugin.memory import space as memory
from onnxruntime_ep_wgpu.plugin.memory.allocation import Allocation, Located
from tests import patience

from . import models
from .loss import WITH_WGPU_PY, device_of, lose
from .test_memo import RANDOM, hits

ROOT = Path(__file__).resolve().parents[2]


def without_python(run: Callable[[], object]) -> tuple[int, int]:
    """How often C code allocated, and filled, in a run."""
    before = pool.ranges.reused, pool.ranges.uploads
    run()
    return pool.ranges.reused - before[0], pool.ranges.uploads - before[1]


def freed() -> list[Allocation]:
    """What is in the pool now and nobody uses."""
    return [it for it in memory.space()._allocations.copy().values() if it.is_freed]


def on_device(shape: tuple[int, ...], value: float = 1) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy(np.full(shape, value, np.float32), "webgpu", 0)


def allocation_at(address: int) -> Any:
    return memory.space()._allocations[address]


def used(shape: tuple[int, ...]) -> ort.OrtValue:
    """A tensor that C code has allocated."""
    while without_python(lambda: on_device(shape))[0] == 0:
        pass
    value = on_device(shape)
    assert allocation_at(value.data_ptr()).range.state == pool.USED
    return value


def check(session: Any, rows: int) -> None:
    x = RANDOM.standard_normal((rows, 8), np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], models.chain_reference(x), rtol=1e-4, atol=1e-4)


def settled(session: Any, rows: int) -> bool:
    """Whether runs of this size come to do without Python; it takes a while after sizes that changed faster than that."""
    return any(without_python(lambda: check(session, rows)) == (2, 1) for _ in range(2 * pool.MOST_PASSED_OVER))


@pytest.fixture
def session() -> Any:
    return webgpu_ep.session(models.chain())


def downloads() -> tuple[int, int]:
    """How many tensors were read of the usual device, and how many of them by C code."""
    device = device_of(0)
    return device.counters["downloads"], int(device.queue.shared.downloads)


def test_a_plain_run_that_comes_again_does_nothing_in_python_but_record_the_next_one(session: Any) -> None:
    assert settled(session, 5)
    for _ in range(10):
        before, (read, read_by_c) = hits(), downloads()
        assert without_python(lambda: check(session, 5)) == (2, 1)
        assert hits() == before + 1
        assert downloads() == (read + 1, read_by_c + 1)
    x, files = np.ones((5, 8), np.float32), set()

    def note(frame: Any, _event: str, _argument: Any) -> None:
        files.add(frame.f_code.co_filename)

    sys.settrace(note)
    try:
        session.run(None, {"x": x})
    finally:
        sys.settrace(None)
    package = Path(webgpu_ep.__file__).parent
    assert 1 < sum(Path(it).is_relative_to(package) for it in files) <= 15


def test_several_results_are_read_at_once_as_they_are(session: Any) -> None:
    """By one submission: of a type of one byte, of an odd number of elements, with NaN and infinity."""
    del session
    node, value = models.node, models.FLOAT
    model = models.model(
        [node("Not", ["b"], ["nb"], "not"), node("Neg", ["x"], ["nx"], "neg"), node("Mul", ["x", "x"], ["xx"], "mul")],
        [("b", TensorProto.BOOL, ["n"]), ("x", value, ["m"])],
        [("nb", TensorProto.BOOL, ["n"]), ("nx", value, ["m"]), ("xx", value, ["m"])],
    )
    several, seen = webgpu_ep.session(model), set()
    for _ in range(2 * pool.MOST_PASSED_OVER):
        _, before = downloads()
        b, x = RANDOM.integers(0, 2, 4).astype(bool), RANDOM.standard_normal(7).astype(np.float32)
        x[:2] = np.nan, np.inf
        for made, expected in zip(several.run(None, {"b": b, "x": x}), (~b, -x, x * x), strict=True):
            np.testing.assert_array_equal(made, expected)
        seen.add(downloads()[1] - before)
        if 3 in seen:
            break
    assert 3 in seen


def test_threads_that_read_at_once_read_their_own(session: Any) -> None:
    values = [used((5, 8)) for _ in range(4)]
    wrong: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for k in range(40):
                array = np.full((5, 8), 100 * number + k, np.float32)
                values[number].update_inplace(array)
                np.testing.assert_array_equal(values[number].numpy(), array)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


def test_a_tensor_of_a_lost_device_is_no_longer_read(session: Any) -> None:
    del session
    mine = webgpu_ep.session(models.chain(), deviceId=63)
    for _ in range(12):
        check(mine, 5)
    device = device_of(63)
    assert device.queue.shared.downloads
    binding, x = mine.io_binding(), np.ones((5, 8), np.float32)
    binding.bind_cpu_input("x", x)
    binding.bind_output("y", "webgpu", 0)
    mine.run_with_iobinding(binding)
    value = binding.get_outputs()[0]
    lose(device)
    with pytest.raises(Exception, match="lost"):
        value.numpy()
    check(mine, 5)


@pytest.mark.costly
@pytest.mark.parametrize("seed", range(3))
def test_runs_of_sizes_in_any_order_are_right(session: Any, seed: int) -> None:
    order = np.random.default_rng(seed)
    few, many = order.integers(1, 60, 6), order.integers(1, 3000, 40)
    for rows in [*order.choice(few, 60), *many, *order.choice(few, 60)]:
        check(session, int(rows))


def test_what_a_range_held_before_is_nobodys(session: Any) -> None:
    """Tensors of several sessions and types lie in the same ranges, one after the other."""
    other = webgpu_ep.session(models.square())
    for rows in (4, 4, 4, 3, 4, 4) * 3:
        check(session, rows)
        x = RANDOM.standard_normal((rows, 8), np.float32)
        np.testing.assert_allclose(other.run(None, {"x": x})[0], x * x, rtol=1e-4)


def shaped() -> Any:
    """x, which is reshaped to an input that the host knows, times itself."""
    node = models.node
    nodes = [node("Reshape", ["x", "s"], ["r"], "reshape"), node("Mul", ["r", "r"], ["y"], "mul")]
    return webgpu_ep.session(
        models.model(nodes, [("x", models.FLOAT, ["N"]), ("s", models.INT64, [2])], [("y", models.FLOAT, ["A", "B"])])
    )


def test_inputs_that_set_shapes_are_read_back_at_most_once_each() -> None:
    session, device = shaped(), device_of(0)
    x = RANDOM.standard_normal(24, np.float32)
    before = device.counters["downloads"]
    shapes = [(a, 24 // a) for a in (1, 2, 3, 4, 6, 8, 12, 24)] * 4
    for shape in shapes:
        y = session.run(None, {"x": x, "s": np.array(shape)})[0]
        np.testing.assert_array_equal(y, (x * x).reshape(shape))
    # One of each result, and one for each range that may have been another tensor's when s came to lie there.
    assert device.counters["downloads"] - before <= len(shapes) + 3


def test_results_whose_shapes_the_host_knows_are_those_of_the_run(session: Any) -> None:
    """A tensor that was uploaded is read from its host copy, one that C code has uploaded since is not."""
    binding = session.io_binding()
    for value in (1, 2, 3, 4, 5, 6):
        x = np.full((3, 8), value, np.float32)
        here = ort.OrtValue.ortvalue_from_numpy(x, "webgpu", 0)
        np.testing.assert_array_equal(here.numpy(), x)
        here.update_inplace(x + 1)
        np.testing.assert_array_equal(here.numpy(), x + 1)
        binding.bind_ortvalue_input("x", here)
        del here
        check(session, 3)


def test_ranges_are_bounded_and_those_used_longest_ago_go(session: Any) -> None:
    for rows in range(1, 4000, 37):
        check(session, rows)
    its = freed()
    assert 0 < len(its) <= pool.lib.POOLED
    assert sum(it.capacity for it in its) <= pool.MOST_HELD
    assert settled(session, 2)


def test_many_that_are_used_once_do_not_keep_others_out(session: Any) -> None:
    """As the caches of a decoder, which are given to one run as arrays."""
    for rows in range(1, 100):
        check(session, 100 * rows)
        if rows % 10 == 0:
            check(session, 7)
            check(session, 7)
    assert settled(session, 7)


def test_a_range_that_was_freed_is_no_range(session: Any) -> None:
    assert settled(session, 6)
    start = freed()[0].start
    with pytest.raises(DeviceError, match="was it freed"):
        memory.space().read(start, 4)


def test_what_is_counted_is_what_is_in_use(session: Any) -> None:
    check(session, 3)
    before = memory.space().bytes_in_use
    for rows in (3, 3, 4, 3, 4, 900, 3, 901):
        check(session, rows)
        assert memory.space().bytes_in_use == before
    space = memory.space()
    value = on_device((3, 8))
    assert space.bytes_in_use == before + 96
    del value
    assert space.bytes_in_use == before
    # As much as ever, and then 96 bytes more, which C code allocates.
    other = space.allocate(space.bytes_at_most - before, lambda: device_of(0))
    most = space.bytes_at_most
    assert space.bytes_in_use == most
    assert without_python(lambda: on_device((3, 8)))[0] == 1
    assert space.bytes_at_most == most + 96
    space.end_pooling(context=allocation_at(on_device((3, 8)).data_ptr()).owner.context)  # none of which was in use
    space.free(other)
    assert (space.bytes_in_use, space.bytes_at_most) == (before, most + 96)


def test_the_last_session_takes_them_with_it() -> None:
    session = webgpu_ep.session(models.chain(), deviceId=46)
    assert settled(session, 5)
    device = weakref.ref(device_of(46))
    assert any(it.device is device() for it in freed())
    del session
    gc.collect()
    release_dead()
    gc.collect()
    assert device() is None


def test_tensors_that_outlive_the_session_are_not_kept_when_they_go() -> None:
    session = webgpu_ep.session(models.chain(), deviceId=47)
    binding = session.io_binding()
    x = np.ones((4, 8), np.float32)
    for _ in range(4):
        binding.bind_cpu_input("x", x)
        binding.bind_output("y", "webgpu", 0)
        session.run_with_iobinding(binding)
        (value,) = binding.get_outputs()
    device = weakref.ref(device_of(47))
    del session, binding
    gc.collect()
    np.testing.assert_allclose(value.numpy(), models.chain_reference(x), rtol=1e-4)
    del value
    gc.collect()
    release_dead()
    gc.collect()
    assert device() is None


@WITH_WGPU_PY
def test_a_tensor_that_is_shared_with_wgpu_is_not_kept(session: Any) -> None:
    assert settled(session, 4)
    x = np.ones((4, 8), np.float32)
    value = ort.OrtValue.ortvalue_from_numpy(x, "webgpu", 0)
    start = value.data_ptr()
    webgpu_ep.buffer_of(value)
    del value
    gc.collect()
    assert all(it.start != start for it in freed())
    for _ in range(4):
        check(session, 4)


@pytest.mark.costly
@pytest.mark.parametrize("mode", ["disabled", "lazyRelease", "simple"])
def test_modes_in_which_free_buffers_do_not_wait_in_size_classes_keep_none(mode: str) -> None:
    number = 48 + 10 * len(mode)  # a device of its own
    session = webgpu_ep.session(models.chain(), deviceId=number, storageBufferCacheMode=mode)
    for rows in (4, 8, 4, 8, 4) * 20:
        check(session, rows)
    assert all(it.device is not device_of(number) for it in freed())


def test_a_lost_device_is_an_error_once_and_ranges_are_kept_on_the_next_one() -> None:
    session = webgpu_ep.session(models.chain(), deviceId=49)
    for _ in range(3):
        for _ in range(4):
            check(session, 5)
        lose(device_of(49))
        with pytest.raises(webgpu_ep.DeviceLostError):
            check(session, 5)
        check(session, 5)
    assert settled(session, 5)


def test_who_listens_hears_of_uploads_that_c_code_did_before(session: Any) -> None:
    assert settled(session, 5)
    recorder = trace.Recorder()
    with recorder.listening():
        assert without_python(lambda: check(session, 5)) == (2, 0)
    assert "upload" in [it.kind for it in recorder.finish()]
    assert settled(session, 5)


def test_threads_allocate_fill_and_free_at_once(session: Any) -> None:
    wrong: list[BaseException] = []
    sessions = [session, webgpu_ep.session(models.chain())]

    def work(number: int) -> None:
        order = np.random.default_rng(number)
        try:
            for _ in range(40):
                rows = int(order.choice([3, 5, 40, 700]))
                x = order.standard_normal((rows, 8)).astype(np.float32)
                y = sessions[int(order.integers(2))].run(None, {"x": x})[0]
                np.testing.assert_allclose(y, models.chain_reference(x), rtol=1e-4, atol=1e-4)
        except BaseException as error:
            wrong.append(error)

    before = pool.ranges.reused
    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
    assert pool.ranges.reused - before > 100


def test_odd_sizes_are_right() -> None:
    """GPU memory is written in words: tensors of bytes that end within one."""
    node = models.node
    model = models.model(
        [node("Not", ["x"], ["y"], "not")], [("x", TensorProto.BOOL, ["n"])], [("y", TensorProto.BOOL, ["n"])]
    )
    session = webgpu_ep.session(model)
    for count in (4, 3, 4, 4, 5, 7, 8, 8, 8, 1, 8, 3, 3, 3):
        x = RANDOM.integers(0, 2, count).astype(bool)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], ~x)


# ---- who has a range


def test_states_and_sizes_are_those_of_c_code() -> None:
    lib = pool.lib
    assert (pool.PYTHONS, pool.USED, pool.FREE, pool.GONE) == (lib.PYTHONS, lib.USED, lib.FREE, lib.GONE)
    sizes = [*range(5000), *(2**bits + more for bits in range(12, 40) for more in (-257, -1, 0, 1, 255, 256, 257))]
    assert [lib.size_class(it) for it in sizes] == [size_class(it) for it in sizes]


def test_a_range_is_in_one_state_whoever_asks_twice(session: Any) -> None:
    value = used((5, 8))
    allocation, space = allocation_at(value.data_ptr()), memory.space()
    its, ends = allocation.range, pool.ranges.ends
    assert its.take_back(pool.FREE) == pool.USED  # it is not FREE
    assert its.take_back(pool.USED | pool.FREE) == pool.PYTHONS
    assert its.take_back(pool.USED | pool.FREE) == pool.PYTHONS
    assert its.lend(ends - 1) == pool.PYTHONS  # something has ended since
    assert its.lend(ends) == pool.USED
    assert its.lend(ends) == pool.USED
    space.free(allocation.start)  # not Python's
    assert its.state == pool.USED
    del value
    assert its.state == pool.FREE
    space.free(allocation.start)
    assert its.state == pool.FREE
    assert its.take_back(pool.USED) == pool.FREE
    assert its.take_back(pool.FREE) == pool.GONE
    assert its.take_back(pool.USED | pool.FREE) == pool.GONE
    assert its.lend(ends) == pool.GONE
    space._forget_gone()
    assert allocation.start not in space._allocations


def test_what_c_code_allocated_comes_again_when_a_thread_frees_it_that_is_listened_on(session: Any) -> None:
    assert settled(session, 5)
    in_use = memory.space().bytes_in_use
    for _ in range(3):
        value = used((5, 8))
        start, recorder = value.data_ptr(), trace.Recorder()
        with recorder.listening():
            del value
        recorder.finish()
        assert allocation_at(start).is_freed
        assert memory.space().bytes_in_use == in_use


@pytest.mark.costly
@pytest.mark.parametrize("how", ["from C code", "from Python"])
def test_a_free_that_was_interrupted_at_its_end_leaves_what_another_thread_got(how: str) -> None:
    """In a process of its own, whose garbage and handlers of signals are those of this test."""
    program = f"from tests.plugin import test_pool; test_pool.free_interrupted({how!r})"
    done = patience.run([sys.executable, "-c", program], cwd=ROOT)
    assert done.returncode == 0, done.stderr


def free_interrupted(how: str) -> None:
    session = webgpu_ep.session(models.chain())
    check(session, 5)
    value = on_device((5, 8))  # Python's
    start, others, space = value.data_ptr(), [], memory.space()
    assert allocation_at(start).range.state == pool.PYTHONS
    give_free, calls = pool.Range.give_free, []

    def allocate() -> None:
        if how == "from Python":  # as a new range, after this one went for another one
            space._drop(start)
        while not others or others[-1].data_ptr() != start:
            others.append(on_device((5, 8), 7))

    def interrupted(self: pool.Range, *arguments: Any) -> None:
        give_free(self, *arguments)
        calls.append(self)
        if len(calls) == 1:
            thread = threading.Thread(target=allocate)
            thread.start()
            thread.join()
            signal.raise_signal(signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(pool.Range, "give_free", interrupted)
        del value
        gc.collect()
    assert not space._allocations[start].is_freed
    np.testing.assert_array_equal(others[-1].numpy(), np.full((5, 8), 7))


def test_an_interrupt_behind_taking_a_range_back_loses_none(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    del session
    session = webgpu_ep.session(models.chain(), deviceId=62)
    check(session, 5)
    forget, interrupts = memory.AddressSpace._forget, []

    def interrupted(self: memory.AddressSpace, allocation: Allocation) -> None:
        if not interrupts:
            interrupts.append(allocation)
            raise KeyboardInterrupt
        forget(self, allocation)

    monkeypatch.setattr(memory.AddressSpace, "_forget", interrupted)
    with pytest.raises(KeyboardInterrupt):
        for allocation in freed():
            memory.space()._drop(allocation.start)
    check(session, 5)
    check(session, 700)
    (lost,) = interrupts
    assert memory.space()._allocations.get(lost.start) is not lost
    interrupts.clear()
    with pytest.raises(KeyboardInterrupt):
        memory.space().end_pooling(context=freed()[0].owner.context)
    device = device_of(62)
    del session
    gc.collect()
    assert all(it.device is not device for it in memory.space()._allocations.values())


@pytest.mark.costly
@pytest.mark.parametrize("how", ["adopt", "lend"])
def test_a_range_that_others_know_the_buffer_of_is_never_c_codes(
    session: Any, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the interrupt comes before it is known to be shared."""
    value, space = used((5, 8)), memory.space()
    allocation = allocation_at(value.data_ptr())
    monkeypatch.setattr(Allocation, "_mark_lent", lambda self: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        if how == "adopt":
            space.adopt(allocation.start, 160, Located(device_of(0), Place(device_of(0).buffer(256), 0)))
        else:
            space.lend(allocation.start, 160)
    monkeypatch.undo()
    for k in range(8):  # as often as it takes to be left to C code
        value.update_inplace(np.full((5, 8), k, np.float32))
        np.testing.assert_array_equal(value.numpy(), np.full((5, 8), k))
    assert allocation.range.state == pool.PYTHONS
    del value
    gc.collect()
    assert allocation.range.state == pool.GONE


def test_the_old_buffer_of_an_adopted_range_is_used_again(session: Any) -> None:
    value, device = used((5, 8)), device_of(0)
    old = allocation_at(value.data_ptr())._pieces[0].buffer
    memory.space().adopt(value.data_ptr(), 160, Located(device, Place(device.buffer(256), 0)))
    assert device.caches.storage.take(256, "a test") is old


def test_an_upload_goes_where_its_tensor_lay_whatever_comes_into_its_place(session: Any) -> None:
    """Another thread takes the range back while C code uploads to it, and another one gets its place in the pool."""
    value, other = used((5, 8)), used((500, 8))
    mine, stranger = (allocation_at(it.data_ptr()) for it in (value, other))
    real, written = pool.lib.upload, []
    stranger.range.take_back(pool.USED)
    buffer = mine._pieces[0].buffer

    def upload(queue: int, to: int, offset: int, data: Any, nbytes: int) -> int:
        mine.range.take_back(pool.USED)
        stranger.range.lend(pool.ranges.ends)
        written.append(to)
        return int(real(queue, to, offset, data, nbytes))

    pool.lib.upload = function = ffi.callback(ffi.typeof(real), upload)
    try:
        value.update_inplace(np.full((5, 8), 3, np.float32))
    finally:
        pool.lib.upload = real
    del function
    assert written == [address(buffer.handle)]
    assert stranger.range.state == pool.USED
    assert stranger.range.filled == 2**64 - 1
    np.testing.assert_array_equal(value.numpy(), np.full((5, 8), 3))


@pytest.mark.parametrize("how", ["freed", "filled"])
def test_nothing_comes_into_the_pool_when_the_sessions_end_meanwhile(
    session: Any, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    value, space = on_device((5, 8)), memory.space()
    allocation = allocation_at(value.data_ptr())
    admits = pool.Admission.admits

    def ends(self: pool.Admission, *_: Any) -> bool:
        space.end_pooling(context=allocation.owner.context)
        return admits(self, 256)

    monkeypatch.setattr(pool.Admission, "admits", ends)
    monkeypatch.setattr(pool.Admission, "has_ample_room", property(ends))
    if how == "filled":
        value.update_inplace(np.ones((5, 8), np.float32))
        assert allocation.range.state == pool.PYTHONS
    else:
        del value
        assert allocation.range.state == pool.GONE


def test_an_allocator_that_ends_takes_what_is_freed_meanwhile_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    session = webgpu_ep.session(models.chain(), deviceId=63)
    assert settled(session, 5)
    context, numbers = freed()[0].owner.context, []
    end = memory.AddressSpace.end_pooling

    def noted(self: memory.AddressSpace, owner: Any = None, context: Any = None) -> None:
        numbers.extend([owner.number] if owner is not None else [])
        end(self, owner, context)

    monkeypatch.setattr(memory.AddressSpace, "end_pooling", noted)
    del session
    gc.collect()
    assert numbers
    assert not any(numbers)
    assert all(it.owner.context is not context for it in freed())


def test_one_range_that_takes_the_place_of_many_is_one_lesson(monkeypatch: pytest.MonkeyPatch) -> None:
    admission = pool.Admission()
    monkeypatch.setattr(pool.Admission, "surplus", lambda self, capacity: 256)
    assert admission.admits(1 << 20)  # which learns that something came again since nothing was known
    for passed_over in (0, 1, 3):
        assert [admission.admits(1 << 20) for _ in range(passed_over + 1)] == [False] * passed_over + [True]


def test_counters_of_a_device_are_those_of_all_its_sessions_and_do_not_fall() -> None:
    sessions, hits = [webgpu_ep.session(models.chain(), deviceId=64) for _ in range(2)], 0
    device, elsewhere = device_of(64), device_of(0).caches.storage.counters
    for rows, session in zip((5, 500), sessions, strict=True):
        for _ in range(5):
            check(session, rows)
            assert device.caches.storage.counters.hits >= hits
            hits = device.caches.storage.counters.hits
    assert device.caches.storage.counters.hits >= 2 * 2 * 4
    free = [it for it in freed() if it.device is device]
    assert len(free) == 4
    assert device.caches.storage.counters.held_bytes >= sum(it.capacity for it in free)
    assert device_of(0).caches.storage.counters == elsewhere
    del session, sessions[0]
    gc.collect()
    assert device.caches.storage.counters.hits >= hits


def test_what_waits_on_a_lost_device_is_not_given_out() -> None:
    """The first device, on which ONNX Runtime makes tensors, is that of other tests too: a process of its own loses it."""
    program = "from tests.plugin import test_pool; test_pool.lose_what_waits()"
    done = patience.run([sys.executable, "-c", program], cwd=ROOT)
    assert done.returncode == 0, done.stderr


def lose_what_waits() -> None:
    session = webgpu_ep.session(models.chain())
    for _ in range(3):
        check(session, 5)
    used((5, 8))
    device, freed_there = device_of(0), freed()
    assert freed_there
    lose(device)
    with pytest.raises(webgpu_ep.DeviceLostError):
        check(session, 5)
    check(session, 5)
    value = ort.OrtValue.ortvalue_from_shape_and_type([5, 8], np.float32, "webgpu", 0)
    assert value.numpy().shape == (5, 8)
    for rows in (6, 70, 80):
        check(session, rows)
    assert all(it.device is not device for it in freed())


# ---- who fills it


def test_a_tensor_that_is_written_again_and_again_is_left_to_c_code_when_there_is_room(session: Any) -> None:
    check(session, 5)
    others = [on_device((5, 8)) for _ in range(pool.lib.POOLED // 2)]
    for other in others:
        other.update_inplace(np.ones((5, 8), np.float32))
    value = on_device((5, 8))
    for k in range(8):
        value.update_inplace(np.full((5, 8), k, np.float32))
    assert allocation_at(value.data_ptr()).range.state == pool.PYTHONS
    others.clear()
    memory.space().end_pooling(context=allocation_at(value.data_ptr()).owner.context)
    for k in range(8):
        value.update_inplace(np.full((5, 8), k, np.float32))
    assert without_python(lambda: value.update_inplace(np.full((5, 8), 9, np.float32))) == (0, 1)
    np.testing.assert_array_equal(value.numpy(), np.full((5, 8), 9))


def test_a_tensor_that_is_read_or_copied_is_still_filled_by_c_code(session: Any) -> None:
    value, other = used((5, 8)), on_device((5, 8))
    for k in range(4):
        array = np.full((5, 8), k, np.float32)
        assert without_python(lambda array=array: value.update_inplace(array))[1] == 1  # type: ignore[misc]
        np.testing.assert_array_equal(value.numpy(), array)
        with contextlib.suppress(TypeError, RuntimeError):  # from 1.27 on
            other.update_inplace(value)
            np.testing.assert_array_equal(other.numpy(), array)


def test_a_session_is_right_in_the_ranges_that_others_left(session: Any) -> None:
    """Inputs that set shapes lie where C code uploaded other tensors, and the other way round."""
    other, x = shaped(), RANDOM.standard_normal(24, np.float32)
    for turn in range(6):
        for rows in (1, 2):  # of the same size classes
            check(session, rows)
        for a in (*(1, 2, 3, 4, 6, 8)[turn:], 2, 12):
            y = other.run(None, {"x": x, "s": np.array([a, 24 // a])})[0]
            np.testing.assert_array_equal(y, (x * x).reshape(a, 24 // a))
        values = [on_device((1, 2), turn), on_device((2, 1), -turn)]
        np.testing.assert_array_equal(values[0].numpy(), np.full((1, 2), turn))
        np.testing.assert_array_equal(values[1].numpy(), np.full((2, 1), -turn))
    last = webgpu_ep.session(models.square())  # made where all of that waits
    for rows in (1, 3, 1, 3):
        x = RANDOM.standard_normal((rows, 8), np.float32)
        np.testing.assert_allclose(last.run(None, {"x": x})[0], x * x, rtol=1e-4)


def test_a_tensor_that_comes_to_lie_elsewhere_while_it_is_left_to_c_code_is_not(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    value, space = on_device((5, 8)), memory.space()
    allocation, lend = allocation_at(value.data_ptr()), pool.Range.lend

    def moved(self: pool.Range, ends: int) -> int:
        buffer = device_of(0).caches.storage.take(256, "a test")
        with allocation._lock:
            allocation._place_in(allocation._pieces[0]._replace(buffer=buffer))
        return lend(self, ends)

    monkeypatch.setattr(pool.Range, "lend", moved)
    for k in range(4):
        value.update_inplace(np.full((5, 8), k, np.float32))
        assert allocation.range.state == pool.PYTHONS
    monkeypatch.undo()
    for k in range(4, 8):
        value.update_inplace(np.full((5, 8), k, np.float32))
        np.testing.assert_array_equal(value.numpy(), np.full((5, 8), k))
    assert space.bytes_in_use >= 160


def test_who_uploads_in_c_code_does_not_have_the_lock_of_the_interpreter(session: Any) -> None:
    """An error of wgpu-native, which another thread reports to Python, waits for that lock, and who uploads for the error."""
    value, binding = used((5, 8)), session.io_binding()
    ones = np.ones((5, 8), np.float32)
    assert without_python(lambda: value.update_inplace(ones))[1] == 1
    assert any(without_python(lambda: binding.bind_cpu_input("x", ones))[1] for _ in range(4))
    real, has_lock = pool.lib.upload, ctypes.cast(ctypes.pythonapi.PyGILState_Check, ctypes.c_void_p).value
    try:
        # It says that it uploaded when it has the lock; else Python does that.
        pool.lib.upload = ffi.cast(ffi.typeof(real), has_lock)
        array = np.full((5, 8), 2, np.float32)
        assert without_python(lambda: value.update_inplace(array))[1] == 0
        assert not any(without_python(lambda: binding.bind_cpu_input("x", array))[1] for _ in range(4))
    finally:
        pool.lib.upload = real
    np.testing.assert_array_equal(value.numpy(), array)
