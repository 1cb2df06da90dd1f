"""Memory that is freed and allocated again by every run stays where it is, and C code allocates and fills it: less is done in
Python, and everything else is as ever."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu import trace
from onnxruntime_ep_wgpu.device import let_go
from onnxruntime_ep_wgpu.errors import DeviceError
from onnxruntime_ep_wgpu.plugin.memory import kept
from onnxruntime_ep_wgpu.plugin.memory import space as memory
from onnxruntime_ep_wgpu.plugin.memory.allocation import Allocation

from . import models
from .loss import device_of, lose
from .test_memo import RANDOM, hits

pytestmark = pytest.mark.skipif(kept.native is None, reason="the extension has not been built")


def without_python(run: Callable[[], object]) -> tuple[int, int]:
    """How often C code allocated, and filled, in a run."""
    before = kept.ranges.again, kept.ranges.uploads
    run()
    return kept.ranges.again - before[0], kept.ranges.uploads - before[1]


def freed() -> list[Allocation]:
    """What is kept now and nobody uses."""
    return [it for it in memory.space()._allocations.copy().values() if it.is_freed]


def check(session: Any, rows: int) -> None:
    x = RANDOM.standard_normal((rows, 8), np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], models.chain_reference(x), rtol=1e-4, atol=1e-4)


def settled(session: Any, rows: int) -> bool:
    """Whether runs of this size come to do without Python; it takes a while after sizes that changed faster than that."""
    return any(without_python(lambda: check(session, rows)) == (2, 1) for _ in range(2 * kept.MOST_PASSED_OVER))


@pytest.fixture
def session() -> Any:
    return webgpu_ep.session(models.chain())


def test_a_plain_run_that_comes_again_does_nothing_in_python_but_the_download(session: Any) -> None:
    assert settled(session, 5)
    for _ in range(10):
        before = hits()
        assert without_python(lambda: check(session, 5)) == (2, 1)
        assert hits() == before + 1


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
    assert 0 < len(its) <= kept.native.lib.KEPT
    assert sum(it.capacity for it in its) <= kept.MOST_HELD
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
    value = ort.OrtValue.ortvalue_from_numpy(np.ones((3, 8), np.float32), "webgpu", 0)
    assert memory.space().bytes_in_use == before + 96
    assert memory.space().bytes_at_most >= before + 96
    del value
    assert memory.space().bytes_in_use == before


def test_the_last_session_takes_them_with_it() -> None:
    session = webgpu_ep.session(models.chain(), deviceId=46)
    assert settled(session, 5)
    device = weakref.ref(device_of(46))
    assert any(it.device is device() for it in freed())
    del session
    gc.collect()
    let_go()
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
    let_go()
    gc.collect()
    assert device() is None


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
        try:
            check(session, 5)
        except webgpu_ep.DeviceLostError:
            check(session, 5)
    assert settled(session, 5)


def test_who_listens_hears_of_uploads_that_c_code_did_before(session: Any) -> None:
    assert settled(session, 5)
    recorder = trace.Recorder()
    with recorder.listening():
        assert without_python(lambda: check(session, 5)) == (0, 0)
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

    before = kept.ranges.again
    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
    assert kept.ranges.again - before > 100


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
