"""A plan for sizes that are nearly those of another one takes from it what is the same: a sequence that grows by a token
costs a few dispatches of a model, and not all."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.device import Device, Place
from onnxruntime_ep_wgpu.program.dtypes import DType
from onnxruntime_ep_wgpu.program.series import LONGEST
from onnxruntime_ep_wgpu.runtime.executable import Executable
from onnxruntime_ep_wgpu.runtime.inputs import DeviceTensor
from onnxruntime_ep_wgpu.runtime.plans import MAX_PLANS
from onnxruntime_ep_wgpu.runtime.runs.growth import Growth, Steps, further, number_of, rising
from onnxruntime_ep_wgpu.runtime.runs.key import Key
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
    for length in (6, 9, 7):
        model(4, length)
    assert len(model.executable.plans) == 4
    assert 0 < len(groups) <= 3 * 2


def test_sizes_that_grow_have_one_plan(model: Model, groups: list[int]) -> None:
    """Lengths that grow by as much: from the third one on nothing is made for any of them, whatever comes in between."""
    for length in (5, 7, 9):
        model(4, length)
    (series,) = model.executable._plans.series.values()
    groups.clear()
    for length in (*range(11, 41, 2), 9, 33, 35):
        model(4, length)
    assert not groups
    assert len(model.executable.plans) == 2
    assert series.submits == 1 + 15 + 3
    for length in (13, 3, 12, 15, 2, 4, 6, 5, 8):
        model(4, length)


def test_a_series_goes_on_where_it_ends(model: Model) -> None:
    for length in range(1, 3 * LONGEST):
        model(4, length)
    assert len(model.executable.plans) == 2
    assert len(model.executable._plans.series) == 3


def test_sizes_that_shrink_have_one_plan(model: Model) -> None:
    for length in range(40, 0, -1):
        model(4, length)
    assert len(model.executable.plans) == 2


def test_tensors_that_move_are_read_where_they_are(model: Model) -> None:
    for length in range(1, 30):
        model(4, length)
        if length % 3 == 0:
            model.mask = device().buffer(1 << 14)


def test_results_side_by_side_in_one_buffer_grow() -> None:
    """A result is bound as far as the next one in its buffer: for the last sizes of a series there would be no room."""
    norm = node("LayerNormalization", ["x", "gain"], ["y", "mean"], "norm")
    built = make_model([norm], {"x": (F, ["n", 16])}, {"gain": np.ones(16, F)})
    executable = Executable(compile_model(built), device())
    given, results = device().buffer(1 << 16), device().buffer(1 << 16)
    for rows in range(1, 12):
        x = np.random.default_rng(rows).standard_normal((rows, 16)).astype(F)
        device().upload(given, 0, x.tobytes())
        executable.run([DeviceTensor(DType.FLOAT32, (rows, 16), given)], [Place(results, 0), Place(results, 1024)])
        y, mean = np.empty((rows, 16), F), np.empty((rows, 1), F)
        device().download(results, 0, y.reshape(-1).view(np.uint8).data)
        device().download(results, 1024, mean.reshape(-1).view(np.uint8).data)
        np.testing.assert_allclose(mean, x.mean(-1, keepdims=True), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(y, (x - mean) / np.sqrt(x.var(-1, keepdims=True) + 1e-5), rtol=1e-4, atol=1e-5)
    assert executable._plans.series


def test_sizes_grow_when_they_did_so_twice() -> None:
    """After that as far as runs may have been done in C code."""
    growth = Growth()
    keys = [(((1, n), (2,)), (n + 7,)) for n in (3, 4, 5, 6, 8, 9, 9, 9, 8, 7, 3, 4, 1)]
    found = [None if (steps := growth.steps(key)) is None else steps[1][0] for key in keys]
    assert found == [None, None, 1, 1, 1, 1, None, None, None, -1, -1, None, None]
    assert growth.steps((((1, 7, 1), (2,)), (14,))) is None
    assert Growth().steps((((0,),), ())) is None


@pytest.mark.parametrize("by", [1, 3, -2])
def test_a_key_has_its_number_in_a_series(by: int) -> None:
    key: Key = ((1, 40), (2,)), (7,)
    steps: Steps = ((0, (0, by)),), (0,)
    first, rise = rising(key, steps, 8) or pytest.fail("they rise")
    keys = [further(first, rise, k) for k in range(8)]
    assert [number_of(it, first, rise) for it in keys] == [*range(8)]
    assert key in keys
    for other in ((((1, 41 + by), (2,)), (8,)), (((2, 40), (2,)), (7,)), (((1, 40, 1), (2,)), (7,))):
        assert number_of(other, first, rise) is None
    assert rising(key, (((0, (1, -1)),), (0,)), 8) is None


def test_other_sizes_in_between_change_nothing(model: Model) -> None:
    order = np.random.default_rng(2)
    for rows, length in zip(order.integers(1, 40, 60), order.integers(1, 40, 60), strict=True):
        model(int(rows), int(length))


def lengths() -> list[int]:
    """Many that do not grow by as much."""
    return [k * k % 211 + 1 for k in range(3 * MAX_PLANS)]


def test_what_is_shared_outlives_the_plan_it_was_made_for(model: Model) -> None:
    """The numbers that dispatches read stay while any plan has these dispatches."""
    for length in lengths():
        model(4, length)
    assert len(model.executable.plans) == MAX_PLANS


def test_plans_that_end_leave_no_numbers_behind(model: Model) -> None:
    for length in lengths():
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
