"""The kernels that hardware adapters get, run on any adapter: every tile, on sizes that no tile divides."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnxruntime as ort
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler import tune
from tests.support import Runner, compile_model, make_model, target

F = np.float32
SHAPES = [(1, 5, 7, 3), (1, 45, 96, 100), (2, 33, 30, 65), (1, 130, 64, 140), (3, 1, 16, 200)]


def hardware(*choices):
    return dataclasses.replace(target(), software=False, tuning=choices)


TILES = [tune.parameters_of(it) for it in tune.GPU if it.kernel == "matmul"]


@pytest.mark.costly
@pytest.mark.parametrize("tile", TILES, ids=lambda t: f"{t.m}x{t.n}x{t.k}/{t.slices}")
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_every_tile_multiplies_matrices_of_any_size(tile, dynamic):
    rng = np.random.default_rng(0)
    run = None
    for batch, m, k, n in SHAPES:
        if run is None or not dynamic:
            dims = ["b", "m", "k"], ["b", "k", "n"]
            if not dynamic:
                dims = [batch, m, k], [batch, k, n]
            model = make_model([node("MatMul", ["x", "w"], ["y"])], {"x": (F, dims[0]), "w": (F, dims[1])})
            run = Runner(compile_model(model, hardware(tune.use(tile))))
        x, w = rng.standard_normal((batch, m, k)).astype(F), rng.standard_normal((batch, k, n)).astype(F)
        want = x.astype(np.float64) @ w.astype(np.float64)
        np.testing.assert_allclose(run(x, w)[0], want, atol=1e-6 * k**0.5 * 20)


@pytest.mark.costly
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_lies_beyond_the_end_of_k_or_n_does_not_leak_into_results(value):
    """Operands are slices of larger arrays full of NaN or infinity."""
    nodes = [node("Slice", ["x", "zero", "six", "last"], ["a"]), node("Slice", ["w", "zeros", "sizes", "both"], ["b"]),
             node("MatMul", ["a", "b"], ["y"])]  # fmt: skip
    weights = {"zero": [0], "six": [6], "last": [1], "zeros": [0, 0], "sizes": [6, 5], "both": [0, 1]}
    model = make_model(nodes, {"x": (F, [3, 8]), "w": (F, [8, 8])}, {k: np.array(v) for k, v in weights.items()})
    x, w = np.full((3, 8), value, F), np.full((8, 8), value, F)
    x[:, :6], w[:6, :5] = 1, 2
    for on in (target(), hardware()):
        np.testing.assert_array_equal(Runner(compile_model(model, on))(x, w)[0], np.full((3, 5), 12, F))


@pytest.mark.costly
@pytest.mark.parametrize(("kernel", "group", "stride"), [(1, 1, 1), (3, 1, 1), (3, 1, 2), (3, 3, 1), (5, 6, 2)])
def test_convolution_through_the_matrix_of_windows(kernel, group, stride):
    rng = np.random.default_rng(1)
    x, w, b = (
        rng.standard_normal((2, 6, 9, 11)),
        rng.standard_normal((12, 6 // group, kernel, kernel)),
        rng.standard_normal(12),
    )
    pads = [kernel // 2] * 4
    attributes = {"pads": pads, "strides": [stride] * 2, "group": group}
    model = make_model([node("Conv", ["x", "w", "b"], ["y"], **attributes)], {"x": (F, ["n", 6, "h", "w_"])},
                       {"w": w.astype(F), "b": b.astype(F)})  # fmt: skip
    padded = np.pad(x, [(0, 0), (0, 0), (kernel // 2,) * 2, (kernel // 2,) * 2])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]
    parts = [
        np.einsum(
            "nchwij,ocij->nohw",
            windows[:, g * 6 // group : (g + 1) * 6 // group],
            w[g * 12 // group : (g + 1) * 12 // group],
        )
        for g in range(group)
    ]
    want = np.concatenate(parts, 1) + b[:, None, None]
    for on in (target(), hardware()):
        np.testing.assert_allclose(Runner(compile_model(model, on))(x.astype(F))[0], want, atol=2e-5)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax", "ReduceL2", "ReduceMean"])
@pytest.mark.parametrize("shape", [(640, 33), (640, 701), (131, 9000), (2, 1024, 160), (0, 8), (256, 0)], ids=str)
def test_reductions_over_an_axis_that_is_not_the_last(shape, op, dynamic):
    x = np.random.default_rng(0).standard_normal(shape).astype(F)
    axis = len(shape) - 2
    if 0 in shape and op in ("ReduceMax", "ReduceMean"):
        pytest.skip("of nothing")
    want = {"ReduceSum": np.sum, "ReduceMax": np.max, "ReduceMean": np.mean,
            "ReduceL2": lambda a, axis: np.sqrt((a * a).sum(axis))}[op](x.astype(np.float64), axis)  # fmt: skip
    dims = ["a", "b", "c"][: len(shape)] if dynamic else shape
    model = make_model([node(op, ["x", "axes"], ["y"], keepdims=0)], {"x": (F, dims)}, {"axes": np.array([axis])})
    program = compile_model(model, hardware())
    np.testing.assert_allclose(Runner(program)(x)[0], want, atol=1e-4, rtol=1e-5)
    if not dynamic:
        assert len(program.dispatches) == (2 if shape in ((640, 701), (2, 1024, 160)) else want.size > 0)


WINDOWED = ("Conv", "Conv in groups", "depthwise Conv", "small groups", "ConvTranspose", "MaxPool", "AveragePool")


@pytest.mark.costly
@pytest.mark.parametrize("pads", [0, 1], ids=["without padding", "padded"])
@pytest.mark.parametrize("op", WINDOWED)
@pytest.mark.parametrize("rank", [1, 2])
def test_windows_of_an_image_whose_rows_are_not_evenly_spaced(op, rank, pads):
    """No view gives such windows: an axis of the image is two axes of what lies in memory."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((2, 8, 2, 3, 5)[: 3 + rank]).astype(F)
    if rank == 1:
        order, shape = [0, 1, 3, 2], [0, 0, 6]
    else:
        order, shape = [0, 1, 3, 2, 4], [0, 0, 6, 5]
    groups = {"Conv in groups": 2, "depthwise Conv": 8, "small groups": 4}.get(op, 1)
    kernel, features = [3, 2][:rank], 16 if op == "Conv in groups" else 8
    weights = {"shape": np.array(shape)}
    if "Pool" in op:
        last = node(op, ["v"], ["y"], kernel_shape=kernel, pads=[pads] * 2 * rank)
    else:
        first = (8, features) if op == "ConvTranspose" else (features, 8 // groups)
        weights["w"] = rng.standard_normal((*first, *kernel)).astype(F)
        name = "ConvTranspose" if op == "ConvTranspose" else "Conv"
        last = node(name, ["v", "w"], ["y"], pads=[pads] * 2 * rank, group=groups)
    nodes = [node("Transpose", ["x"], ["t"], perm=order), node("Reshape", ["t", "shape"], ["v"]), last]
    model = make_model(nodes, {"x": (F, x.shape)}, weights)
    model.graph.output[0].type.tensor_type.elem_type = 1
    cpu = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (want,) = cpu.run(None, {"x": x})
    for on in (target(), hardware()):
        np.testing.assert_allclose(Runner(compile_model(model, on))(x)[0], want, rtol=1e-4, atol=2e-5)
