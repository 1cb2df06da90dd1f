"""Rows that a model lets a product round to 8 bits (`accuracy_level` 4), on adapters with a dot product of bytes."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from onnxruntime_ep_wgpu.compiler.compile import compile_graph
from onnxruntime_ep_wgpu.compiler.tune import use
from onnxruntime_ep_wgpu.compiler.tune.products import DotTile, PackedRows
from onnxruntime_ep_wgpu.device import adapters
from onnxruntime_ep_wgpu.fields import settings_from
from onnxruntime_ep_wgpu.options import parse
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.program.settings import CompileSettings
from onnxruntime_ep_wgpu.program.target import INTEGER_DOTS
from onnxruntime_ep_wgpu.program.tuning import Choice
from tests import targets
from tests.ops.test_blocks import Weights, activations
from tests.support import Runner, compile_model

GPU = targets.Way("gpu")
EVERY_KIND = [
    Weights(k, n, bits, block, zeros, dtype, bias=bias)
    for k, n, bits, block, zeros, dtype, bias in (
        (256, 33, 4, 32, "", np.float32, True),
        (96, 8, 4, 16, "packed", np.float32, False),
        (1024, 40, 4, 128, "packed", np.float16, True),
        (160, 12, 2, 32, "", np.float16, False),
        (512, 20, 2, 16, "packed", np.float32, True),
        (320, 24, 8, 32, "", np.float32, False),
        (2080, 36, 4, 32, "", np.float32, False),
        (100, 9, 4, 32, "packed", np.float32, False),
    )
]  # fmt: skip


def rounds(program: Program) -> bool:
    found = any("dot4I8Packed" in text for kernel in program.kernels for text in kernel.wgsl)
    assert any(kernel.label.endswith("(activations of 8 bits)") for kernel in program.kernels) == found
    return found


def made(
    weights: Weights, rows: int | str = 1, level: int = 4, *, dots: bool = True, tuning: tuple[Choice, ...] = ()
) -> Program:
    here = targets.device(GPU).target
    features = here.features | {INTEGER_DOTS} if dots else here.features - {INTEGER_DOTS}
    return compile_model(
        weights.model([rows, weights.k], accuracy_level=level), replace(here, features=features, tuning=tuning)
    )


def rounded(a: np.ndarray, run: int) -> Any:
    """Rows whose runs are whole numbers of a 127th of their largest magnitude."""
    flat = np.pad(a.astype(np.float64).reshape(-1), (0, -a.size % run))
    parts = flat.reshape(-1, run)
    step = np.abs(parts).max(1, keepdims=True) / 127
    return (np.rint(parts / np.where(step == 0, 1, step)) * step).reshape(-1)[: a.size].reshape(a.shape)


@pytest.mark.costly
@pytest.mark.parametrize("weights", EVERY_KIND, ids=lambda it: f"{it.bits}-{it.block}-{it.zeros or 'middle'}")
def test_bytes_are_multiplied_as_they_are(weights: Weights) -> None:
    """What is left is the rounding of rows, and where a value lies in the middle between two steps."""
    program = made(weights)
    assert rounds(program)
    a = activations(1, weights.k, dtype=weights.dtype)
    (y,) = Runner(program)(a)
    arrays = weights.arrays()
    real, bias = arrays["real"], arrays.get("c", np.zeros(weights.n))
    want = rounded(a, 32 // weights.bits) @ real + bias
    scale = np.abs(rounded(a, 32 // weights.bits)) @ np.abs(real)
    assert (np.abs(y - want) <= (2e-3 if weights.dtype == np.float16 else 2e-5) * scale).all()
    exact = a.astype(np.float64) @ real + bias
    error = np.sqrt(np.square(y - exact).mean() / np.square(exact - bias).mean())
    assert 1e-4 < error < 1e-2


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_only_where_the_model_says_so(level: int) -> None:
    assert not rounds(made(EVERY_KIND[0], level=level))


def test_the_option_keeps_them_as_they_are() -> None:
    settings = settings_from(CompileSettings, parse({"enableInt8Activations": "0"}).values)
    weights = EVERY_KIND[0]
    module = ir.from_proto(weights.model([1, weights.k], accuracy_level=4))
    here = targets.device(GPU).target
    assert INTEGER_DOTS in here.features
    kept, rounding = (
        compile_graph(module.graph, module.opset_imports, here, "", it) for it in (settings, CompileSettings())
    )
    assert [rounds(kept), rounds(rounding)] == [False, True]


def test_only_where_bytes_are_multiplied_at_once() -> None:
    assert not rounds(made(EVERY_KIND[0], dots=False))


@pytest.mark.costly
@pytest.mark.parametrize(
    "weights",
    [
        Weights(256, 9, 8, 32, "packed"),  # less their zero points they take 9 bits
        Weights(256, 9, 4, 32, "float"),
        Weights(256, 9, 3, 32),
        Weights(256, 9, 4, 32, order=True),
    ],
    ids=["8 bits with zeros", "zeros of floats", "3 bits", "groups looked up"],
)
def test_what_is_no_byte_is_multiplied_as_numbers(weights: Weights) -> None:
    program = made(weights)
    assert not rounds(program)
    a = activations(1, weights.k)
    np.testing.assert_allclose(Runner(program)(a)[0], a @ weights.arrays()["real"], rtol=1e-4, atol=1e-4)


TILED = [
    Weights(256, 200, 4, 32, "", np.float32, bias=True),
    Weights(96, 136, 4, 128, "packed", np.float16),
    Weights(128, 130, 2, 32, "packed", np.float32, bias=True),
    Weights(64, 132, 2, 64, "", np.float16),
]


@pytest.mark.costly
@pytest.mark.parametrize(
    "tile", [DotTile(64, 128, 8, 8), DotTile(128, 128, 8, 8), DotTile(64, 64, 8, 4), DotTile(64, 64, 8, 8)]
)
@pytest.mark.parametrize("weights", TILED, ids=lambda it: f"{it.bits}-{it.block}-{it.zeros or 'middle'}")
def test_tiles_round_every_32_columns(weights: Weights, tile: DotTile) -> None:
    run = Runner(made(weights, "rows", tuning=(use(tile),)))
    arrays = weights.arrays()
    real, bias = arrays["real"], arrays.get("c", np.zeros(weights.n))
    for rows in (129, 150):  # fewer are taken eight at a time
        a = activations(rows, weights.k, dtype=weights.dtype)
        a[0] *= 1000
        (y,) = run(a)
        scale = np.abs(rounded(a, 32)) @ np.abs(real)
        error = np.abs(y - (rounded(a, 32) @ real + bias))
        assert (error <= (2e-3 if weights.dtype == np.float16 else 2e-5) * scale).all()
        assert (y != (a @ real + bias).astype(weights.dtype)).mean() > 0.5


@pytest.mark.costly
@pytest.mark.parametrize(("k", "n"), [(33, 7), (130, 9), (257, 5), (96, 1), (64, 1)])
@pytest.mark.parametrize("rows", ["rows", 3000])
def test_weights_that_are_no_runs_have_no_tiles_of_bytes(k: int, n: int, rows: int | str) -> None:
    weights = Weights(k, n)
    program = made(weights, rows)
    a = activations(3000, k)
    np.testing.assert_allclose(Runner(program)(a)[0], a @ weights.arrays()["real"], rtol=1e-4, atol=2e-4)


@pytest.mark.costly
@pytest.mark.parametrize("words", [1, 2, 4])
@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("tile", [DotTile(64, 64, 8, 4), DotTile(32, 32, 4, 4), DotTile(64, 128, 8, 8)])
def test_tiles_unpack_as_many_together_as_rows_do(tile: DotTile, bits: int, words: int) -> None:
    weights = Weights(256, 70, bits, 32)
    rows = PackedRows(1, 64, 1, 1, words, dots=1)
    a = activations(131, 256)
    (y,) = Runner(made(weights, "rows", tuning=(use(rows), use(tile))))(a)
    want = a @ weights.arrays()["real"]
    assert np.sqrt(np.square(y - want).mean() / np.square(want).mean()) < 1e-2


def test_what_is_not_finite_stays_in_its_row_of_a_tile() -> None:
    weights = TILED[0]
    a = activations(140, weights.k)
    a[5, 17], a[70, 255], a[71, 0] = np.nan, np.inf, -np.inf
    (y,) = Runner(made(weights, 140, tuning=(use(DotTile(64, 128, 8, 8)),)))(a)
    wrong = ~np.isfinite(y)
    assert wrong[[5, 70, 71]].all() and wrong.sum() == 3 * weights.n


def test_shipped_tiles_are_for_many_rows() -> None:
    """On a GPU few of them would leave it idle."""
    few, many = made(Weights(256, 2048), 100), made(Weights(256, 2048), 1024)
    assert [rounds(it) for it in (few, many)] == [False, True]


def test_more_rows_are_multiplied_as_numbers() -> None:
    """Of one program, whose runs decide how many there are."""
    weights = EVERY_KIND[0]
    program = made(weights, "rows")
    run = Runner(program)
    assert rounds(program)
    arrays = weights.arrays()
    for rows in (0, 1, 2, 9, 70, 150):
        a = activations(rows, weights.k)
        (y,) = run(a)
        exact = a.astype(np.float64) @ arrays["real"] + arrays["c"]
        np.testing.assert_allclose(y, exact, rtol=1e-4, atol=0.2 if rows == 1 else 1e-3)


@pytest.mark.parametrize("value", [0.0, 1e-38, 1e-34, 1e-32, 1e-31, 1e-30, 1e-27, 1e30, 3e38, np.inf, -np.inf, np.nan])
def test_runs_of_any_magnitude(value: float) -> None:
    """A run of zeros, and what would be lost in it; what is not finite is not lost, and is nowhere else."""
    weights = Weights(64, 8, 4, 32)
    a = np.zeros((1, 64), np.float32)
    a[0, 3] = value
    (y,) = Runner(made(weights))(a)
    real = weights.arrays()["real"][3]
    if np.isfinite(value):
        want = np.clip(value * real, -3.4e38, 3.4e38)
        np.testing.assert_allclose(y[0], want, rtol=1e-4, atol=1e-37)
    else:
        assert not np.isfinite(y).any()


def test_adapters_that_multiply_bytes_are_gpus_under_vulkan() -> None:
    adapter = adapters()[0]
    for backend in ("Vulkan", "Metal", "D3D12", "OpenGL"):
        for kind in ("CPU", "DiscreteGPU", "IntegratedGPU"):
            features = replace(adapter, backend=backend, type=kind).target().features
            assert (INTEGER_DOTS in features) == (backend == "Vulkan" and kind != "CPU")


def test_a_kernel_has_no_texts_of_numbers_and_of_bytes_that_it_does_not_use() -> None:
    program = made(EVERY_KIND[0], level=0)
    assert not any(re.search(r"\w+_bytes\b", text) for kernel in program.kernels for text in kernel.wgsl)
