"""What a user of a real model relies on: all of it on WebGPU, the CPU provider's numbers, nothing that grows."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime as ort
import pytest

from tests import provider, targets, zoo

TOLERANCE = {
    # In full size many layers amplify what one rounds differently. Kernel by kernel, on the CPU provider's values, the
    # errors are 9e-4 and 4e-7 (bench.verify_zoo); test_half_error holds the first to the error of storing in f16.
    "resnet_f16.full": 2e-2,
    "dynquant.full": 2e-1,
    "f16": 4e-3,  # a value has 11 bits, and both providers round after every node
    # A value at the boundary of two integers becomes the other one, once in a while: a step of the result's 127, or more
    # where later layers see it. The CPU provider differs as much from itself without optimisations.
    "qdq": 2e-2,
    "dynquant": 5e-2,
}
"""Largest error, as a part of the largest value of the output, by a part of the model's name; EXACT for the others."""
EXACT = 1e-4

RUNS = 3  # from the second run on onnxruntime plans memory: inputs and outputs then share buffers
KEEP = {"Conv", "MatMul", "Relu", "Add", "Mul", "Softmax", "LayerNormalization", "Gelu"}
"""Operators of which one is forced to the CPU: large float tensors cross there and back."""


QUICK = ("tiny", "minilm", "cnn_int8_qdq", "lstm_gru", "t5_decoder_step", "detector_nms")
"""Models of every family whose kernels for GPUs compile in seconds on a software adapter."""


def _models(names: Sequence[str]) -> list[object]:
    return [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.exhaustive]) for name in names]


every_model = pytest.mark.parametrize("name", _models(zoo.NAMES))
a_model_of_each_kind = pytest.mark.parametrize(
    "name",
    _models(["tiny", "minilm", "vit_f16", "cnn_int8_qdq", "unet", "t5_decoder_step", "lstm_gru", "detector_nms",
             "resnet_f32", "vit_f32", "ocr_det", "ocr_cls", "ocr_rec"]),
)  # fmt: skip


@functools.cache
def case(name: str) -> zoo.Case:
    try:
        return zoo.load(name)
    except zoo.MissingWeightsError as missing:
        pytest.skip(str(missing))


def session(name: str) -> ort.InferenceSession:
    return _session(name, targets.chosen())


@functools.cache
def _session(name: str, way: targets.Way) -> ort.InferenceSession:
    return provider.open_session(case(name).path)


@functools.cache
def cpu_session(name: str) -> ort.InferenceSession:
    return provider.open_session(case(name).path, "cpu")


@functools.cache
def expected(name: str, variation: int) -> tuple[np.ndarray, ...]:
    return tuple(cpu_session(name).run(None, case(name).inputs(variation)))


def error(name: str, variation: int, results: list[np.ndarray]) -> float:
    """Largest difference to the CPU provider, as a part of the output's scale; integers must be equal."""
    worst = 0.0
    for got, want in zip(results, expected(name, variation), strict=True):
        assert got.shape == want.shape
        assert got.dtype == want.dtype
        assert np.isfinite(got).all()
        if want.dtype.kind != "f":
            np.testing.assert_array_equal(got, want)
        elif want.size:
            difference = np.abs(got.astype(np.float64) - want.astype(np.float64)).max()
            worst = max(worst, float(difference / np.abs(want.astype(np.float64)).max()))
    return worst


def tolerance(name: str) -> float:
    return next((limit for part, limit in TOLERANCE.items() if part in name), EXACT)


def run(opened: ort.InferenceSession, name: str, variation: int) -> list[np.ndarray]:
    results: list[np.ndarray] = opened.run(None, case(name).inputs(variation))
    return results


def all_of_it_runs_on_webgpu(name: str) -> None:
    placed = provider.placement(session(name))
    assert not placed.cpu_operators(), provider.reasons(session(name))
    assert placed.on_gpu


@pytest.mark.costly(4)
@every_model
def test_results_equal_the_cpu_providers_for_every_shape_and_run(name: str) -> None:
    all_of_it_runs_on_webgpu(name)
    for variation in range(case(name).variations):
        for _ in range(RUNS):
            assert error(name, variation, run(session(name), name, variation)) <= tolerance(name)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", [targets.Way("gpu", "pair")], ids=str, indirect=True)
@pytest.mark.parametrize("name", zoo.FULL)
def test_results_at_the_size_of_benchmarks_equal_the_cpu_providers(name: str) -> None:
    """With the kernels of GPUs: those of software adapters are compared by smaller sizes."""
    all_of_it_runs_on_webgpu(name)
    for variation in (0, 0, 1):
        assert error(name, variation, run(session(name), name, variation)) <= tolerance(name)


@pytest.mark.costly
@a_model_of_each_kind
def test_returning_to_an_earlier_shape_gives_the_same_result(name: str) -> None:
    for variation in (0, 1, 0, 2, 1, 0):
        assert error(name, variation, run(session(name), name, variation)) <= tolerance(name)


@pytest.mark.costly
@a_model_of_each_kind
def test_a_node_forced_to_the_cpu_in_the_middle_changes_nothing_else(name: str) -> None:
    on_gpu = [(node, op) for node, op in provider.placement(session(name)).on_gpu if node and op in KEEP]
    middle = on_gpu[len(on_gpu) // 2][0]
    opened = provider.open_session(case(name).path, options={"forceCpuNodeNames": middle})
    placed = provider.placement(opened)
    assert middle in {node for node, _ in placed.on_cpu}
    assert middle not in {node for node, _ in placed.on_gpu}
    for variation in range(case(name).variations):
        for _ in range(RUNS):
            assert error(name, variation, run(opened, name, variation)) <= tolerance(name)


@pytest.mark.costly
@a_model_of_each_kind
def test_two_threads_share_a_session(name: str) -> None:
    together = threading.Barrier(2)

    def work(first: int) -> float:
        together.wait()
        order = [(first + step) % case(name).variations for step in range(2 * RUNS)]
        return max(error(name, variation, run(session(name), name, variation)) for variation in order)

    for variation in range(case(name).variations):
        expected(name, variation)
    with ThreadPoolExecutor(2) as pool:
        assert max(pool.map(work, (0, 1))) <= tolerance(name)


@pytest.mark.costly
@a_model_of_each_kind
def test_two_sessions_of_two_threads_share_the_device(name: str) -> None:
    other = provider.open_session(case(name).path)
    together = threading.Barrier(2)

    def work(opened: ort.InferenceSession) -> float:
        together.wait()
        return max(error(name, variation, run(opened, name, variation)) for variation in (0, 1, 0))

    for variation in (0, 1):
        expected(name, variation)
    with ThreadPoolExecutor(2) as pool:
        assert max(pool.map(work, (session(name), other))) <= tolerance(name)


@pytest.mark.costly
@a_model_of_each_kind
def test_from_the_third_shape_on_nothing_is_compiled(name: str) -> None:
    context = 1 + zoo.NAMES.index(name)  # a device of its own, on which nothing has been compiled
    opened = provider.open_session(case(name).path, options={"deviceId": str(context)})
    for variation in (0, 1):
        run(opened, name, variation)
    compiled = provider.counters(context)["pipelines"]
    assert compiled
    for variation in range(case(name).variations):
        run(opened, name, variation)
    assert provider.counters(context)["pipelines"] == compiled
