"""Kernels that would need more bindings than there are: divided into parts, and right whatever the operator.

The limit of a binding is made so small that small tensors take a dozen. Every case runs in sizes out of a seed, in float32 and
in halves, with the Target of the adapter and with that of a GPU; and in a run that knows them last.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node
from onnx.reference import ReferenceEvaluator

from onnxruntime_ep_wgpu.errors import UnsupportedError
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.program.target import Target
from tests import targets
from tests.ops.compare import expected
from tests.support import Runner, compile_model, make_model, specialising, target

Random = np.random.Generator
Case = tuple[list[onnx.NodeProto], dict[str, np.ndarray], dict[str, np.ndarray]]  # nodes, inputs, weights


def small(nbytes: int) -> Target:
    return dataclasses.replace(target(), max_binding_bytes=nbytes, max_storage_buffers=8)


def side(rng: Random, low: int = 30, high: int = 80) -> int:
    return int(rng.integers(low, high))


def floats(rng: Random, *shape: int) -> np.ndarray:
    return (rng.integers(-16, 17, shape) / 8).astype(np.float32)


def one(op: str, rng: Random, inputs: list[np.ndarray], weights: list[np.ndarray] | None = None, results: int = 1,
        **how: Any) -> Case:  # fmt: skip
    """A node, with an addition behind it that is fused where there are bindings for it."""
    given = {f"x{k}": a for k, a in enumerate(inputs)}
    constants = {f"w{k}": a for k, a in enumerate(weights or [])}
    return [node(op, [*given, *constants], [f"y{k}" for k in range(results)], **how)], given, constants


def matmul(rng: Random) -> Case:
    m, n, k = side(rng), side(rng), side(rng)
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "c"], ["q"]), node("Mul", ["q", "r"], ["y"])]
    weights = {"w": floats(rng, k, n), "c": floats(rng, m, n), "r": floats(rng, n)}
    return nodes, {"x": floats(rng, m, k)}, weights


def batched(rng: Random) -> Case:
    heads, rows, k = side(rng, 2, 9), side(rng, 9, 40), side(rng, 9, 40)
    nodes = [node("Transpose", ["x"], ["t"], perm=[0, 1, 3, 2]), node("MatMul", ["x", "t"], ["y"])]
    return nodes, {"x": floats(rng, 2, heads, rows, k)}, {}


def gemm(rng: Random) -> Case:
    m, n, k = side(rng), side(rng), side(rng)
    weights = {"w": floats(rng, n, k), "c": floats(rng, n)}
    return [node("Gemm", ["x", "w", "c"], ["y"], transA=1, transB=1, alpha=0.5)], {"x": floats(rng, k, m)}, weights


def conv(group: int, kernel: int, features: int, **how: Any) -> Callable[[Random], Case]:
    def make(rng: Random) -> Case:
        channels = group * int(rng.integers(1, 4))
        x = floats(rng, int(rng.integers(1, 4)), channels, side(rng, 9, 24), side(rng, 9, 24))
        w = floats(rng, features * group, channels // group, kernel, kernel)
        nodes = [node("Conv", ["x", "w", "c"], ["p"], group=group, **how), node("Relu", ["p"], ["y"])]
        return nodes, {"x": x}, {"w": w, "c": floats(rng, features * group)}

    return make


def transposed(rng: Random) -> Case:
    nodes = [node("Transpose", ["x"], ["t"]), node("Exp", ["t"], ["u"]), node("Add", ["u", "w"], ["y"])]
    m, n = side(rng), side(rng)
    return nodes, {"x": floats(rng, m, n)}, {"w": floats(rng, n, m)}


def volume(rng: Random) -> Case:
    x, w = floats(rng, 1, 3, 9, 9, 9), floats(rng, 8, 3, 2, 2, 2)
    return [node("Conv", ["x", "w"], ["y"])], {"x": x}, {"w": w}


def scattered(reduction: str) -> Callable[[Random], Case]:
    def make(rng: Random) -> Case:
        m, n, k = side(rng), side(rng), side(rng, 9, 30)
        indices = rng.permuted(np.tile(np.arange(m), (n, 1)), axis=1).T[:k].copy()
        return one("ScatterElements", rng, [floats(rng, m, n)], [indices, floats(rng, k, n)], reduction=reduction)

    return make


def scattered_slices(rng: Random) -> Case:
    m, n, k = side(rng), side(rng), side(rng, 9, 30)
    return one("ScatterND", rng, [floats(rng, m, n)], [rng.permutation(m)[:k, None], floats(rng, k, n)])


CASES: dict[str, Callable[[Random], Case]] = {
    "matmul": matmul,
    "batched": batched,
    "gemm": gemm,
    "einsum": lambda r: one("Einsum", r, [floats(r, 3, side(r), 20), floats(r, 20, side(r))], equation="abc,cd->bda"),
    "conv": conv(1, 3, 9, pads=[1] * 4),
    "conv of one pixel": conv(1, 1, 20),
    "conv in strides": conv(1, 2, 12, strides=[2, 2]),
    "conv in groups": conv(2, 3, 10, pads=[1] * 4),
    "conv of few per group": conv(3, 3, 2),
    "depthwise": conv(9, 3, 1, pads=[1] * 4),
    "volume": volume,
    "conv transposed": lambda r: one(
        "ConvTranspose", r, [floats(r, 2, 3, side(r, 9, 13), 6)], [floats(r, 3, 5, 3, 3)], strides=[2, 2]
    ),
    "elementwise": lambda r: one("Where", r, [floats(r, 70, 40) > 0, floats(r, 70, 40)], [floats(r, 40)]),
    "transposed": transposed,
    "expanded": lambda r: one("Expand", r, [floats(r, side(r), 1)], [np.array([3, 1, side(r)])]),
    "softmax": lambda r: one("Softmax", r, [floats(r, side(r), side(r))]),
    "softmax of a row": lambda r: one("Softmax", r, [floats(r, 3000 + side(r))]),
    "softmax of columns": lambda r: one("Softmax", r, [floats(r, side(r), side(r))], axis=0),
    "layers": lambda r: one("LayerNormalization", r, [floats(r, side(r), 60)], [floats(r, 60), floats(r, 60)]),
    "layers of a row": lambda r: one("LayerNormalization", r, [floats(r, 1, 4000)], [floats(r, 4000)]),
    "instances": lambda r: one(
        "InstanceNormalization", r, [floats(r, 2, 5, side(r, 9, 30), 20)], [floats(r, 5), floats(r, 5)]
    ),
    "sum of rows": lambda r: one("ReduceSum", r, [floats(r, side(r), side(r))], [np.array([1])]),
    "sum of columns": lambda r: one("ReduceSum", r, [floats(r, side(r), side(r))], [np.array([0])]),
    "sum of all": lambda r: one("ReduceSum", r, [floats(r, side(r), side(r))]),
    "largest": lambda r: one("ReduceMax", r, [floats(r, side(r), 5, side(r, 9, 30))], [np.array([0, 2])]),
    "running totals": lambda r: one("CumSum", r, [floats(r, side(r), side(r))], [np.array(1)]),
    "running totals down": lambda r: one("CumSum", r, [floats(r, side(r), side(r))], [np.array(0)]),
    "best": lambda r: one("ArgMax", r, [floats(r, side(r), side(r))], axis=1),
    "best of a row": lambda r: one("ArgMin", r, [floats(r, 1, 4000)], axis=1),
    "first ones": lambda r: one("TopK", r, [floats(r, side(r), side(r))], [np.array([9])], results=2),
    "gathered": lambda r: one("Gather", r, [floats(r, side(r), 70)], [r.integers(-30, 30, 50)]),
    "gathered columns": lambda r: one("Gather", r, [floats(r, 70, side(r))], [r.integers(-30, 30, (5, 9))], axis=1),
    "gathered elements": lambda r: one(
        "GatherElements", r, [floats(r, side(r), 50)], [r.integers(-30, 30, (66, 50))], axis=0
    ),
    "gathered slices": lambda r: one("GatherND", r, [floats(r, 70, side(r), 3)], [r.integers(-30, 30, (9, 2))]),
    "scattered": scattered("none"),
    "scattered and added": scattered("add"),
    "scattered slices": scattered_slices,
    "concatenated": lambda r: one("Concat", r, [floats(r, side(r), 40), floats(r, side(r), 40)], axis=0),
    "concatenated columns": lambda r: one(
        "Concat", r, [floats(r, 70, side(r)), floats(r, 70, side(r)), floats(r, 70, 9)], axis=1
    ),
    "bytes side by side": lambda r: one(
        "Concat", r, [r.integers(0, 99, (70, side(r))).astype(np.uint8), r.integers(0, 99, (70, 99)).astype(np.uint8)],
        axis=1,
    ),
    "padded": lambda r: one("Pad", r, [floats(r, side(r), side(r))], [np.array([3, 2, 1, 4])]),
    "padded by edges": lambda r: one("Pad", r, [floats(r, side(r), side(r))], [np.array([3, 2, 1, 4])], mode="edge"),
    "triangle": lambda r: one("Trilu", r, [floats(r, side(r), side(r))]),
    "pooled": lambda r: one("MaxPool", r, [floats(r, 2, 7, side(r, 9, 20), 20)], kernel_shape=[3, 3], pads=[1] * 4),
    "means": lambda r: one("AveragePool", r, [floats(r, 3, 5, side(r, 9, 20), 20)], kernel_shape=[2, 2], strides=[2, 2]),
    "resized": lambda r: one(
        "Resize", r, [floats(r, 2, 5, side(r, 9, 16), 12), np.array([], np.float32)], [np.array([1, 1, 2, 2.5], np.float32)],
        mode="linear",
    ),
    "normalised locally": lambda r: one("LRN", r, [floats(r, 3, 6, side(r, 9, 12), 6)], size=3),
    "reversed": lambda r: one(
        "ReverseSequence", r, [floats(r, 60, 5, 9)], [r.integers(1, 60, 5)], time_axis=0, batch_axis=1
    ),
    "quantised": lambda r: one(
        "QuantizeLinear", r, [floats(r, side(r), side(r))], [np.array(0.1, np.float32), np.array(3, np.uint8)]
    ),
    "range": lambda r: one("DynamicQuantizeLinear", r, [floats(r, side(r), side(r))], results=3),
    "tiled": lambda r: one("Tile", r, [floats(r, side(r), side(r))], [np.array([2, 2])]),
    "sliced": lambda r: one(
        "Slice", r, [floats(r, 99, side(r))], [np.array([90]), np.array([-999]), np.array([0]), np.array([-2])]
    ),
    "to depth": lambda r: one("DepthToSpace", r, [floats(r, 2, 8, side(r, 9, 20), 9)], blocksize=2),
}  # fmt: skip


def case(name: str, seed: int, half: bool) -> tuple[onnx.ModelProto, onnx.ModelProto, list[np.ndarray]]:
    """The model in sizes that are known, the same in sizes that a run knows, and inputs."""
    nodes, inputs, weights = CASES[name](np.random.default_rng([zlib.crc32(name.encode()), seed]))
    if half:
        inputs, weights = ({k: halves(a) for k, a in given.items()} for given in (inputs, weights))
    known = make_model(nodes, {k: (a.dtype, list(a.shape)) for k, a in inputs.items()}, weights)
    dims = {k: [f"{k}_{d}" if 29 < size < 999 else size for d, size in enumerate(a.shape)] for k, a in inputs.items()}
    later = make_model(nodes, {k: (a.dtype, dims[k]) for k, a in inputs.items()}, weights)
    return known, later, list(inputs.values())


def halves(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float16) if array.dtype == np.float32 and array.size else array


NO_HALVES = ("range", "quantised", "resized")  # ONNX has no such types, or the CPU provider other roundings


GPU = targets.Way("gpu", "pair")


@pytest.mark.costly
@pytest.mark.parametrize(
    ("way", "nbytes", "half"),
    [(targets.OWN, 768, False), (targets.OWN, 1280, True), (GPU, 2048, False)],
    ids=["float", "half", "gpu"],
)
@pytest.mark.parametrize("name", CASES)
def test_every_operator_takes_tensors_of_any_number_of_bindings(
    name: str, way: targets.Way, nbytes: int, half: bool
) -> None:
    if half and name in NO_HALVES:
        pytest.skip("not in halves")
    with targets.using(way):
        right_in_parts(name, nbytes, half)


def right_in_parts(name: str, nbytes: int, half: bool) -> None:
    known, _, given = case(name, nbytes, half)
    program = compile_model(known, small(nbytes))
    assert all(len(d.args) <= 8 for d in program.dispatches)
    assert half or is_divided(program)
    compare(Runner(program)(*given), known, given)


@pytest.mark.costly
@pytest.mark.parametrize("name", CASES)
def test_sizes_that_only_a_run_knows(name: str) -> None:
    _, later, given = case(name, 7, False)
    compare(specialising(later, small(1024))(*given), later, given)


def is_divided(program: Program) -> bool:
    return any(d.ranges for d in program.dispatches)


def compare(got: list[np.ndarray], model: onnx.ModelProto, given: list[np.ndarray]) -> None:
    feeds = {v.name: a for v, a in zip(model.graph.input, given, strict=True)}
    try:
        want = expected(model, feeds)
    except Exception as error:  # a type that the CPU provider lacks in the kernel itself
        if "not supported with" not in str(error):
            raise
        with np.errstate(all="ignore"):
            want = [np.asarray(a) for a in ReferenceEvaluator(model).run(None, feeds)]
    for ours, theirs in zip(got, want, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        close = 4e-3 if ours.dtype == np.float16 else 1e-5
        ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
        np.testing.assert_allclose(ours, theirs, rtol=close, atol=close * max(1, np.abs(theirs).max()))


def test_what_cannot_be_divided_is_refused_with_the_reason() -> None:
    """An element of the result that reads from more places than there are bindings."""
    x = np.ones((1, 3, 150), np.float32)
    nodes = [node("LSTM", ["x", "w", "r"], ["y"], hidden_size=60)]
    weights = {"w": np.ones((1, 240, 150), np.float32), "r": np.ones((1, 240, 60), np.float32)}
    with pytest.raises(UnsupportedError, match=r"LSTM.*\[1, 60, 240\].*bindings of 1024 bytes.*adapter has 8"):
        compile_model(make_model(nodes, {"x": (np.float32, list(x.shape))}, weights), small(1024))
