"""A plan for sizes that are nearly those of another one takes from it what is the same: a sequence that grows by a token
costs a few dispatches of a model, and not all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.device import Device, Place
from onnxruntime_ep_wgpu.program.dtypes import DType
from onnxruntime_ep_wgpu.runtime.executable import Executable
from onnxruntime_ep_wgpu.runtime.inputs import DeviceTensor
from onnxruntime_ep_wgpu.runtime.plan import Plan
from onnxruntime_ep_wgpu.runtime.plans import MAX_PLANS
from onnxruntime_ep_wgpu.runtime.runs.predict import RunPredictor
from tests.support import compile_model, device, make_model

F = np.float32
LAYERS = 6
WEIGHT = np.random.default_rng(0).standard_normal((LAYERS, 16, 16)).astype(F) / 4


class Model:
    """y = layers(x) + sum(mask): only the sum depends on how long the mask is. The callers' buffers stay where they are."""

    def __init__(self) -> None:
        nodes = [node("ReduceSum", ["mask"], ["total"], keepdims=1)]
        for k in range(LAYERS):
            nodes += [node("MatMul", [f"x{k}", f"w{k}"], [f"p{k}"]), node("Softmax", [f"p{k}"], [f"x{k + 1}"])]
        nodes.append(node("Add", [f"x{LAYERS}", "total"], ["y"]))
        weights = {f"w{k}": w for k, w in enumerate(WEIGHT)}
        built = make_model(nodes, {"x0": (F, ["n", 16]), "mask": (F, [1, "m"])}, weights)
        self.executable = Executable(compile_model(built), device())
        self.x, self.mask, self.y = (device().buffer(1 << 14) for _ in range(3))

    def __call__(self, rows: int, length: int) -> None:
        x = np.random.default_rng(rows).standard_normal((rows, 16)).astype(F)
        device().upload(self.x, 0, x.tobytes())
        device().upload(self.mask, 0, np.ones(length, F).tobytes())
        kind = DType.FLOAT32
        inputs = [DeviceTensor(kind, (rows, 16), self.x), DeviceTensor(kind, (1, length), self.mask)]
        self.executable.run(inputs, [Place(self.y, 0)])
        got = np.empty((rows, 16), F)
        device().download(self.y, 0, got.reshape(-1).view(np.uint8).data)
        for w in WEIGHT:
            x = np.exp(x @ w)
            x /= x.sum(-1, keepdims=True)
        np.testing.assert_allclose(got, x + length, rtol=1e-5)


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A list that has an entry for every bind group that was made."""
    made: list[int] = []
    original = Device.bind_group

    def counted(self: Device, *arguments: object) -> object:
        made.append(1)
        return original(self, *arguments)

    monkeypatch.setattr(Device, "bind_group", counted)
    yield made


def test_what_depends_on_nothing_new_is_not_made_again(model: Model, groups: list[int]) -> None:
    model(4, 5)
    whole = len(groups)
    assert whole > LAYERS
    groups.clear()
    for length in (6, 7, 8):
        model(4, length)
    assert len(model.executable.plans) == 5  # one of them is for what will probably follow
    assert 0 < len(groups) <= 4 * 2


def test_what_will_probably_follow_is_prepared_by_who_waits(model: Model, groups: list[int]) -> None:
    """Lengths that grow by as much: the next plan is there, with its bind groups and its command buffer, and others are as ever."""
    for length in (5, 7, 9):
        model(4, length)
    (shapes, _), expected = next(reversed(model.executable.plans.items()))
    assert shapes == ((4, 16), (1, 11))
    groups.clear()
    kind = DType.FLOAT32
    inputs = [DeviceTensor(kind, (4, 16), model.x), DeviceTensor(kind, (1, 11), model.mask)]
    with model.executable.planned(inputs) as plan:
        assert plan is expected
        callers, *_ = model.executable._place(plan, [Place(model.x, 0), Place(model.mask, 0), Place(model.y, 0)])
        recording = plan.bind(callers)
    assert not groups
    assert len(recording.ahead) == 1
    model(4, 11)
    assert not recording.ahead
    for length in (13, 3, 11, 15, 2, 4, 6, 5, 8):
        model(4, length)


def test_where_tensors_stay_is_looked_at_once_for_the_runs_to_come(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    for length in (5, 7, 9):
        model(4, length)
    looked: list[Plan] = []
    place = Executable._place

    def counted(self: Executable, plan: Plan, *arguments: Any) -> Any:
        looked.append(plan)
        return place(self, plan, *arguments)

    monkeypatch.setattr(Executable, "_place", counted)
    for length in (11, 13, 15):
        model(4, length)
        assert len(looked) == 1  # by the run itself
        looked.clear()
    assert [it[1] for it, _ in model.executable.plans][-1] == (1, 17)
    model.mask = device().buffer(1 << 14)
    for length in (17, 19, 21):
        model(4, length)


def test_a_predictor_goes_on_only_as_it_did_twice() -> None:
    predictor = RunPredictor()
    keys = [(((1, n), (2,)), (n + 7,)) for n in (3, 4, 5, 6, 8, 10, 10, 10, 9, 8)]
    found = [None if (after := predictor.next(key, [])) is None else after[0][0][0][1] for key in keys]
    assert found == [None, None, 6, 7, None, 12, None, None, None, 7]
    assert predictor.next((((1, 7, 1), (2,)), (14,)), []) is None
    assert RunPredictor().next((((0,),), ()), []) is None


def test_of_a_run_like_the_one_before_nothing_is_noted(model: Model) -> None:
    """Which most are: no place of a tensor is looked at."""
    predictor = model.executable._predictor
    for noted, length in enumerate((2, 7, 5), 1):
        model(4, length)
        assert len(predictor._places) == noted
    for _ in range(3):
        model(4, 5)
        assert not predictor._places
    assert predictor.next((((4, 16), (1, 5)), ()), [object()]) is None  # type: ignore[list-item]


def test_other_sizes_in_between_change_nothing(model: Model) -> None:
    order = np.random.default_rng(2)
    for rows, length in zip(order.integers(1, 40, 60), order.integers(1, 40, 60), strict=True):
        model(int(rows), int(length))


def test_what_is_shared_outlives_the_plan_it_was_made_for(model: Model) -> None:
    """The numbers that dispatches read stay while any plan has these dispatches."""
    for length in range(1, 3 * MAX_PLANS):
        model(4, length)
    assert len(model.executable.plans) == MAX_PLANS


def test_plans_that_end_leave_no_numbers_behind(model: Model) -> None:
    for length in range(1, 3 * MAX_PLANS):
        model(4, length)
    sets = {id(it): it for plan in model.executable.plans.values() for it in plan._uniforms}
    assert len(sets) <= MAX_PLANS + 1, "one of each plan, and one that all share"
    for plan in list(model.executable.plans.values()):
        plan.retire()
    assert not any(it.buffers for it in sets.values())


def test_an_end_of_a_buffer_is_an_end_of_its_groups(model: Model) -> None:
    model(4, 5)
    known = model.executable._plans._groups
    assert known._known
    model.x = device().buffer(1 << 14)
    model.executable.plans.clear()
    known.buffers_ended()
    assert not [1 for _, _, refs in known._known.values() if any(ref() is None for ref in refs)]
