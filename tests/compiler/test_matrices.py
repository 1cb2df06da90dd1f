"""Products by matrices of subgroups, in plain WGSL where the adapter has no units for them: every shape of tiles, on sizes that
none divides, whatever the operands are views of and whatever is fused around them."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler import tune
from onnxruntime_ep_wgpu.compiler.tune.matrices import MatrixTile
from onnxruntime_ep_wgpu.program.dtypes import DType
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.program.target import F16, SUBGROUP_MATRIX, MatrixUnit, Target
from tests import targets
from tests.support import Runner, compile_model, make_model, target

H, F = np.float16, np.float32
SMALL = MatrixTile(16, 16, 16, 1, 1, 2)
TILES = (
    SMALL,
    MatrixTile(32, 64, 32, 2, 2),
    MatrixTile(64, 32, 32, 4, 1, 2),
    MatrixTile(32, 32, 32, 1, 2, 2, 8, 8, 8),
    MatrixTile(16, 32, 32, 1, 2, 1, 8, 16, 16),
    MatrixTile(96, 48, 32, 2, 1, 2),  # invocations share loads unevenly
    MatrixTile(48, 64, 32, 3, 1),
    MatrixTile(64, 96, 48, 2, 2),  # k is no power of two
)
SHAPES = [(1, 5, 7, 3), (1, 45, 96, 100), (2, 33, 30, 65), (3, 1, 16, 200)]


way = targets.each(targets.Way("matrices"), targets.Way("web-matrices"))


def on(*choices: MatrixTile | tune.products.SplitK) -> Target:
    return dataclasses.replace(target(), tuning=tuple(tune.use(it) for it in choices))


def uses_matrices(program: Program) -> bool:
    return any("matrix_sum" in text for kernel in program.kernels for text in kernel.wgsl)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(H)


def close(got: np.ndarray, want: np.ndarray, units: float = 0.51) -> None:
    """Results in f16 of sums in f32: within `units` of the last place of the largest."""
    assert got.dtype == H
    largest = np.abs(want).max(initial=2.0**-10)
    np.testing.assert_allclose(got.astype(np.float64), want, atol=units * 2.0 ** (np.floor(np.log2(largest)) - 10))


def product(x: tuple, w: tuple, transposed: bool = False) -> onnx.ModelProto:
    nodes = [node("MatMul", ["x", "v" if transposed else "w"], ["y"])]
    if transposed:
        nodes.insert(0, node("Transpose", ["w"], ["v"], perm=[0, 2, 1]))
    return make_model(nodes, {"x": (H, x), "w": (H, w)})


@pytest.mark.costly
@pytest.mark.parametrize("tile", TILES, ids=lambda it: f"{it.m}x{it.n}x{it.k} of {it.unit_m}x{it.unit_n}")
@pytest.mark.parametrize("transposed", [False, True], ids=["", "transposed"])
def test_every_tile_multiplies_matrices_of_any_size(tile: MatrixTile, transposed: bool) -> None:
    program = compile_model(
        product(("b", "m", "k"), ("b", "n", "k") if transposed else ("b", "k", "n"), transposed), on(tile)
    )
    assert uses_matrices(program)
    run = Runner(program)
    for batch, m, k, n in SHAPES:
        x, w = normal(0, batch, m, k), normal(1, batch, k, n)
        given = np.ascontiguousarray(w.swapaxes(1, 2)) if transposed else w
        close(run(x, given)[0], x.astype(np.float64) @ w.astype(np.float64))


@pytest.mark.parametrize(
    "shape", [(1, 45, 96, 100), (1, 17, 20, 12), (2, 3, 5, 7), (1, 0, 8, 8), (1, 8, 0, 8)], ids=str
)
def test_sizes_that_are_known(shape: tuple[int, int, int, int]) -> None:
    batch, m, k, n = shape
    x, w = normal(0, batch, m, k), normal(1, batch, k, n)
    (got,) = Runner(compile_model(product(x.shape, w.shape), on(SMALL)))(x, w)
    assert got.shape == (batch, m, n)
    close(got, x.astype(np.float64) @ w.astype(np.float64))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_lies_beyond_the_end_of_k_or_n_does_not_leak_into_results(value: float) -> None:
    """Operands are slices of larger arrays full of NaN or infinity."""
    nodes = [node("Slice", ["x", "zero", "six", "last"], ["a"]), node("Slice", ["w", "zeros", "sizes", "both"], ["b"]),
             node("MatMul", ["a", "b"], ["y"])]  # fmt: skip
    weights = {"zero": [0], "six": [6], "last": [1], "zeros": [0, 0], "sizes": [6, 5], "both": [0, 1]}
    model = make_model(nodes, {"x": (H, [9, 8]), "w": (H, [8, 8])}, {k: np.array(v) for k, v in weights.items()})
    x, w = np.full((9, 8), value, H), np.full((8, 8), value, H)
    x[:, :6], w[:6, :5] = 1, 2
    program = compile_model(model, on(SMALL))
    assert uses_matrices(program)
    np.testing.assert_array_equal(Runner(program)(x, w)[0], np.full((9, 5), 12, H))


def test_special_values_stay_in_their_rows_and_columns() -> None:
    x, w = normal(0, 20, 24), normal(1, 24, 20)
    x[3, 5], x[7, 1], w[2, 4] = np.nan, np.inf, -np.inf
    with np.errstate(all="ignore"):
        want = (x.astype(F) @ w.astype(F)).astype(H)
    (got,) = Runner(compile_model(product(x.shape, w.shape), on(SMALL)))(x, w)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))


def test_sums_are_not_rounded_on_the_way() -> None:
    """4096 and many halves of a unit of its last place, which sums of halves would lose."""
    x, w = np.full((8, 513), 1, H), np.full((513, 8), 2, H)
    w[0] = 4096
    (got,) = Runner(compile_model(product(x.shape, w.shape), on(SMALL)))(x, w)
    np.testing.assert_array_equal(got, np.full((8, 8), 4096 + 1024, H))


def fused(rank: int) -> onnx.ModelProto:
    """A transposed left operand, a bias, an activation and a residual, and a second reader of the product."""
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0]), node("MatMul", ["t", "w"], ["p"]), node("Add", ["p", "bias"], ["q"]),
        node("Sigmoid", ["q"], ["s"]), node("Mul", ["q", "s"], ["g"]), node("Add", ["g", "r"], ["y"]),
    ]  # fmt: skip
    weights = {"w": normal(1, 40, rank), "bias": normal(2, rank)}
    return make_model(nodes, {"x": (H, [40, 23]), "r": (H, [23, rank])}, weights)


@pytest.mark.parametrize("columns", [36, 33])
def test_what_is_around_a_product_is_in_its_kernel(columns: int) -> None:
    model = fused(columns)
    program = compile_model(model, on(SMALL))
    assert uses_matrices(program) and len(program.dispatches) == 1
    x, r, (w, bias) = normal(5, 40, 23), normal(6, 23, columns), (normal(1, 40, columns), normal(2, columns))
    q = x.T.astype(np.float64) @ w.astype(np.float64) + bias
    close(Runner(program)(x, r)[0], q / (1 + np.exp(-q)) + r, 1.1)


@pytest.mark.parametrize("transposed", [False, True], ids=["", "transposed"])
def test_parts_of_k(transposed: bool) -> None:
    x, w = normal(0, 1, 20, 104), normal(1, 1, 104, 24)
    given = np.ascontiguousarray(w.swapaxes(1, 2)) if transposed else w
    program = compile_model(product(x.shape, given.shape, transposed), on(SMALL, tune.products.SplitK(8, 16)))
    assert uses_matrices(program) and len(program.dispatches) == 2
    close(Runner(program)(x, given)[0], x.astype(np.float64) @ w.astype(np.float64))


def test_images_whose_channels_are_last() -> None:
    """A convolution is a product of windows, which are made where they are loaded."""
    weights = {"w": normal(1, 20, 12, 3, 3), "b": normal(2, 20), "v": normal(3, 8, 20, 1, 1)}
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 4),
        node("Relu", ["c"], ["r"]),
        node("Conv", ["r", "v"], ["y"]),
    ]
    model = make_model(nodes, {"x": (H, [2, 12, 5, 7])}, weights)
    last = tune.use(tune.convolutions.ChannelsLast(2))
    program = compile_model(model, dataclasses.replace(target(), tuning=(last, tune.use(SMALL))))
    assert uses_matrices(program)
    x = normal(0, 2, 12, 5, 7).astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)]), (3, 3), (2, 3))
    c = np.einsum("nchwij,ocij->nohw", windows, weights["w"].astype(np.float64)) + weights["b"][:, None, None]
    r = np.maximum(c, 0).astype(H).astype(np.float64)  # as it is stored
    close(
        Runner(program)(x.astype(H))[0], np.einsum("nchw,oc->nohw", r, weights["v"][:, :, 0, 0].astype(np.float64)), 1.1
    )


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [False, True], ids=["", "zero points"])
def test_weights_of_few_bits_become_halves_in_tiles(bits: int, zeros: bool) -> None:
    m, n, k, block, rng = 21, 37, 96, 32, np.random.default_rng(bits)
    q = rng.integers(0, 1 << bits, (n, k)).astype(np.uint8)
    parts = q.reshape(n, -1, 8 // bits)
    packed = sum(parts[:, :, e] << (e * bits) for e in range(8 // bits)).astype(np.uint8).reshape(n, k // block, -1)
    scales = rng.uniform(0.01, 0.02, (n, k // block)).astype(H)
    weights, names, zero = (
        {"w": packed, "s": scales.reshape(-1)},
        ["x", "w", "s"],
        np.full((n, k // block), 1 << bits - 1),
    )
    if zeros:
        zero = rng.integers(0, 1 << bits, (n, k // block))
        width = -(-(k // block) * bits // 8)
        spread = np.pad(zero, [(0, 0), (0, width * 8 // bits - k // block)]).reshape(n, width, 8 // bits)
        weights["z"] = sum(spread[:, :, e] << (e * bits) for e in range(8 // bits)).astype(np.uint8).reshape(-1)
        names.append("z")
    how = {"domain": "com.microsoft", "K": k, "N": n, "bits": bits, "block_size": block}
    model = make_model([node("MatMulNBits", names, ["y"], **how)], {"x": (H, [m, k])}, weights)
    program = compile_model(model, on(MatrixTile(16, 32, 64, 1, 2) if zeros else SMALL))
    assert uses_matrices(program)
    x, real = normal(0, m, k), (q - np.repeat(zero, block, 1)) * np.repeat(scales, block, 1).astype(np.float64)
    close(Runner(program)(x)[0], x.astype(np.float64) @ real.T, 1.5)


@pytest.mark.parametrize("dtype", [F, np.int32, np.uint32])
def test_other_types_have_other_kernels(dtype: type) -> None:
    model = make_model([node("MatMul", ["x", "w"], ["y"])], {"x": (dtype, [20, 20]), "w": (dtype, [20, 20])})
    program = compile_model(model, on(SMALL))
    assert not uses_matrices(program)
    x = np.arange(400).reshape(20, 20).astype(dtype) % 7
    np.testing.assert_array_equal(Runner(program)(x, x)[0], x @ x)


def test_only_adapters_with_these_units_have_such_kernels() -> None:
    model = product((1, 64, 64), (1, 64, 64))
    for units in ((), (MatrixUnit(16, 16, 16, "f16", "f16", 32),), (MatrixUnit(16, 16, 16, "f16", "f32", 16),)):
        assert not uses_matrices(compile_model(model, dataclasses.replace(on(SMALL), matrices=units)))


def test_units_of_an_adapter_are_in_the_text_only_where_it_has_them() -> None:
    plain = on(SMALL)
    card = dataclasses.replace(plain, features=plain.features | {F16, SUBGROUP_MATRIX})
    for has, here in ((False, plain), (True, card)):
        (text,) = compile_model(product((1, 64, 64), (1, 64, 64)), here).kernels[0].wgsl
        assert ("subgroupMatrixMultiplyAccumulate" in text) is has
        assert ("enable chromium_experimental_subgroup_matrix;" in text) is has


@pytest.mark.parametrize(
    ("m", "n", "tile"),
    [(1536, 3072, (192, 192)), (4096, 768, (128, 192)), (12544, 256, (64, 128)), (1576, 768, (80, 128)), (1024, 1024, (64, 128))],
)  # fmt: skip
def test_tiles_as_many_as_a_gpu_takes_at_once_are_chosen_where_they_leave_few_columns_empty(
    m: int, n: int, tile: tuple[int, int]
) -> None:
    card = dataclasses.replace(target(), max_workgroup_storage=48 << 10, tuning=())
    _, variants = tune.matmul_variants(1, m, n, 768, card, DType.FLOAT16, other=DType.FLOAT16, bits=16)
    chosen = dict(variants[0].constants)
    assert (chosen["TILE_M"], chosen["TILE_N"]) == tile


@pytest.mark.parametrize(
    "numbers",
    [(16, 16, 16, 1, 1, 3), (24, 16, 16, 1, 1), (16, 24, 16, 1, 1), (16, 16, 24, 1, 1), (32, 32, 32, 2, 3), (16, 16, 16, 0, 1),
     (16, 16, 16, 1, 1, 2, 16, 16, 16, 24), (8, 8, 8, 1, 1, 2, 8, 8, 8, 64), (16, 16, 16, 1, 1, 2, 16, 16, 16, 512)],
)  # fmt: skip
def test_a_tile_that_cannot_be_is_refused(numbers: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"MatrixTile|matrix unit"):
        MatrixTile(*numbers)


def test_a_browser_sees_that_matrices_are_within_the_memory() -> None:
    """A place in memory is `min` of what the kernel says and of the last one, which is a constant; native kernels have no `min`."""
    model = product(("b", 45, 96), ("b", 96, 100))
    tile = dataclasses.replace(on(MatrixTile(32, 64, 32, 2, 2)), features=target().features | {F16, SUBGROUP_MATRIX})
    for library in ("", "dawn"):
        program = compile_model(model, dataclasses.replace(tile, library=library))
        texts = {text for kernel in program.kernels for text in kernel.wgsl if "matrix_sum" in text}
        calls = [
            line.strip()
            for text in texts
            for line in text[text.index("fn kernel") :].split("\n")
            if re.search(r"\b(load_left|load_right\w*|put_matrix|subgroupMatrix(Load|Store))\b", line)
        ]
        assert calls
        if library:
            assert not any("subgroupMatrix" in it for it in calls)
        else:
            assert all(re.search(r"\(&matrix_memory, min\(.*, MEMORY - ", it) for it in calls), calls
