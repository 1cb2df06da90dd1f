"""What shares a kernel, counted in dispatches, and what must not."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from onnx.helper import make_node as node

from tests.support import Runner, compile_model, make_model, run_model, target, without_prelude

F = np.float32
rng = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(F)


def dispatches(model) -> int:
    return len(compile_model(model).dispatches)


def test_bias_residual_and_activation_are_stored_by_the_matrix_product():
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node("Add", ["m", "b"], ["a"]),
        node("Add", ["a", "r"], ["s"]),
        node("Relu", ["s"], ["y"]),
    ]
    model = make_model(nodes, {"x": (F, ["n", 8]), "r": (F, ["n", 4])}, {"w": floats(8, 4), "b": floats(4)})
    assert dispatches(model) == 1
    x, r = floats(3, 8), floats(3, 4)
    w, b = (np.array(np.frombuffer(t.raw_data, F).reshape(t.dims)) for t in model.graph.initializer)
    np.testing.assert_allclose(run_model(model, x, r)[0], np.maximum(x @ w + b + r, 0), rtol=1e-5, atol=1e-5)


def test_a_diamond_of_maps_is_one_kernel_that_computes_its_top_once():
    nodes = [
        node("Exp", ["x"], ["e"]),
        node("Neg", ["e"], ["a"]),
        node("Sqrt", ["e"], ["b"]),
        node("Mul", ["a", "b"], ["y"]),
    ]
    program = compile_model(make_model(nodes, {"x": (F, ["n"])}))
    assert len(program.dispatches) == 1
    assert without_prelude(program.kernels[0].wgsl[0]).count("exp_f32(") == 1


def test_a_value_that_others_need_is_stored_beside_the_fused_result():
    nodes = [node("Exp", ["x"], ["e"]), node("Neg", ["e"], ["y"]), node("ReduceSum", ["e"], ["s"], keepdims=0)]
    program = compile_model(make_model(nodes, {"x": (F, [100])}))
    assert len(program.dispatches) == 2
    x = floats(100)
    y, s = Runner(program)(x)
    np.testing.assert_allclose(y, -np.exp(x), rtol=1e-5)
    np.testing.assert_allclose(s, np.exp(x).sum(), rtol=1e-5)


def test_views_cost_no_dispatch():
    nodes = [node("Reshape", ["x", "heads"], ["h"]), node("Transpose", ["h"], ["t"], perm=[0, 2, 1, 3]),
             node("Unsqueeze", ["t", "axis"], ["u"]), node("Relu", ["u"], ["y"])]  # fmt: skip
    model = make_model(nodes, {"x": (F, ["b", "s", 12])}, {"heads": np.array([0, 0, 3, 4]), "axis": np.array([0])})
    assert dispatches(model) == 1
    x = floats(2, 5, 12)
    np.testing.assert_array_equal(
        run_model(model, x)[0], np.maximum(x.reshape(2, 5, 3, 4).transpose(0, 2, 1, 3)[None], 0)
    )


def test_a_map_waits_for_an_operand_that_needs_the_call_itself():
    """x @ w feeds a reduction whose result the following map reads: fusing them would be a cycle."""
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node("ReduceMax", ["m"], ["h"], keepdims=1),
        node("Sub", ["m", "h"], ["y"]),
    ]
    model = make_model(nodes, {"x": (F, [5, 8])}, {"w": floats(8, 4)})
    assert dispatches(model) == 3
    x = floats(5, 8)
    w = np.frombuffer(model.graph.initializer[0].raw_data, F).reshape(8, 4)
    np.testing.assert_allclose(run_model(model, x)[0], x @ w - (x @ w).max(), rtol=1e-4, atol=1e-5)


def test_a_map_that_reads_a_result_elsewhere_is_a_kernel_of_its_own():
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Transpose", ["m"], ["t"]), node("Add", ["m", "t"], ["y"])]
    model = make_model(nodes, {"x": (F, [4, 8])}, {"w": floats(8, 4)})
    x = floats(4, 8)
    w = np.frombuffer(model.graph.initializer[0].raw_data, F).reshape(8, 4)
    assert dispatches(model) == 2
    np.testing.assert_allclose(run_model(model, x)[0], x @ w + (x @ w).T, rtol=1e-4, atol=1e-5)


def test_narrow_results_are_not_stored_by_a_call():
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Greater", ["m", "zero"], ["y"])]
    model = make_model(nodes, {"x": (F, [3, 8])}, {"w": floats(8, 5), "zero": np.zeros(1, F)})
    x = floats(3, 8)
    w = np.frombuffer(model.graph.initializer[0].raw_data, F).reshape(8, 5)
    (y,) = run_model(model, x)
    np.testing.assert_array_equal(y, x @ w > 0)


@pytest.mark.costly
@pytest.mark.parametrize("limit", [4, 8])
def test_no_kernel_binds_more_buffers_than_the_target_allows(limit):
    names = [f"x{k}" for k in range(12)]
    nodes = [node("Add", ["x0", "x1"], ["s1"])] + [node("Add", [f"s{k - 1}", f"x{k}"], [f"s{k}"]) for k in range(2, 12)]
    nodes += [node("Concat", names, ["c"], axis=0)]
    model = make_model(nodes, {n: (F, [5]) for n in names})
    program = compile_model(model, dataclasses.replace(target(), max_storage_buffers=limit))
    assert max(len(k.bindings) for k in program.kernels) <= limit
    arrays = [floats(5) for _ in names]
    total, joined = Runner(program)(*arrays)
    np.testing.assert_allclose(total, sum(arrays), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(joined, np.concatenate(arrays))


def test_a_long_chain_is_cut_so_that_kernels_compile_quickly():
    nodes = [node("Tanh", [f"v{k}"], [f"v{k + 1}"]) for k in range(60)]
    assert 1 < dispatches(make_model(nodes, {"v0": (F, ["n"])})) < 20


def test_equal_layers_share_their_kernels():
    nodes, weights = [], {}
    for k in range(4):
        weights |= {f"w{k}": floats(8, 8), f"b{k}": floats(8)}
        nodes += [node("MatMul", [f"v{k}", f"w{k}"], [f"m{k}"]), node("Add", [f"m{k}", f"b{k}"], [f"v{k + 1}"])]
    program = compile_model(make_model(nodes, {"v0": (F, ["n", 8])}, weights))
    assert (len(program.dispatches), len(program.kernels)) == (4, 1)


QUANTISED = {
    "s": np.array(0.05, F),
    "z": np.array(7, np.uint8),
    "w": np.ones((4, 3, 3, 3), np.int8),
    "one": np.array(1, np.int8),
}


def test_a_convolution_between_pairs_of_quantising_and_dequantising_is_one_kernel():
    nodes = [
        node("Conv", ["x", "f"], ["c"]),
        node("QuantizeLinear", ["c", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["q", "s", "z"], ["e"]),
        node("Conv", ["d", "g"], ["a"]),
        node("Conv", ["e", "g"], ["b"]),
    ]
    weights = {**QUANTISED, "f": floats(4, 3, 3, 3), "g": floats(8, 4, 1, 1)}
    assert dispatches(make_model(nodes, {"x": (F, [1, 3, 9, 9])}, weights)) == 3


def test_integers_are_requantised_where_their_sums_are_stored():
    first, second = (["x", "s", "z", "w", "s", "one", "s", "z"], ["m", "s", "z", "v", "s", "one", "s", "z"])
    nodes = [node("QLinearConv", first, ["m"]), node("QLinearConv", second, ["y"])]
    model = make_model(nodes, {"x": (np.uint8, [1, 3, 9, 9])}, {**QUANTISED, "v": np.ones((8, 4, 1, 1), np.int8)})
    assert dispatches(model) == 3  # the last result is bytes, which a product cannot store


def test_zero_points_are_subtracted_where_bytes_are_loaded():
    model = make_model([node("MatMulInteger", ["x", "y", "p", "q"], ["z"])],
                       {"x": (np.uint8, ["m", 8]), "y": (np.int8, [8, 4]), "p": (np.uint8, []), "q": (np.int8, [])})  # fmt: skip
    assert dispatches(model) == 1
