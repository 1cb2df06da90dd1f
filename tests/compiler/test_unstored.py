"""Reductions of maps that no buffer holds: every reader calculates the map for itself, and nothing of its size is stored."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.errors import UnsupportedError
from tests import targets
from tests.compiler.test_limits import largest, small
from tests.support import Runner, compile_model, make_model, specialising

BUFFER = 1 << 16
SHAPES = {
    "x": (150, 2, 1),
    "y": (1, 1, 300),
    "u": (150, 2, 1),
    "v": (1, 1, 300),
}  # 90,000 elements: a sum takes two steps
AXES = ([0, 1, 2], [0], [0, 1], [2], [1, 2], [0, 2])
TYPES = (np.float32, np.float16, np.int32, np.int64, np.int8, np.uint8)


way = targets.each(targets.OWN, targets.Way("gpu"))


def operators(dtype: type) -> list[str]:
    names = ["Sum", "Mean", "Max", "Min", "L1", "L2", "SumSquare", "LogSum"]
    return names + (["LogSumExp"] if issubclass(dtype, np.floating) else []) + ([] if dtype is np.uint8 else ["Prod"])


def model(dtype: type, axes: list[int], names: list[str], shapes: dict[str, tuple] = SHAPES) -> onnx.ModelProto:
    """Reductions of x * y + x, and the product of u * v, whose elements are 1 and -1."""
    nodes = [node("Mul", ["x", "y"], ["p"]), node("Add", ["p", "x"], ["e"])] if names != ["Prod"] else []
    nodes += [node("Mul", ["u", "v"], ["s"])] if "Prod" in names else []
    nodes += [node(f"Reduce{name}", ["s" if name == "Prod" else "e", "axes"], [name]) for name in names]
    read = "".join(it for one in nodes for it in one.input)
    inputs = {k: (dtype, list(shape)) for k, shape in shapes.items() if k in read.replace("axes", "")}
    return make_model(nodes, inputs, {"axes": np.array(axes)}, opset=18)


def feeds(dtype: type, sizes: dict[str, tuple[int, ...]] = SHAPES) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    made = {k: rng.integers(1, 4, sizes[k]) for k in "xy"}
    made |= {k: 2 * rng.integers(0, 2, sizes[k]) - 1 for k in "uv"}
    return {k: array.astype(dtype) for k, array in made.items()}


def expected(name: str, axes: list[int], dtype: type, arrays: dict[str, np.ndarray]) -> np.ndarray:
    wide = np.float64 if issubclass(dtype, np.floating) else np.int64
    x, y, u, v = (arrays[k].astype(wide) for k in "xyuv")
    e, over = x * y + x, {"axis": tuple(axes), "keepdims": True}
    with np.errstate(over="ignore"):
        found = {
            "Sum": lambda: e.sum(**over),
            "Mean": lambda: e.mean(**over),
            "Max": lambda: e.max(**over),
            "Min": lambda: e.min(**over),
            "L1": lambda: e.sum(**over),
            "L2": lambda: np.sqrt((e * e).sum(**over)),
            "SumSquare": lambda: (e * e).sum(**over),
            "LogSum": lambda: np.log(e.sum(**over)),
            "LogSumExp": lambda: np.log(np.exp(e).sum(**over)),
            "Prod": lambda: (u * v).prod(**over),
        }[name]()
        limits = (
            np.iinfo(dtype) if wide is np.int64 else np.finfo(dtype)
        )  # integers that do not fit are the nearest that do
        return (found.clip(limits.min, limits.max) if wide is np.int64 else found).astype(wide).astype(dtype)


@pytest.mark.costly
@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_a_map_with_every_reduction_as_a_reader(dtype: type, axes: list[int]) -> None:
    names, arrays = operators(dtype), feeds(dtype)
    program = compile_model(model(dtype, axes, names), small(BUFFER))
    assert largest(program) <= BUFFER
    results = Runner(program)(*(arrays[k] for k in ("xyuv" if "Prod" in names else "xy")))
    for name, got in zip(names, results, strict=True):
        want = expected(name, axes, dtype, arrays)
        assert got.shape == want.shape
        tolerance = {np.float32: 1e-5, np.float16: 1e-3}.get(dtype, 0)
        np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=tolerance, err_msg=name)


@pytest.mark.costly
@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_a_map_with_one_reader(dtype: type, axes: list[int]) -> None:
    for name in operators(dtype):
        assert largest(compile_model(model(dtype, axes, [name]), small(BUFFER))) <= BUFFER, name


@pytest.mark.costly
def test_all_axes_of_sizes_that_only_a_run_knows() -> None:
    shapes = {"x": ("a", 2, 1), "y": (1, 1, "b")}
    run = specialising(model(np.float32, [0, 1, 2], ["Mean", "LogSumExp"], shapes), small(BUFFER))
    for a, b in ((3, 4), (150, 301)):
        arrays = feeds(np.float32, {"x": (a, 2, 1), "y": (1, 1, b), "u": (1, 1, 1), "v": (1, 1, 1)})
        for name, got in zip(("Mean", "LogSumExp"), run(arrays["x"], arrays["y"]), strict=True):
            np.testing.assert_allclose(got, expected(name, [0, 1, 2], np.float32, arrays), rtol=1e-5)


@pytest.mark.costly
@pytest.mark.parametrize("axes", ([0, 1, 2], [0, 1], [2]), ids=str)
def test_maps_that_cost_much_are_calculated_where_they_are_read_too(axes: list[int]) -> None:
    nodes = [node("Mul", ["x", "y"], ["p"])]
    for k, operator in enumerate(("Tanh", "Erf", "Softplus", "Cos", "Sigmoid")):
        nodes.append(node(operator, [nodes[-1].output[0]], [f"t{k}"]))
    nodes.append(node("ReduceMean", [nodes[-1].output[0], "axes"], ["z"]))
    inputs = {k: (np.float32, list(SHAPES[k])) for k in "xy"}
    program = compile_model(make_model(nodes, inputs, {"axes": np.array(axes)}), small(BUFFER))
    assert largest(program) <= BUFFER
    rng = np.random.default_rng(6)
    x, y = (rng.standard_normal(SHAPES[k]).astype(np.float32) for k in "xy")
    erf = np.vectorize(__import__("math").erf)
    e = np.cos(np.log1p(np.exp(erf(np.tanh(x.astype(float) * y)))))
    want = (1 / (1 + np.exp(-e))).mean(tuple(axes), keepdims=True)
    (z,) = Runner(program)(x, y)
    np.testing.assert_allclose(z, want, rtol=1e-5)


def test_what_somebody_looks_at_is_stored_and_refused() -> None:
    seen = model(np.float32, [0, 1, 2], ["Mean"])
    seen.graph.output.append(onnx.ValueInfoProto(name="e"))
    with pytest.raises(UnsupportedError, match=r"\[150, 2, 300\] takes 360000 bytes"):
        compile_model(seen, small(BUFFER))
