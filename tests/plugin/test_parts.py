"""Values that lie in others' memory, or are read where they lie in them: pads, joins and parts of a split, through ONNX Runtime.

Plain runs, whose inputs and outputs ONNX Runtime puts into one buffer from the second run on; tensors of the device; captured
runs; sizes that change, with parts of nothing; and values of which a node elsewhere reads a part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep

from .models import FLOAT, model, node

OUTPUTS = ("p", "q", "a", "y", "z")
ROWS = (3, 8, 1, 0, 3, 5)


def views() -> bytes:
    """Products that lie in a Pad and in a Concat of it; parts of one that leave the graph, are padded, and joined again."""
    weights = np.random.default_rng(0).standard_normal((3, 8, 8)).astype(np.float32)
    named = [(f"w{k}", w) for k, w in enumerate(weights)]
    numbers = [
        ("pads", np.array([1, 0, 0, 2])), ("more", np.array([0, 1, 1, 1])), ("three", np.float32(3)),
        ("parts", np.array([3, 0, 5])), ("wide", np.array([0, 2, 0, 0])),
    ]  # fmt: skip
    nodes = [
        node("MatMul", ["x", "w0"], ["m"], "m"), node("Relu", ["m"], ["r"], "r"), node("Pad", ["r", "pads"], ["p"], "p"),
        node("MatMul", ["x", "w1"], ["n"], "n"), node("Pad", ["n", "more", "three"], ["o"], "o"),
        node("Concat", ["p", "o"], ["q"], "q", axis=0),
        node("Split", ["n", "parts"], ["a", "none", "b"], "split", axis=1),
        node("Pad", ["b", "wide"], ["c"], "c"), node("Concat", ["c", "none", "a"], ["d"], "d", axis=1),
        node("Softmax", ["a"], ["s"], "s"), node("Transpose", ["s"], ["t"], "t"), node("MatMul", ["t", "n"], ["y"], "y"),
        node("Abs", ["d"], ["z"], "z"),
    ]  # fmt: skip
    sizes = {"p": ["R", 10], "q": ["S", 10], "a": ["N", 3], "y": [3, 8], "z": ["N", 10]}
    return model(nodes, [("x", FLOAT, ["N", 8])], [(n, FLOAT, sizes[n]) for n in OUTPUTS], [*named, *numbers], opset=18)


def rows(count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def cpu() -> ort.InferenceSession:
    return ort.InferenceSession(views(), providers=["CPUExecutionProvider"])


def same(found: list[Any], wanted: list[Any]) -> None:
    for name, got, want in zip(OUTPUTS, found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.costly
@pytest.mark.parametrize(
    "options", [{}, {"validationMode": "full"}, {"enableGraphCapture": 1}], ids=["plain", "full", "captured"]
)
def test_plain_runs_of_every_size(options: dict[str, Any], cpu: ort.InferenceSession) -> None:
    session = webgpu_ep.session(views(), **options)
    for turn in range(3):
        for count in ROWS:
            x = rows(count, turn)
            same(session.run(None, {"x": x}), cpu.run(None, {"x": x}))


@pytest.mark.parametrize("captured", [False, True])
def test_tensors_of_the_device(captured: bool, cpu: ort.InferenceSession) -> None:
    session = webgpu_ep.session(views(), enableGraphCapture=int(captured))
    for graph_id, count in enumerate((3, 6)):
        binding, x = session.io_binding(), ort.OrtValue.ortvalue_from_numpy(rows(count), "webgpu", 0)
        binding.bind_ortvalue_input("x", x)
        wanted = cpu.run(None, {"x": rows(count)})
        outputs = [ort.OrtValue.ortvalue_from_shape_and_type(it.shape, np.float32, "webgpu", 0) for it in wanted]
        for name, value in zip(OUTPUTS, outputs, strict=True):
            binding.bind_ortvalue_output(name, value)
        options = ort.RunOptions()
        options.add_run_config_entry("gpu_graph_id", str(graph_id))
        for seed in range(3):
            x.update_inplace(rows(count, seed))
            session.run_with_iobinding(binding, options)
            same([it.numpy() for it in outputs], cpu.run(None, {"x": rows(count, seed)}))


@pytest.mark.costly
@pytest.mark.parametrize("elsewhere", ["p", "o", "q", "split", "c", "d", "n", "s"])
def test_a_node_elsewhere_reads_or_makes_a_part(elsewhere: str, cpu: ort.InferenceSession) -> None:
    session = webgpu_ep.session(views(), forceCpuNodeNames=elsewhere)
    for count in ROWS:
        same(session.run(None, {"x": rows(count)}), cpu.run(None, {"x": rows(count)}))


def test_two_sessions_take_turns(cpu: ort.InferenceSession) -> None:
    """Buffers for intermediate values are shared by plans and given back to a cache that sessions share."""
    make: Callable[[], ort.InferenceSession] = lambda: webgpu_ep.session(views(), sessionBufferPoolGenerations=0)  # noqa: E731
    sessions = [make(), make()]
    for turn, count in enumerate(ROWS * 2):
        x = rows(count, turn)
        same(sessions[turn % 2].run(None, {"x": x}), cpu.run(None, {"x": x}))
