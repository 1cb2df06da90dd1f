"""Convolutions of bytes as products of signed bytes by matrices of subgroups, in plain WGSL where the adapter has no units: exact
for every zero point, which also pads the image, and with bytes in memory between them."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler import tune
from onnxruntime_ep_wgpu.program.dtypes import DType
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.program.target import Target
from tests import targets
from tests.compiler.test_byte_products import S8, SMALL, U8, any_bytes, less
from tests.compiler.test_matrices import uses_matrices
from tests.support import Runner, compile_model, make_model, target

F = np.float32


way = targets.each(targets.Way("matrices"), targets.Way("web-matrices"))


def on_last() -> Target:
    """Where every convolution makes an image whose channels are last."""
    last = tune.use(tune.convolutions.ChannelsLast(2))
    return dataclasses.replace(target(), tuning=(last, tune.use(SMALL)))


def convolved(x: np.ndarray, w: np.ndarray, pads: int = 0, stride: int = 1) -> np.ndarray:
    """Sums of products of numbers that are less their zero points, so that zeros pad them."""
    padded = np.pad(x, [(0, 0), (0, 0), (pads, pads), (pads, pads)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], (2, 3))[:, :, ::stride, ::stride]
    return np.einsum("nchwij,ocij->nohw", windows, w)


def rounded(real: np.ndarray, zero: int, dtype: type) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.clip(np.rint(real) + zero, limits.min, limits.max).astype(dtype)


def stored(program: Program, *dims: int) -> list[DType]:
    """The types of images of these extents behind the batch."""
    return [it.dtype for it in program.values if it.shape[1:] == dims]


@pytest.mark.parametrize(("dtype", "zero"), [(U8, 77), (S8, -128), (U8, 128)], ids=["unsigned", "signed", "middle"])
@pytest.mark.parametrize(
    ("channels", "features", "kernel", "pads", "stride"), [(16, 24, 3, 1, 2), (20, 8, 3, 2, 1), (32, 16, 1, 0, 2)]
)
def test_images_whose_channels_are_last(
    dtype: type, zero: int, channels: int, features: int, kernel: int, pads: int, stride: int
) -> None:
    """The first convolution makes bytes with their channels last, of which the second one reads windows."""
    x, v = any_bytes(dtype, 2, 5, 7, 6), any_bytes(S8, channels, 5, 1, 1, seed=1)
    w, ratio = any_bytes(S8, features, channels, kernel, kernel, seed=2), F(1) / F(300)
    known = {"v": v, "w": w, "one": F(1), "s": F(300), "z": np.array(zero, dtype), "none": np.array(0, S8)}
    nodes = [
        node("QLinearConv", ["x", "one", "z", "v", "one", "none", "s", "z"], ["m"]),
        node("ConvInteger", ["m", "w", "z", "none"], ["y"], pads=[pads] * 4, strides=[stride] * 2),
    ]
    program = compile_model(make_model(nodes, {"x": (dtype, [2, 5, 7, 6])}, known), on_last())
    assert uses_matrices(program)
    assert stored(program, 7, 6, channels) == [DType.of_numpy(np.dtype(dtype))]
    reads_sixteen = any("x16_words" in text for kernel_ in program.kernels for text in kernel_.wgsl)
    assert reads_sixteen is (channels % 16 == 0 and kernel > 1)
    m = rounded(convolved(less(x, zero), less(v, 0)).astype(F) * ratio, zero, dtype)
    np.testing.assert_array_equal(Runner(program)(x)[0], convolved(less(m, zero), less(w, 0), pads, stride))


def test_weights_less_zero_points_of_features_are_bytes_where_these_fit() -> None:
    x, w = any_bytes(U8, 1, 8, 5, 5), np.random.default_rng(1).integers(60, 180, (12, 8, 3, 3)).astype(U8)
    zeros = np.linspace(100, 130, 12).astype(U8)
    nodes = [node("ConvInteger", ["x", "w", "a", "b"], ["y"], pads=[1, 0, 1, 0])]
    model = make_model(nodes, {"x": (U8, x.shape)}, {"w": w, "a": np.array(3, U8), "b": zeros})
    program = compile_model(model, on_last())
    assert uses_matrices(program)
    want = convolved(np.pad(less(x, 3), [(0, 0), (0, 0), (1, 1), (0, 0)]), less(w, zeros[:, None, None, None]))
    np.testing.assert_array_equal(Runner(program)(x)[0], want)


@pytest.mark.parametrize("given", ["zero", "weights", "groups"])
def test_what_a_run_decides_has_other_kernels(given: str) -> None:
    group = 2 if given == "groups" else 1
    x, w, zero = any_bytes(U8, 1, 16, 5, 5), any_bytes(S8, 32, 16 // group, 3, 3, seed=1), np.array(9, U8)
    arrays = {"x": x, "w": w, "z": zero}
    inputs = ["x", *{"zero": ["z"], "weights": ["w"], "groups": []}[given]]
    nodes = [node("ConvInteger", ["x", "w", "z"], ["y"], pads=[1] * 4, group=group)]
    known = {name: array for name, array in arrays.items() if name not in inputs}
    types = {name: (arrays[name].dtype.type, arrays[name].shape) for name in inputs}
    program = compile_model(make_model(nodes, types, known), on_last())
    assert not uses_matrices(program)
    halves = [slice(8 * g, 8 * g + 8) for g in range(2)] if group == 2 else [slice(None)]
    parts = np.split(w, group)
    want = [convolved(less(x[:, it], 9), less(part, 0), 1) for it, part in zip(halves, parts, strict=True)]
    np.testing.assert_array_equal(Runner(program)(*(arrays[it] for it in inputs))[0], np.concatenate(want, 1))


def test_a_zero_point_that_a_run_decides_pads_no_window_without_padding() -> None:
    x, w, zero = any_bytes(U8, 1, 16, 5, 5), any_bytes(S8, 8, 16, 3, 3, seed=1), np.array(9, U8)
    model = make_model([node("ConvInteger", ["x", "w", "z"], ["y"])], {"x": (U8, x.shape), "z": (U8, [])}, {"w": w})
    program = compile_model(model, on_last())
    assert uses_matrices(program)
    np.testing.assert_array_equal(Runner(program)(x, zero)[0], convolved(less(x, 9), less(w, 0)))


class Qdq:
    """A graph of convolutions between QuantizeLinear and DequantizeLinear, with the values that it should have."""

    def __init__(self, x: np.ndarray) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.known: dict[str, np.ndarray] = {}
        self.values = {"x": x.astype(np.float64)}
        self.dice = np.random.default_rng(5)

    def _known(self, array: object) -> str:
        name = f"k{len(self.known)}"
        self.known[name] = np.asarray(array)
        return name

    def add(self, op: str, inputs: list[str], value: np.ndarray, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(node(op, inputs, [name], **attributes))
        self.values[name] = value
        return name

    def rounded(self, x: str, scale: float, zero: int) -> str:
        s, z = self._known(F(scale)), self._known(np.array(zero, U8))
        q = rounded(self.values[x].astype(F) / F(scale), zero, U8)
        return self.add("DequantizeLinear", [self.add("QuantizeLinear", [x, s, z], q), s, z], less(q, zero) * F(scale))

    def conv(self, x: str, features: int, kernel: int) -> str:
        channels = self.values[x].shape[1]
        w = self.dice.integers(-127, 128, (features, channels, kernel, kernel)).astype(S8)
        scales = self.dice.uniform(1e-3, 2e-3, features).astype(F)
        bias = self.dice.standard_normal(features).astype(F)
        real = less(w, 0) * scales.astype(np.float64)[:, None, None, None]
        parameters = [self._known(w), self._known(scales), self._known(np.zeros(features, S8))]
        weights = self.add("DequantizeLinear", parameters, real, axis=0)
        sums = convolved(self.values[x], real, kernel // 2) + bias[:, None, None]
        return self.add("Conv", [x, weights, self._known(bias)], sums, pads=[kernel // 2] * 4)


def test_dequantised_convolutions_are_multiplied_as_bytes() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 6, 7)).astype(F)
    net = Qdq(x)
    first = net.rounded(net.conv(net.rounded("x", 0.03, 100), 16, 3), 0.0513, 120)
    inner = net.rounded(net.conv(first, 16, 3), 0.0707, 128)
    total = net.add("Add", [first, inner], net.values[first] + net.values[inner])
    positive = net.add("Relu", [total], np.maximum(net.values[total], 0))
    last = net.conv(net.rounded(positive, 0.0411, 0), 12, 1)
    program = compile_model(make_model(net.nodes, {"x": (F, x.shape)}, net.known), on_last())
    labels = [program.kernels[it.kernel].label for it in program.dispatches]
    assert labels.count("matmul (matrix units)") == 3
    images = stored(program, 6, 7, 16)  # the sums of the residual too are bytes in memory
    assert images and set(images) == {DType.UINT8}
    # A sum that is rounded elsewhere than here moves a result by a step of one of the scales.
    (got,) = Runner(program)(x)
    assert np.mean(np.abs(got - net.values[last]) < 1e-4) > 0.9
    np.testing.assert_allclose(got, net.values[last], atol=0.5)
