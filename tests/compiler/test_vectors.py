"""Kernels of maps that take four elements at a time, as GPUs do: every size, type and view, beside numpy."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import pytest
from onnx.helper import make_node as node

from tests.support import Runner, compile_model, make_model, target

F = np.float32
TYPES = [np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.uint32, np.int8, np.uint8, np.int64]


def hardware(f16: bool = True, int64: bool = True):
    lacks = {name for name, has in (("shader-f16", f16), ("shader-int64", int64)) if not has}
    return dataclasses.replace(target(), software=False, features=target().features - lacks)


def texts(program) -> list[str]:
    return [text for kernel in program.kernels for text in kernel.wgsl]


def stores_fours(program) -> bool:
    return all("fn four(" in text for text in texts(program))


def sample(shape, dtype, seed=0):
    values = np.random.default_rng(seed).integers(0, 50, shape)
    return values.astype(dtype)


@pytest.mark.costly
@pytest.mark.parametrize("f16", [True, False], ids=["f16", "packed f16"])
@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: np.dtype(t).name)
def test_every_type_and_every_tail(dtype, f16):
    """Where the number of elements is known and where it is not, in one program for all of them."""
    nodes = [node("Add", ["x", "x"], ["t"]), node("Identity", ["t"], ["y"])]
    if dtype in (np.int8, np.uint8):
        nodes = [node("Max", ["x", "c"], ["y"])]
    dynamic = Runner(compile_model(make_model(nodes, {"x": (dtype, ["n"])}, {"c": np.array(7, dtype)}), hardware(f16)))
    for size in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 255, 256, 257, 1028):
        x = sample(size, dtype)
        want = np.maximum(x, np.array(7, dtype)) if len(nodes) == 1 else x + x
        fixed = compile_model(make_model(nodes, {"x": (dtype, [size])}, {"c": np.array(7, dtype)}), hardware(f16))
        for run in (dynamic, Runner(fixed)):
            np.testing.assert_array_equal(run(x)[0], want)
        if size and dtype is not np.int64:
            assert stores_fours(fixed) == (size % 4 == 0)


@pytest.mark.costly
@pytest.mark.parametrize("count", [1 << 18, (1 << 18) + 1, 1 << 22, (1 << 22) + 3, (1 << 22) + 4])
def test_large_tensors_are_whole_whatever_a_workgroup_makes_of_them(count):
    model = make_model([node("Neg", ["x"], ["y"])], {"x": (F, [count])})
    x = np.arange(count, dtype=F)
    program = compile_model(model, hardware())
    np.testing.assert_array_equal(Runner(program)(x)[0], -x)
    model = make_model([node("Neg", ["x"], ["y"])], {"x": (np.int8, [count])})
    np.testing.assert_array_equal(Runner(compile_model(model, hardware()))(x.astype(np.int8))[0], -x.astype(np.int8))


VIEWS = {
    "row": (lambda rng, s: rng.standard_normal(s[-1:]), lambda n: []),
    "column": (lambda rng, s: rng.standard_normal((s[-2], 1)), lambda n: []),
    "scalar": (lambda rng, s: rng.standard_normal(()), lambda n: []),
    "transposed": (lambda rng, s: rng.standard_normal(s[::-1]), lambda n: [node("Transpose", [n], ["v"])]),
    "backwards": (
        lambda rng, s: rng.standard_normal(s),
        lambda n: [node("Slice", [n, "last", "least", "axis", "back"], ["v"])],
    ),
    "from 4 on": (
        lambda rng, s: rng.standard_normal((*s[:-1], s[-1] + 4)),
        lambda n: [node("Slice", [n, "four", "most", "axis"], ["v"])],
    ),
    "from 1 on": (
        lambda rng, s: rng.standard_normal((*s[:-1], s[-1] + 1)),
        lambda n: [node("Slice", [n, "one", "most", "axis"], ["v"])],
    ),
}
INDICES = {"last": [-1], "least": [-(1 << 30)], "axis": [-1], "back": [-1], "four": [4], "one": [1], "most": [1 << 30]}


@pytest.mark.parametrize("shape", [(3, 5, 8), (2, 4, 12), (4, 3, 7), (1, 4, 4), (2, 2, 2)], ids=str)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "symbolic"])
def test_operands_through_every_view(view, shape, dynamic):
    make, nodes = VIEWS[view]
    rng = np.random.default_rng(0)
    x, other = rng.standard_normal(shape).astype(F), make(rng, shape).astype(F)
    chain = nodes("o")
    chain += [node("Mul", ["x", "v" if chain else "o"], ["t"]), node("Exp", ["t"], ["y"])]
    one = np.atleast_1d(other)
    seen = {"transposed": one.T, "backwards": one[..., ::-1], "from 4 on": one[..., 4:], "from 1 on": one[..., 1:]}
    dims = ["a", "b", "c"] if dynamic else shape
    kept = {"row": dims[-1:], "column": [dims[1], 1], "scalar": []}
    of = kept.get(view, dims[::-1] if view == "transposed" else [*dims[:-1], "d" if dynamic else one.shape[-1]])
    weights = {k: np.array(v) for k, v in INDICES.items()}
    program = compile_model(make_model(chain, {"x": (F, dims), "o": (F, of)}, weights), hardware())
    np.testing.assert_allclose(Runner(program)(x, other)[0], np.exp(x * seen.get(view, other)), rtol=1e-6)


TILED = [((40, 70), (1, 0)), ((33, 32), (1, 0)), ((3, 40, 37), (0, 2, 1)), ((35, 3, 64), (2, 1, 0)),
         ((64, 3, 33), (2, 0, 1)), ((2, 33, 2, 40), (0, 3, 2, 1)), ((2, 48, 5, 7), (0, 2, 3, 1))]  # fmt: skip
NOT_TILED = [((2, 3, 4, 5), (0, 2, 3, 1)), ((64, 1), (1, 0)), ((64, 4, 3), (1, 0, 2)), ((31, 64), (1, 0))]


@pytest.mark.costly
@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "symbolic"])
@pytest.mark.parametrize(
    "dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.int8, bool], ids=lambda t: t.__name__
)
@pytest.mark.parametrize(("shape", "order"), TILED + NOT_TILED, ids=str)
def test_transposes_through_a_tile(shape, order, dtype, dynamic):
    """Of every extent, with what is calculated on the way and a result before it stored too."""
    x = sample(shape, dtype)
    dims = [f"d{k}" for k in range(len(shape))] if dynamic else shape
    nodes = [node("Transpose", ["x"], ["t"], perm=order), node("Where", ["c", "t", "r"], ["y"])]
    r = sample((shape[order[-1]],), dtype, 1)
    model = make_model(nodes, {"x": (dtype, dims), "r": (dtype, [dims[order[-1]]]), "c": (bool, [])})
    model.graph.output.extend([type(model.graph.output[0])(name="t")])
    program = compile_model(model, hardware())
    if np.dtype(dtype).itemsize > 1 and dtype is not ml_dtypes.bfloat16:
        tiled = any("tile[" in text for text in texts(program))
        assert dynamic or tiled == ((shape, order) in TILED)
    for condition in (True, False):
        y, t = Runner(program)(x, r, np.array(condition))
        np.testing.assert_array_equal(t, x.transpose(order))
        np.testing.assert_array_equal(y, t if condition else np.broadcast_to(r, t.shape))


@pytest.mark.parametrize("int64", [True, False], ids=["native", "pairs"])
def test_64_bit_integers_among_vectors_are_calculated_one_by_one(int64):
    nodes = [node("Cast", ["x"], ["i"], to=7), node("Add", ["i", "k"], ["j"]), node("Cast", ["j"], ["f"], to=1),
             node("Mul", ["f", "x"], ["y"]), node("Greater", ["j", "k"], ["g"])]  # fmt: skip
    k = np.array([1 << 33, 5, -7, 1], np.int64)
    model = make_model(nodes, {"x": (F, [3, 4])}, {"k": k})
    model.graph.output.extend([type(model.graph.output[0])(name="j")])
    x = np.arange(-6, 6, dtype=F).reshape(3, 4)
    out = Runner(compile_model(model, hardware(int64=int64)))(x)
    j = x.astype(np.int64) + k
    for got, want in zip(out, (j.astype(F) * x, j > k, j), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0])
def test_special_values_in_any_of_the_four(value):
    nodes = [node("Max", ["x", "z"], ["a"]), node("Where", ["c", "a", "x"], ["b"]), node("Neg", ["b"], ["y"])]
    x = np.where(np.eye(8), F(value), F(-1)).astype(F)
    c = np.arange(64).reshape(8, 8) % 3 == 0
    program = compile_model(make_model(nodes, {"x": (F, [8, 8]), "z": (F, [8]), "c": (bool, [8, 8])}), hardware())
    z = np.linspace(-2, 2, 8, dtype=F)
    np.testing.assert_array_equal(Runner(program)(x, z, c)[0], -np.where(c, np.maximum(x, z), x))


@pytest.mark.costly
@pytest.mark.parametrize("columns", [64, 36, 30, 3])
@pytest.mark.parametrize("last", ["uint8", "int8", "float16", "bfloat16", "bool", "int64"])
def test_products_store_narrow_results_where_they_store_fours(last, columns):
    """In one kernel where a row is whole fours, else in two."""
    rng = np.random.default_rng(0)
    x, w, r = (
        rng.standard_normal((37, 24)).astype(F),
        rng.standard_normal((24, columns)).astype(F),
        sample((columns,), F),
    )
    kinds = {"float16": 10, "bfloat16": 16, "bool": 9, "int64": 7}
    ends = {
        "uint8": [node("QuantizeLinear", ["a", "scale", "zero"], ["y"])],
        "int8": [node("QuantizeLinear", ["a", "scale", "low"], ["y"])],
    }
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "r"], ["a"])]
    nodes += ends.get(last) or [node("Cast", ["a"], ["y"], to=kinds[last])]
    weights = {"w": w, "r": r, "scale": np.array(0.25, F), "zero": np.array(9, np.uint8), "low": np.array(-3, np.int8)}
    program = compile_model(make_model(nodes, {"x": (F, [37, 24])}, weights), hardware(f16=False))
    assert len(program.dispatches) == (1 if columns % 4 == 0 or last == "int64" else 2)
    (got,) = Runner(program)(x)
    a = x.astype(np.float64) @ w.astype(np.float64) + r
    if last in ends:
        zero, low, high = (9, 0, 255) if last == "uint8" else (-3, -128, 127)
        want = np.clip(np.rint(a / 0.25) + zero, low, high)
        sure = abs(a / 0.25 - np.floor(a / 0.25) - 0.5) > 1e-3
        np.testing.assert_array_equal(got[sure], want[sure])
    elif last in ("float16", "bfloat16"):
        np.testing.assert_allclose(got.astype(np.float64), a, rtol=2e-3 if last == "float16" else 1e-2, atol=1e-3)
    else:
        sure = abs(a - np.rint(a)) > 1e-3
        np.testing.assert_array_equal(got[sure], a.astype(np.bool_ if last == "bool" else np.int64)[sure])
