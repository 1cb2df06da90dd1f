"""`warmup`: sizes that were warmed up compile nothing in their first run, and nothing but what was compiled is left of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.api.reports import state_of

from . import models
from .test_memo import hits

F = np.float32


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 8), F)


def run(session: Any, count: int) -> None:
    """A run with so many rows, which is right."""
    x = rows(count)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], models.chain_reference(x), rtol=1e-4, atol=1e-4)


def test_a_first_run_of_warm_sizes_compiles_nothing() -> None:
    session = webgpu_ep.session(models.chain(), deviceId=81)
    made = webgpu_ep.warmup(session, [{"N": 2}, {"N": 300}])
    counts = webgpu_ep.report(session).pipelines
    assert made == counts.in_warmup and made.pipelines > 0 and made.seconds > 0
    for count in (2, 300, 2):
        run(session, count)
    assert webgpu_ep.report(session).pipelines == counts and not counts.in_runs.pipelines
    assert webgpu_ep.warmup(session, {"N": 300}).pipelines == 0


def test_plans_of_warm_sizes_are_there() -> None:
    """The larger one comes first, whose intermediate values the other one shares."""
    session = webgpu_ep.session(models.chain(), deviceId=82)
    webgpu_ep.warmup(session, [{"N": 2}, {"x": (300, 8)}, {"x.shape[0]": 40}])
    (plans,) = plans_of(session)
    assert [key[0][0] for key in plans] == [(300, 8), (40, 8), (2, 8)]


def plans_of(session: Any) -> list[Any]:
    from onnxruntime_ep_wgpu.plugin.callbacks import held
    from onnxruntime_ep_wgpu.plugin.node import ComputeInfo

    device = state_of(session).device()
    nodes = [it for it in held.values() if isinstance(it, ComputeInfo) and it.group.on_device().device is device]
    return [it.group.on_device().executable.plans for it in nodes]  # type: ignore[attr-defined]


def test_shapes_arrays_and_sums_of_names_are_sizes_too() -> None:
    node = models.node
    model = models.model(
        [node("Concat", ["past", "x"], ["y"], "join", axis=0), node("Mul", ["y", "mask"], ["z"], "mul")],
        [("past", models.FLOAT, ["past", 4]), ("x", models.FLOAT, ["new", 4]), ("mask", models.FLOAT, ["past + new", 1])],
        [("z", models.FLOAT, ["total", 4])],
    )  # fmt: skip
    session = webgpu_ep.session(model, deviceId=83)
    for sizes in ({"past": 3, "new": 1}, {"past": (5, 4), "new": 2}, {"past": 4, "x": np.ones((3, 4), F)}):
        webgpu_ep.warmup(session, sizes)
    (plans,) = plans_of(session)
    assert {tuple(shape[0] for shape in key[0]) for key in plans} == {(3, 1, 4), (5, 2, 7), (4, 3, 7)}


def test_inputs_whose_values_decide_are_given() -> None:
    node = models.node
    model = models.model(
        [node("Mul", ["x", "x"], ["s"], "square"), node("Reshape", ["s", "shape"], ["y"], "reshape")],
        [("x", models.FLOAT, ["N", 8]), ("shape", models.INT64, [2])],
        [("y", models.FLOAT, ["a", "b"])],
    )
    session = webgpu_ep.session(model, deviceId=84)
    with pytest.raises(webgpu_ep.OptionError, match=r"values of input 'shape' decide.*'shape': np.array"):
        webgpu_ep.warmup(session, {"N": 4})
    webgpu_ep.warmup(session, {"N": 4, "shape": np.array([2, 16], np.int64)})
    before = webgpu_ep.report(session).pipelines
    x = rows(4)
    (y,) = session.run(None, {"x": x, "shape": np.array([2, 16], np.int64)})
    np.testing.assert_array_equal(y, (x * x).reshape(2, 16))
    assert webgpu_ep.report(session).pipelines == before


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({}, r"axis 0 of input 'x' is free: pass \{'N': SIZE\} or the input's shape"),
        ({"M": 3}, r"there is no dimension or input 'M'; there are N, x\.shape\[0\], x"),
        ({"N": "3"}, "'N': '3' is not a size"),
        ({"N": -1}, "'N': -1 is not a size"),
        ({"N": True}, "'N': True is not a size"),
        ({"x": (3, 9)}, r"input 'x' has the shape \[N, 8\], not \[3, 9\]"),
        ({"x": (3,)}, r"input 'x' has the shape \[N, 8\], not \[3\]"),
        ({"x": "3,8"}, "input 'x': '3,8' is neither a shape, which is a tuple of sizes, nor an array"),
        ({"x.shape[1]": 3}, r"there is no dimension or input 'x\.shape\[1\]'"),
        ([3], "3 is not a dict of sizes"),
    ],
)  # fmt: skip
def test_sizes_that_the_model_does_not_have_are_refused_before_anything_runs(sizes: Any, message: str) -> None:
    session = webgpu_ep.session(models.chain())
    with pytest.raises(webgpu_ep.OptionError, match=message):
        webgpu_ep.warmup(session, sizes)
    assert webgpu_ep.report(session).pipelines.in_warmup.pipelines == 0


def test_an_empty_tensor_is_a_size() -> None:
    session = webgpu_ep.session(models.chain(), deviceId=85)
    webgpu_ep.warmup(session, {"N": 0})
    assert session.run(None, {"x": rows(0)})[0].shape == (0, 8)


def test_no_warm_run_is_captured() -> None:
    session = webgpu_ep.session(models.chain(), enableGraphCapture=True)
    webgpu_ep.warmup(session, [{"N": count} for count in range(1, 12)])  # more than a graph keeps
    assert state_of(session).captures._graphs == {}
    x, y = (ort.OrtValue.ortvalue_from_numpy(it, "webgpu", 0) for it in (rows(5), np.zeros((5, 8), F)))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    for _ in range(2):
        session.run_with_iobinding(binding)
    np.testing.assert_allclose(y.numpy(), models.chain_reference(rows(5)), rtol=1e-4, atol=1e-4)
    (graph,) = state_of(session).captures._graphs.values()
    assert len(graph.runs) == 1


def test_c_code_and_guesses_know_nothing_of_warm_runs() -> None:
    """Sizes that go on by as much would be expected to go on further."""
    session = webgpu_ep.session(models.chain(), deviceId=87)
    before = hits()
    webgpu_ep.warmup(session, [{"N": count} for count in range(1, 9)])
    assert hits() == before
    (plans,) = plans_of(session)
    assert {key[0][0][0] for key in plans} == {*range(1, 9)}, "none for 0 or 9"
    assert not any(plan.submits or plan.repeaters for plan in plans.values())


@pytest.mark.parametrize("mode", ["basic", "full"])
def test_states_of_random_numbers_go_on_as_if_nothing_had_been(mode: str) -> None:
    node = models.node
    model = models.model(
        [node("RandomNormalLike", ["x"], ["r"], "random", seed=3.0), node("Add", ["x", "r"], ["y"], "add")],
        [("x", models.FLOAT, ["N", 8])],
        [("y", models.FLOAT, ["N", 8])],
    )
    cold, warm = (webgpu_ep.session(model, deviceId=90, validationMode=mode) for _ in range(2))
    x, found = rows(4), list[Any]()
    for _ in range(3):
        found.append(cold.run(None, {"x": x})[0])
        webgpu_ep.warmup(warm, [{"N": 4}, {"N": 50}])
        np.testing.assert_array_equal(warm.run(None, {"x": x})[0], found[-1])
    assert not np.array_equal(found[0], found[1]), "runs do go on"


def test_c_code_repeats_no_run_in_a_warm_up_and_does_afterwards() -> None:
    session = webgpu_ep.session(models.chain(), deviceId=92)
    for _ in range(8):
        run(session, 4)
    before = hits()
    assert before
    webgpu_ep.warmup(session, {"N": 4})
    assert hits() == before
    for _ in range(8):
        run(session, 4)
    assert hits() > before


def test_runs_count_for_themselves() -> None:
    session = webgpu_ep.session(models.chain(), deviceId=88)
    run(session, 3)
    in_runs = webgpu_ep.report(session).pipelines.in_runs
    webgpu_ep.warmup(session, [{"N": 300}])
    run(session, 3)
    assert webgpu_ep.report(session).pipelines.in_runs == in_runs


def test_a_session_made_by_onnxruntime_is_warmed_up_too() -> None:
    from tests import provider

    session = provider.open_session(models.chain("warmed up"), options={"deviceId": "89"})
    assert webgpu_ep.warmup(session, {"N": 3}).pipelines > 0
    run(session, 3)
    with pytest.raises(LookupError):
        webgpu_ep.warmup(provider.open_session(models.chain(), "cpu"), {"N": 3})
