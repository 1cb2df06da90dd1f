"""What recorders hear: the spans of the threads that they listen on, and nothing of anybody else's."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.errors import DeviceLostError
from onnxruntime_ep_wgpu.trace import GPU_THREAD, MOST_PENDING, Recorder, Span, listeners, span, with_listeners
from tests.support import Runner, compile_model, device, make_model

F = np.float32


class Submission:
    """A submission of one dispatch that ran from `at` to `at` + 1."""

    def __init__(self, at: int, log: list[int] | None = None) -> None:
        self.at, self.log = at, log if log is not None else []

    def read(self) -> list[tuple[int, int]]:
        self.log.append(self.at)
        return [(self.at, self.at + 1)]


def note(name: str) -> None:
    with span("plan", name):
        pass


def names(spans: list[Span]) -> list[str]:
    return [it.name for it in spans]


def test_nobody_listens_unless_asked() -> None:
    assert listeners() == ()
    with span("plan", "a") as args:
        assert args is None


def test_a_recorder_hears_what_happens_while_it_listens() -> None:
    recorder = Recorder()
    note("before")
    with recorder.listening():
        note("within")
    note("after")
    assert names(recorder.finish()) == ["within"]


def test_spans_nest_and_carry_their_args_even_when_the_work_fails() -> None:
    recorder = Recorder()
    with recorder.listening(), pytest.raises(ZeroDivisionError), span("plan", "outer", size=3) as args:
        assert args is not None
        args["more"] = 4
        note("inner")
        raise ZeroDivisionError
    outer, inner = recorder.finish()
    assert (outer.name, outer.kind, outer.args) == ("outer", "plan", {"size": 3, "more": 4})
    assert outer.begin <= inner.begin <= inner.end <= outer.end
    assert outer.thread == threading.get_native_id()


def test_recorders_on_two_threads_do_not_mix() -> None:
    barrier = threading.Barrier(2)
    found: dict[str, list[str]] = {}

    def work(name: str) -> None:
        recorder = Recorder()
        with recorder.listening():
            for _ in range(20):
                barrier.wait()
                note(name)
        found[name] = names(recorder.finish())

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"a": ["a"] * 20, "b": ["b"] * 20}


def test_two_recorders_on_one_thread_hear_the_same_once_each() -> None:
    one, other = Recorder(), Recorder()
    with one.listening(), other.listening(), one.listening():
        note("x")
    assert names(one.finish()) == names(other.finish()) == ["x"]


def test_work_handed_to_another_thread_is_heard_there() -> None:
    recorder, unheard = Recorder(), with_listeners(note)
    with recorder.listening():
        work = with_listeners(note)
    for function, name in ((work, "handed over"), (unheard, "from before"), (note, "by itself")):
        thread = threading.Thread(target=function, args=(name,))
        thread.start()
        thread.join()
    assert names(recorder.finish()) == ["handed over"]


def test_what_follows_a_stretch_that_never_ended_is_not_its_own() -> None:
    recorder = Recorder()
    recorder.start("a run that failed")
    note("of somebody else")
    with recorder.listening():
        note("own")
    assert names(recorder.finish()) == ["own"]
    assert listeners() == ()


def test_an_outer_end_ends_what_an_error_left_open_within() -> None:
    recorder = Recorder()
    recorder.start("run")
    recorder.start("node")
    note("within")
    recorder.stop("run")
    assert listeners() == ()
    assert names(recorder.finish()) == ["within"]


def test_nothing_is_heard_after_the_end() -> None:
    recorder = Recorder()
    with recorder.listening():
        recorder.finish()
        assert listeners() == ()
        note("late")
    assert recorder.finish() == []


def test_timestamps_are_read_at_the_end() -> None:
    recorder, log = Recorder(), []
    with recorder.listening():
        for at in range(3):
            listeners()[0].dispatched(Submission(at, log), [(f"kernel {at}", {"flops": at})])
        assert log == []
    spans = recorder.finish()
    assert [(it.kind, it.name, it.begin, it.end, it.thread) for it in spans] == [
        ("dispatch", f"kernel {at}", at, at + 1, GPU_THREAD) for at in range(3)
    ]


def test_a_long_recording_keeps_few_timestamps_on_the_gpu() -> None:
    recorder, log = Recorder(), []
    with recorder.listening():
        for at in range(10 * MOST_PENDING):
            listeners()[0].dispatched(Submission(at, log), [("kernel", {})])
            assert at - len(log) <= MOST_PENDING
    assert len(recorder.finish()) == 10 * MOST_PENDING


def test_a_lost_device_leaves_the_spans_of_the_cpu_and_says_so() -> None:
    class Lost:
        def read(self) -> list[tuple[int, int]]:
            raise DeviceLostError("the device was lost")

    recorder = Recorder()
    with recorder.listening():
        note("plan")
        listeners()[0].dispatched(Lost(), [("kernel", {})])
    assert names(recorder.finish()) == ["plan"]
    assert isinstance(recorder.problem, DeviceLostError)


def test_a_run_is_planned_submitted_and_timed() -> None:
    nodes = [node("MatMul", ["x", "w"], ["a"], "product"), node("Relu", ["a"], ["y"], "relu")]
    model = make_model(nodes, {"x": (F, ["n", 8])}, {"w": np.ones((8, 4), F)})
    x, recorder = np.ones((3, 8), F), Recorder()
    with recorder.listening():
        run = Runner(compile_model(model))
        recorded = run(x)
        run(x)
    np.testing.assert_array_equal(recorded[0], run(x)[0])
    spans = recorder.finish()
    kinds = [it.kind for it in spans]
    assert kinds.count("plan") == 1 and kinds.count("submit") == 2 and kinds.count("download") == 2
    assert spans == sorted(spans, key=lambda it: (it.begin, -it.end))
    if device().has_timestamps:
        first, second = (it for it in spans if it.kind == "dispatch")
        assert first.args == second.args
        assert {
            "operators": "MatMul, Relu", "nodes": "product, relu", "dispatch": 0,
            "inputs": "float32[3, 8], float32[8, 4]", "outputs": "float32[3, 4]",
            "flops": 2 * 3 * 8 * 4 + 3 * 4, "bytes": 4 * (24 + 32 + 12), "device": device().adapter.name,
        }.items() <= first.args.items()  # fmt: skip


def test_an_adapter_without_timestamps_leaves_the_spans_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model([node("Relu", ["x"], ["y"])], {"x": (F, [3])})
    run, recorder = Runner(compile_model(model)), Recorder()
    monkeypatch.setattr(type(device()), "has_timestamps", False)
    with recorder.listening():
        np.testing.assert_array_equal(run(np.ones(3, F))[0], np.ones(3, F))
    kinds = {it.kind for it in recorder.finish()}
    assert "submit" in kinds and "dispatch" not in kinds
