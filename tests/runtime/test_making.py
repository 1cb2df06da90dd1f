"""How a session is made: parts by an injected clock, what a listener is told, and which pipelines count where."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.device import adapters, open_device
from onnxruntime_ep_wgpu.rehearsal import is_on, rehearsing
from onnxruntime_ep_wgpu.runtime.making import Making, PipelineCount
from onnxruntime_ep_wgpu.runtime.pipelines import Pipelines
from onnxruntime_ep_wgpu.runtime.progress import COMPILING, DEVICE, PARTS, PIPELINES, WEIGHTS, Progress
from onnxruntime_ep_wgpu.runtime.settings import RunSettings
from tests.support import Runner, compile_model, make_model

F = np.float32


class Clock:
    """Seconds that go on when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_parts_are_counted_by_themselves_and_add_up_to_no_more_than_the_whole() -> None:
    clock = Clock()
    making = Making(clock=clock)
    clock.now += 1  # reading
    with making.part(COMPILING):
        clock.now += 2
        with making.part(DEVICE):
            clock.now += 4
        clock.now += 8
    clock.now += 16  # ONNX Runtime's own
    with making.part(WEIGHTS):
        clock.now += 32
    clock.now += 64
    making.end()
    clock.now += 1000
    making.end()
    found = making.milliseconds
    assert list(found) == [*PARTS, "total"]
    want = {"reading": 1000, "compiling": 10000, "device": 4000, "weights": 32000, "total": 127000}
    assert {name: time for name, time in found.items() if time} == pytest.approx(want)


def test_an_error_in_a_part_ends_the_part() -> None:
    clock = Clock()
    making = Making(clock=clock)
    with pytest.raises(KeyError), making.part(COMPILING), making.part(WEIGHTS):
        clock.now += 1
        raise KeyError
    clock.now += 5
    with making.part(DEVICE):
        clock.now += 2
    found = making.milliseconds
    assert (found["weights"], found["compiling"], found["device"]) == pytest.approx((1000, 0, 2000))


def test_a_listener_is_told_of_parts_and_steps_until_the_end() -> None:
    clock, told = Clock(), list[Progress]()
    making = Making(told.append, clock=clock)
    clock.now += 1
    with making.part(WEIGHTS):
        clock.now += 1
        making.step(5, 10)
        with making.part(PIPELINES):
            pass
    making.end()
    making.step(1, 1)
    assert told == [
        Progress("weights", 0, 0, 1.0),
        Progress("weights", 5, 10, 2.0),
        Progress("pipelines", 0, 0, 2.0),
    ]
    assert making.last == told[-1]


def test_a_line_says_how_far_it_is() -> None:
    clock = Clock()
    making = Making(clock=clock)
    clock.now += 4
    assert making.line() == "a session is being made, for 4 s so far: reading" and making.spent == 4
    with making.part(WEIGHTS):
        making.step(5, 10)
        assert making.line() == "a session is being made, for 4 s so far: weights, 5 of 10 bytes"
    with making.part(PIPELINES):
        assert making.line().endswith("so far: pipelines")
        making.step(1, 3)
        assert making.line().endswith("so far: pipelines, 1 of 3")
    making.in_a_run()(0.5)
    assert making.first_run_line() == "the first run compiles kernels; 1 are new so far"
    assert not making.is_watched and Making(lambda _: None).is_watched


def layers(rows: int | str) -> Any:
    """Two kernels in a row, for a number of rows that may be free."""
    nodes = [node("Softmax", ["x"], ["s"]), node("Transpose", ["s"], ["t"]), node("Softmax", ["t"], ["y"])]
    return compile_model(make_model(nodes, {"x": (F, [rows, 40])}))


def begun(program: Any, context: int) -> tuple[Making, Pipelines]:
    """Pipelines of a program on a device of its own, settled."""
    making = Making()
    pipelines = Pipelines(program, open_device(adapters()[0], context), RunSettings(), making.in_a_run)
    making.begin(pipelines)
    making.settle()
    return making, pipelines


def test_where_sizes_are_known_all_pipelines_are_made_with_the_session() -> None:
    program = layers(24)
    making, pipelines = begun(program, 94_601)
    counts = making.pipelines
    assert counts.at_creation.pipelines == len(pipelines.made) >= 2
    assert counts.at_creation.seconds > 0
    runner = Runner(program, on=open_device(adapters()[0], 94_601))
    runner.executable._plans.pipelines = pipelines
    runner(np.ones((24, 40), F))
    assert making.pipelines.in_runs == PipelineCount()


def test_where_sizes_decide_only_what_every_run_needs_is_made_with_the_session() -> None:
    program = layers("n")
    certain = [it for it in program.dispatches if isinstance(it.guards[0], int)]
    assert certain != list(program.dispatches)
    making, pipelines = begun(program, 94_602)
    assert making.pipelines.at_creation.pipelines == len({it.kernel for it in certain})
    runner = Runner(program, on=open_device(adapters()[0], 94_602))
    runner.executable._plans.pipelines = pipelines
    runner(np.ones((24, 40), F))
    first = making.pipelines.in_runs
    assert first.pipelines > 0
    for rows in (5, 24, 300, 1, 24):
        runner(np.ones((rows, 40), F))
    every = making.pipelines.in_runs
    assert making.pipelines.at_creation.pipelines + every.pipelines == sum(len(it.wgsl) for it in program.kernels)
    runner(np.ones((24, 40), F))
    assert making.pipelines.in_runs == every


def test_a_pipeline_that_the_device_has_is_not_counted_again() -> None:
    program = layers(12)
    _, pipelines = begun(program, 94_603)
    other, found = begun(program, 94_603)
    assert other.pipelines.at_creation == PipelineCount()
    assert {*found.made} == {*pipelines.made}
    assert str(other.pipelines) == "pipelines: no new ones"


def test_rehearsals_count_for_themselves() -> None:
    program = layers("n")
    making, pipelines = begun(program, 94_604)
    runner = Runner(program, on=open_device(adapters()[0], 94_604))
    runner.executable._plans.pipelines = pipelines
    with rehearsing():
        runner(np.ones((24, 40), F))
        seen: list[bool] = []
        other = threading.Thread(target=lambda: seen.append(is_on()))
        other.start()
        other.join()
    assert seen == [False] and not is_on()
    counts = making.pipelines
    assert counts.in_warmup.pipelines > 0 and counts.in_runs == PipelineCount()
    assert f"{counts.in_warmup.pipelines} in warmup" in str(counts)
