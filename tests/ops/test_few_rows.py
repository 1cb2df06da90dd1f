"""Products of few rows, which have a kernel of their own on GPUs: rows, tails, layouts, types and special values."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node

from tests.support import Runner, compile_model, make_model, target

F = np.float32


def random(*shape: int, dtype: type = F) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    return rng.integers(-3, 4, shape).astype(dtype)


def kernels(model: onnx.ModelProto) -> set[str]:
    """Which algorithms the variants of the product are."""
    texts = [text for kernel in compile_model(model).kernels for text in kernel.wgsl]
    return {"rows" if "fn b_part(batch: u32, k: u32, n: u32, e" in text else "tiles" for text in texts}


def gemm(k: int, n: int, transposed: bool, rows: int | str, dtype: type = F) -> onnx.ModelProto:
    """relu(a b + c)"""
    nodes = [node("Gemm", ["a", "b", "c"], ["g"], transB=int(transposed)), node("Relu", ["g"], ["y"])]
    return make_model(
        nodes,
        {"a": (dtype, [rows, k])},
        {"b": random(*((n, k) if transposed else (k, n)), dtype=dtype), "c": random(n, dtype=dtype)},
    )


@pytest.mark.costly
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("transposed", [False, True])
def test_rows_and_tails(transposed: bool, dtype: type) -> None:
    for rows, k, n in ((1, 256, 64), (2, 259, 33), (3, 300, 70), (7, 512, 4), (8, 256, 5)):
        a, b, c = (
            random(rows, k, dtype=dtype),
            random(*((n, k) if transposed else (k, n)), dtype=dtype),
            random(n, dtype=dtype),
        )
        (y,) = Runner(compile_model(gemm(k, n, transposed, rows, dtype)))(a)
        exact = a.astype(np.int64) @ (b.T if transposed else b).astype(np.int64) + c.astype(np.int64)
        np.testing.assert_array_equal(y, np.maximum(exact, 0).astype(dtype), f"{rows} x {k} x {n}")


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_integers_by_a_transposed_operand(dtype: type) -> None:
    """Their sums are not those of subgroups, which are of floats."""
    a, b = random(1, 300).astype(dtype), random(24, 300).astype(dtype)
    nodes = [node("Transpose", ["b"], ["t"], perm=[1, 0]), node("MatMul", ["a", "t"], ["y"])]
    model = make_model(nodes, {"a": (dtype, [1, 300]), "b": (dtype, [24, 300])})
    np.testing.assert_array_equal(Runner(compile_model(model))(a, b)[0], a @ b.T)


@pytest.mark.costly
def test_a_number_of_rows_that_is_known_in_a_run_chooses_the_kernel() -> None:
    model = gemm(260, 36, False, "rows")
    runner = Runner(compile_model(model))
    for rows in (1, 9, 4, 0, 8, 5):
        a = random(rows, 260)
        np.testing.assert_array_equal(runner(a)[0], np.maximum(a @ random(260, 36) + random(36), 0))


@pytest.mark.costly
def test_a_batch_of_rows_and_integers() -> None:
    for dtype in (np.float32, np.int32):
        a, b = random(3, 2, 270, dtype=dtype), random(3, 270, 40, dtype=dtype)
        model = make_model([node("MatMul", ["a", "b"], ["y"])], {"a": (dtype, [3, 2, 270]), "b": (dtype, [3, 270, 40])})
        np.testing.assert_array_equal(Runner(compile_model(model))(a, b)[0], a @ b)


@pytest.mark.costly
@pytest.mark.parametrize("transposed", [False, True])
def test_what_lies_behind_a_row_is_not_read_as_a_part_of_it(transposed: bool) -> None:
    """Sums end with k: an infinity or NaN in another row or column stays there."""
    k, n = 258, 12
    a, b = np.ones((2, k), F), np.ones((n, k) if transposed else (k, n), F)
    a[1] = np.inf
    (b if transposed else b.T)[5] = np.nan
    nodes = [node("Gemm", ["a", "b"], ["y"], transB=int(transposed))]
    model = make_model(nodes, {"a": (F, [2, k]), "b": (F, list(b.shape))})
    (y,) = Runner(compile_model(model))(a, b)
    wanted = np.array([np.full(n, k, F), np.full(n, np.inf, F)])
    wanted[:, 5] = np.nan
    np.testing.assert_array_equal(y, wanted)


def test_who_takes_the_kernel() -> None:
    if target().software:
        assert kernels(gemm(256, 64, False, 1)) == {"tiles"}
        return
    assert kernels(gemm(256, 64, False, 1)) == kernels(gemm(256, 64, True, 1)) == {"rows"}
    assert kernels(gemm(256, 64, False, 5)) == {"tiles"}
    assert kernels(gemm(64, 64, False, 1)) == {"tiles"}, "too short to be split"
    assert kernels(gemm(256, 64, False, "rows")) == {"rows", "tiles"}
