"""Products of bytes by matrices of subgroups, in plain WGSL where the adapter has no units for them: exact for bytes with or
without a sign, with every kind of zero point, on sizes that no tile divides."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler import tune
from onnxruntime_ep_wgpu.compiler.tune.matrices import ByteTile
from onnxruntime_ep_wgpu.program.dtypes import DType
from onnxruntime_ep_wgpu.program.target import F16, SUBGROUP_MATRIX, MatrixUnit, Target
from tests import targets
from tests.compiler.test_matrices import uses_matrices
from tests.support import Runner, compile_model, make_model, target

S8, U8 = np.int8, np.uint8
SMALL = ByteTile(16, 16, 32, 1, 1)
TILES = (SMALL, ByteTile(32, 64, 64, 2, 2), ByteTile(64, 32, 64, 4, 1, 2), ByteTile(16, 32, 64, 1, 2, 1, 8, 16, 32))


way = targets.each(targets.Way("matrices"), targets.Way("web-matrices"))


def on(*choices: tune.base.Parameters) -> Target:
    return dataclasses.replace(target(), tuning=tuple(tune.use(it) for it in choices))


def any_bytes(dtype: type, *shape: int, seed: int = 0) -> np.ndarray:
    """With all extreme values, where there is place."""
    limits = np.iinfo(dtype)
    values = np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(dtype)
    values.reshape(-1)[: min(2, values.size)] = [limits.min, limits.max][: min(2, values.size)]
    return values


def less(x: np.ndarray, zero: Any) -> np.ndarray:
    return x.astype(np.int64) - np.asarray(zero, np.int64)


def product(x: Any, w: Any, zeros: dict[str, np.ndarray], known: dict[str, np.ndarray]) -> onnx.ModelProto:
    """x and w are a type and a shape; zeros are `a` of x and `b` of w; what is `known` is no input."""
    names = ["x", "w", *(["a"] if zeros else []), *(["b"] if "b" in zeros else [])]
    inputs = {name: it for name, it in {"x": x, "w": w}.items() if name not in known}
    inputs |= {name: (it.dtype.type, it.shape) for name, it in zeros.items() if name not in known}
    return make_model([node("MatMulInteger", names, ["y"])], inputs, known)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("tile", "left", "right"),
    [(SMALL, S8, U8), (TILES[1], U8, S8), (TILES[2], U8, U8), (TILES[3], S8, S8)],
    ids=lambda it: f"{it.m}x{it.n}x{it.k}" if isinstance(it, ByteTile) else it.__name__,
)
def test_every_tile_multiplies_bytes_of_any_size(tile: ByteTile, left: type, right: type) -> None:
    zeros = {"a": np.array(7, left), "b": np.array(3, right)}
    program = compile_model(product((left, ("b", "m", "k")), (right, ("b", "k", "n")), zeros, zeros), on(tile))
    assert uses_matrices(program)
    run = Runner(program)
    for batch, m, k, n in ((1, 45, 100, 70), (2, 33, 64, 48), (3, 17, 35, 5)):
        x, w = any_bytes(left, batch, m, k), any_bytes(right, batch, k, n, seed=1)
        np.testing.assert_array_equal(run(x, w)[0], less(x, 7) @ less(w, 3))


@pytest.mark.parametrize("zeros", ["none", "middle", "numbers", "rows and columns", "given"])
@pytest.mark.parametrize(("left", "right"), [(S8, S8), (U8, S8), (U8, U8)], ids=lambda it: it.__name__)
def test_zero_points(left: type, right: type, zeros: str) -> None:
    m, k, n = 20, 48, 36
    x, w, middle = any_bytes(left, m, k), any_bytes(right, k, n, seed=1), {S8: 0, U8: 128}
    found = {
        "none": {},
        "middle": {"a": np.array(middle[left], left), "b": np.array(middle[right], right)},
        "numbers": {"a": np.array(np.iinfo(left).min, left), "b": np.array(np.iinfo(right).max, right)},
        "rows and columns": {"a": any_bytes(left, m, seed=2), "b": any_bytes(right, n, seed=3)},
        "given": {"a": np.array(5, left), "b": any_bytes(right, n, seed=3)},
    }[zeros]
    model = product((left, [m, k]), (right, [k, n]), found, {"w": w, **(found if zeros != "given" else {})})
    program = compile_model(model, on(SMALL))
    assert uses_matrices(program)
    # Bytes that need no zero point are multiplied as they are.
    assert (len(program.dispatches) == 1) == (zeros in ("none", "middle") and (zeros == "middle" or right is S8))
    given = [x, *(found.values() if zeros == "given" else ())]
    a, b = found.get("a", np.zeros(1)), found.get("b", np.zeros(1))
    want = less(x, a[:, None] if a.ndim and a.size > 1 else a) @ less(w, b)
    np.testing.assert_array_equal(Runner(program)(*given)[0], want)


def test_weights_less_their_zero_point_are_bytes_where_these_fit() -> None:
    """Then no rows of the other operand are summed."""
    x, w = any_bytes(S8, 20, 48), np.random.default_rng(0).integers(60, 180, (48, 36)).astype(U8)
    zeros = {"a": np.array(0, S8), "b": np.linspace(90, 140, 36).astype(U8)}
    program = compile_model(product((S8, x.shape), (U8, w.shape), zeros, {"w": w, **zeros}), on(SMALL))
    assert uses_matrices(program) and len(program.dispatches) == 1
    np.testing.assert_array_equal(Runner(program)(x)[0], less(x, 0) @ less(w, zeros["b"]))


def test_sums_of_extreme_bytes_are_exact() -> None:
    x, w = np.full((17, 4096), 255, U8), np.full((4096, 16), -128, S8)
    program = compile_model(product((U8, x.shape), (S8, w.shape), {}, {"w": w}), on(SMALL))
    assert uses_matrices(program)
    np.testing.assert_array_equal(Runner(program)(x)[0], np.full((17, 16), -255 * 128 * 4096))


@pytest.mark.parametrize("shape", [(0, 16, 16), (18, 0, 16), (18, 16, 0)], ids=str)
def test_empty_matrices(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    x, w = any_bytes(U8, m, k), any_bytes(S8, k, n)
    zeros = {"a": np.array(9, U8), "b": np.array(4, S8)}
    got = Runner(compile_model(product((U8, (m, k)), (S8, (k, n)), zeros, zeros), on(SMALL)))(x, w)[0]
    np.testing.assert_array_equal(got, np.zeros((m, n)))


def test_parts_of_k() -> None:
    x, w = any_bytes(U8, 20, 200), any_bytes(S8, 200, 24)
    model = product((U8, x.shape), (S8, w.shape), {"a": np.array(9, U8)}, {"w": w, "a": np.array(9, U8)})
    program = compile_model(model, on(SMALL, tune.products.SplitK(8, 32)))
    assert uses_matrices(program) and len(program.dispatches) == 2
    np.testing.assert_array_equal(Runner(program)(x)[0], less(x, 9) @ less(w, 0))


def test_what_lies_beside_a_view_does_not_leak_into_results() -> None:
    nodes = [node("Slice", ["x", "zeros", "sizes", "axes"], ["v"]), node("MatMulInteger", ["v", "w", "a"], ["y"])]
    known = {"zeros": [0, 2], "sizes": [20, 38], "axes": [0, 1]}
    x, w, a = any_bytes(U8, 24, 48), any_bytes(S8, 36, 20), np.array(200, U8)
    model = make_model(nodes, {"x": (U8, [24, 48])}, {"w": w, "a": a, **{k: np.array(v) for k, v in known.items()}})
    np.testing.assert_array_equal(Runner(compile_model(model, on(SMALL)))(x)[0], less(x[:20, 2:38], 200) @ less(w, 0))


def test_scales_and_rounding_are_in_the_kernel_of_a_product() -> None:
    x, w, bias = any_bytes(U8, 33, 64), any_bytes(S8, 40, 64), np.arange(-20, 20, dtype=np.int32) * 999
    scales = {"sx": np.float32(0.02), "sw": np.linspace(0.01, 0.05, 40, dtype=np.float32), "s": np.float32(0.5)}
    zeros = {"zx": np.array(100, U8), "zw": np.zeros(40, S8), "z": np.array(120, U8)}
    known = {"w": w, "bias": bias, **scales, **zeros}
    names = ["x", "sx", "zx", "w", "sw", "zw", "bias", "s", "z"]
    model = make_model([node("QGemm", names, ["y"], domain="com.microsoft", transB=1)], {"x": (U8, x.shape)}, known)
    program = compile_model(model, on(SMALL))
    assert uses_matrices(program) and len(program.dispatches) == 1
    sums = less(x, 100) @ less(w, 0).T + bias
    want = np.clip(np.rint(sums * (scales["sx"] * scales["sw"] / scales["s"])) + 120, 0, 255)
    np.testing.assert_array_equal(Runner(program)(x)[0], want.astype(U8))


def test_a_product_hands_bytes_on_to_the_next_one() -> None:
    x, w, v = any_bytes(U8, 24, 32), any_bytes(S8, 32, 36, seed=1), any_bytes(S8, 36, 20, seed=2)
    scale, zero = np.float32(1e-3), np.array(128, U8)
    known = {"w": w, "v": v, "one": np.float32(1), "s": scale, "z": zero, "none": np.array(0, S8)}
    nodes = [
        node("QLinearMatMul", ["x", "one", "z", "w", "s", "none", "one", "z"], ["m"]),
        node("MatMulInteger", ["m", "v", "z"], ["y"]),
    ]
    program = compile_model(make_model(nodes, {"x": (U8, x.shape)}, known), on(SMALL))
    assert uses_matrices(program) and len(program.dispatches) == 2
    assert [it.dtype for it in program.values].count(DType.INT32) == 1  # the result
    m = np.clip(np.rint(np.float32(less(x, 128) @ less(w, 0)) * scale) + 128, 0, 255)
    np.testing.assert_array_equal(Runner(program)(x)[0], less(m, 128) @ less(v, 0))


@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
@pytest.mark.parametrize("per_column", [False, True], ids=["", "per column"])
def test_dequantised_products_are_multiplied_as_bytes(op: str, per_column: bool) -> None:
    across = op == "Gemm"
    x, w = any_bytes(U8, 21, 40), any_bytes(S8, 40, 28, seed=1)
    scales = np.linspace(1e-3, 2e-3, 28, dtype=np.float32) if per_column else np.float32(1e-3)
    zeros = {"p": np.array(90, U8), "q": np.zeros(scales.shape, S8)}
    known = {"w": w.T.copy() if across else w, "t": scales, "s": np.float32(0.1), **zeros}
    how = {"transB": 1, "alpha": 0.5} if across else {}
    nodes = [
        node("DequantizeLinear", ["x", "s", "p"], ["a"]),
        node("DequantizeLinear", ["w", "t", "q"], ["b"], axis=0 if across else 1),
        node(op, ["a", "b", *(["c"] if across else [])], ["y"], **how),
    ]
    bias = np.linspace(-1, 1, 28, dtype=np.float32)
    model = make_model(nodes, {"x": (U8, x.shape)}, {**known, **({"c": bias} if across else {})})
    program = compile_model(model, on(SMALL))
    assert uses_matrices(program) and len(program.dispatches) == 1
    want = (less(x, 90) @ less(w, 0)) * (0.1 * scales.astype(np.float64))
    want = 0.5 * want + bias if across else want
    np.testing.assert_allclose(Runner(program)(x)[0], want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("which", ["rows", "floats", "few"])
def test_other_dequantised_products_are_of_floats(which: str) -> None:
    """With a scale for each row of x, with weights of floats, and with few rows."""
    m = 3 if which == "few" else 24
    x, w = any_bytes(U8, m, 40), any_bytes(S8, 40, 28, seed=1)
    scales = np.linspace(0.1, 0.2, m, dtype=np.float32) if which == "rows" else np.float32(0.1)
    known = {"s": scales, "t": np.float32(1e-3), "w": w * np.float32(1e-3) if which == "floats" else w}
    nodes = [node("DequantizeLinear", ["x", "s"], ["a"], axis=0), node("DequantizeLinear", ["w", "t"], ["b"]),
             node("MatMul", ["a", "w" if which == "floats" else "b"], ["y"])]  # fmt: skip
    nodes = [it for it in nodes if which != "floats" or it.output[0] != "b"]
    program = compile_model(make_model(nodes, {"x": (U8, x.shape)}, known), dataclasses.replace(target(), tuning=()))
    assert not uses_matrices(program)
    want = (less(x, 0) @ less(w, 0)) * 1e-3 * scales.reshape(-1, 1).astype(np.float64)
    np.testing.assert_allclose(Runner(program)(x)[0], want, rtol=1e-4, atol=1e-4)


def test_few_rows_have_kernels_of_their_own() -> None:
    model = product((U8, [8, 64]), (S8, [64, 64]), {}, {"w": any_bytes(S8, 64, 64)})
    assert not uses_matrices(compile_model(model, dataclasses.replace(target(), tuning=())))


def test_only_adapters_with_these_units_have_such_kernels() -> None:
    model, here = product((S8, [64, 64]), (S8, [64, 64]), {}, {}), on(SMALL)
    others = ((), (MatrixUnit(16, 16, 32, "u8", "u32", 32),), (MatrixUnit(16, 16, 16, "f16", "f32", 32),))
    for units in others:
        assert not uses_matrices(compile_model(model, dataclasses.replace(here, matrices=units)))
    card = dataclasses.replace(here, features=here.features | {F16, SUBGROUP_MATRIX})
    (text,) = compile_model(model, card).kernels[0].wgsl
    assert "subgroup_matrix_left<i8, 32u, 16u>" in text and "subgroup_matrix_result<i32, 16u, 16u>" in text


@pytest.mark.parametrize("numbers", [(16, 16, 16, 1, 1), (16, 24, 32, 1, 1), (16, 16, 32, 1, 1, 1, 16, 8, 32)])
def test_a_tile_that_cannot_be_is_refused(numbers: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="ByteTile"):
        ByteTile(*numbers)
