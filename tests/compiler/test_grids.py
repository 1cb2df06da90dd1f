"""A grid may have more workgroups than a kernel needs: they do nothing, neither to results nor to what lies behind them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.device import Place
from onnxruntime_ep_wgpu.program import layout
from onnxruntime_ep_wgpu.program.dtypes import DType, packed, unpacked
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.runtime.inputs import DeviceTensor
from tests.compiler.chains import ANCHORS, chain
from tests.support import Runner, compile_model, make_model, target

F = np.float32
BEHIND = 1 << 16  # bytes
GUARD = 0xA5
MANY = 65537  # workgroups at least; a prime, so no folded grid has exactly as many


def run_guarded(program: Program, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Results; fails when a byte behind one of them has changed. A kernel stores whole words."""
    run = Runner(program)
    device, results, tensors = run.device, [], []
    for array in arrays:
        buffer = device.buffer(max(16, array.nbytes))
        device.upload(buffer, 0, packed(array).data)
        tensors.append(DeviceTensor(DType.of_numpy(array.dtype), array.shape, buffer, 0, array))

    def allocate(dtype: DType, shape: tuple[int, ...]) -> Place:
        nbytes = -(-dtype.nbytes(math.prod(shape)) // 4) * 4
        buffer = device.buffer(nbytes + BEHIND)
        device.upload(buffer, 0, bytes([GUARD]) * (nbytes + BEHIND))
        results.append((buffer, nbytes, dtype, shape))
        return Place(buffer, 0)

    with run.executable.prepare(tensors) as prepared:
        prepared.submit([allocate(dtype, shape) for dtype, shape in prepared.outputs])
    out = []
    for buffer, nbytes, dtype, shape in results:
        data = np.empty(nbytes + BEHIND, np.uint8)
        device.download(buffer, 0, data.data)
        written = np.flatnonzero(data[nbytes:] != GUARD)
        assert not written.size, f"{written.size} bytes are written behind a result of {shape}, from {written[0]} on"
        out.append(unpacked(data[: dtype.nbytes(math.prod(shape))], dtype, shape))
    return out


def software_and_hardware(model: onnx.ModelProto) -> list[Program]:
    return [compile_model(model, dataclasses.replace(target(), software=it)) for it in (True, False)]


@pytest.mark.costly
@pytest.mark.parametrize("anchor", ANCHORS)
def test_any_larger_grid_gives_the_same_results(anchor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for dynamic in (False, True):
        model, feeds = chain(anchor, 5, dynamic, steps=3)
        for program in software_and_hardware(model):
            arrays = list(feeds[0].values())
            want = run_guarded(program, arrays)
            with monkeypatch.context() as patch:
                patch.setattr(layout, "fold_grid", lambda count: (count + 1, 3, 1))
                got = run_guarded(program, arrays)
            for ours, theirs in zip(got, want, strict=True):
                np.testing.assert_array_equal(ours, theirs)


# Real grids of more than 65,535 workgroups. That of scatter_owner would need a tensor larger than a binding.

Case = tuple[onnx.ModelProto, list[np.ndarray], np.ndarray]


def numbers(*shape: int) -> np.ndarray:
    return (np.random.default_rng(3).integers(-8, 8, shape) / 4).astype(F)


def one(op: str, *arrays: np.ndarray, weights: tuple[np.ndarray, ...] = (), outputs: tuple[str, ...] = ("y",),
        free: int = -1, **attributes: object) -> onnx.ModelProto:  # fmt: skip
    """A model of one node; axis `free` of its inputs is only known when it runs."""
    inputs = {f"x{k}": (it.dtype.type, ["n" if k == free else n for k, n in enumerate(it.shape)])
              for k, it in enumerate(arrays)}  # fmt: skip
    constants = {f"w{k}": it for k, it in enumerate(weights)}
    return make_model([node(op, [*inputs, *constants], list(outputs), **attributes)], inputs, constants)


def product() -> Case:
    a, b = numbers(MANY, 2, 3), numbers(MANY, 3, 2)
    return one("MatMul", a, b), [a, b], a @ b


def convolution() -> Case:
    x = numbers(MANY, 2, 3, 3)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x.sum(1), [(0, 0), (1, 1), (1, 1)]), (3, 3), (1, 2))
    return one("Conv", x, weights=(np.ones((1, 2, 3, 3), F),), pads=[1] * 4), [x], windows.sum((3, 4))[:, None]


def depthwise() -> Case:
    x = numbers(MANY * 32, 2, 1, 1)
    return one("Conv", x, weights=(np.full((2, 1, 1, 1), 2, F),), group=2), [x], x * 2


def recurrent() -> Case:
    """One step from a state of zeros; gates are in the order input, output, forget, candidate."""
    x, w = numbers(1, MANY, 3), numbers(1, 8, 3)
    i, o, _, c = np.split(x[0] @ w[0].T, 4, axis=-1)
    h = np.tanh(np.tanh(c) / (1 + np.exp(-i))) / (1 + np.exp(-o))
    return one("LSTM", x, weights=(w, numbers(1, 8, 2)), hidden_size=2, outputs=("", "y")), [x], h[None]


def selection() -> Case:
    x = np.random.default_rng(4).permuted(np.tile(np.arange(5, dtype=F), (MANY, 1)), axis=1)
    return one("TopK", x, weights=(np.array([2]),), outputs=("y", "places"), free=1), [x], np.sort(x, 1)[:, :-3:-1]


def softmax() -> Case:
    x = numbers(MANY * 64, 3)
    e = np.exp(x - x.max(-1, keepdims=True))
    return one("Softmax", x), [x], e / e.sum(-1, keepdims=True)


def reduction() -> Case:
    x = numbers(MANY * 64, 3)
    return one("ReduceSum", x, weights=(np.array([1]),), keepdims=0), [x], x.sum(1)


def totals() -> Case:
    x = numbers(MANY * 64, 3)
    return one("CumSum", x, weights=(np.array(1),)), [x], np.cumsum(x, 1)


def elements() -> Case:
    x = numbers(MANY * 64 + 1)
    return one("Neg", x), [x], -x


def bytes_() -> Case:
    x = np.arange(MANY * 256 + 1).astype(np.uint8)
    return one("BitwiseNot", x), [x], ~x


LARGE = (product, reduction, elements, bytes_)
LARGER = (convolution, depthwise, recurrent, selection, softmax, totals)


@pytest.mark.costly
@pytest.mark.parametrize("case", [*LARGE, *(pytest.param(it, marks=pytest.mark.exhaustive) for it in LARGER)])
def test_grids_of_more_than_65535_workgroups(case: Callable[[], Case], monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    fold = layout.fold_grid
    monkeypatch.setattr(layout, "fold_grid", lambda count: counts.append(count) or fold(count))
    model, arrays, want = case()
    software, hardware = software_and_hardware(model)
    # A GPU's maps make thousands of elements per workgroup: so many workgroups would take gigabytes.
    for program in (software,) if case in (elements, bytes_) else (software, hardware):
        counts.clear()
        got = run_guarded(program, arrays)[0]
        assert max(counts) > 65535
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
