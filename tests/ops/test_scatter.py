"""Elements gathered and scattered by index: duplicates, reductions, indices from the end, every element type."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from onnxruntime_ep_wgpu.program.layout import Layouts
from onnxruntime_ep_wgpu.program.program import Storage
from tests import support

from .compare import both_ways, check, check_model, expected, model, random

TYPES = [np.float32, np.float16, np.int8, np.int32, np.int64, np.uint8, np.uint64, np.bool_]
REDUCTIONS = ["add", "mul", "min", "max"]


def _indices(*shape: int, low: int, high: int) -> np.ndarray:
    return np.random.default_rng(1).integers(low, high, shape)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_gather_elements(axis: int, kind: type) -> None:
    x = random(4, 5, 6)
    extent = x.shape[axis]
    indices = _indices(4, 5, 6, low=-extent, high=extent).astype(kind)
    check("GatherElements", x, indices, axis=axis)
    check("GatherElements", x, np.ascontiguousarray(indices[:2, :3, :4]), axis=axis)


@pytest.mark.parametrize(("dtype", "int64"), both_ways(TYPES))
def test_gather_elements_types(dtype: type, int64: str) -> None:
    check("GatherElements", random(3, 5, dtype=dtype), _indices(3, 9, low=-5, high=5), axis=1, int64=int64)


def test_gather_elements_of_nothing() -> None:
    check("GatherElements", random(3, 5), np.zeros((3, 0), np.int64), axis=1)


def test_gathering_never_reads_outside() -> None:
    x, wild = random(3, 5), np.array([[99, -99], [5, -6], [2**40, -(2**40)]])
    for op in ("GatherElements", "GatherND"):
        result = support.run_model(model(op, [x, wild], **({"axis": 1} if op == "GatherElements" else {})), x, wild)[0]
        assert np.isin(result, x).all()


@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize("depth", [1, 2])
def test_gather_nd(batch: int, depth: int) -> None:
    x = random(3, 4, 5, 6, 2)
    indices = _indices(*x.shape[:batch], 7, depth, low=-3, high=3)
    check("GatherND", x, indices, batch_dims=batch)


@pytest.mark.parametrize(("dtype", "int64"), both_ways(TYPES))
def test_gather_nd_types(dtype: type, int64: str) -> None:
    check("GatherND", random(3, 5, dtype=dtype), _indices(4, 2, low=-3, high=3), int64=int64)


def _distinct(*shape: int, axis: int, extent: int) -> np.ndarray:
    wide = (*shape[:axis], extent, *shape[axis + 1 :])
    order = np.argsort(np.random.default_rng(2).random(wide), axis)
    return np.ascontiguousarray(np.take(order, range(shape[axis]), axis)) - extent * (order.take(0, axis).flat[0] % 2)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(3, 4, 5), (2, 3, 4)])
def test_scatter_elements(axis: int, shape: tuple[int, ...]) -> None:
    x = random(3, 4, 5)
    indices = _distinct(*shape, axis=axis, extent=x.shape[axis])
    check("ScatterElements", x, indices, random(*shape, seed=3), axis=axis, opset=18)


@pytest.mark.parametrize(("dtype", "int64"), both_ways(TYPES))
def test_scatter_elements_types(dtype: type, int64: str) -> None:
    indices = _distinct(3, 4, axis=1, extent=7)
    updates = random(3, 4, dtype=dtype, seed=3)
    check("ScatterElements", random(3, 7, dtype=dtype), indices, updates, axis=1, opset=18, int64=int64)


@pytest.mark.costly
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(("dtype", "int64"), both_ways([np.float32, np.int8, np.int32, np.int64, np.uint8, np.uint64]))
def test_scatter_with_duplicates_reduces_in_the_order_of_the_updates(reduction: str, dtype: type, int64: str) -> None:
    x = random(3, 5, 7, dtype=dtype)
    along = _indices(3, 9, 7, low=0 if dtype in (np.uint8, np.uint64) else -5, high=5)
    updates = random(3, 9, 7, dtype=dtype, seed=3)
    check("ScatterElements", x, along, updates, axis=1, reduction=reduction, opset=18, int64=int64, rtol=1e-4)
    vectors = _indices(17, 2, low=-3, high=3)
    slices = random(17, 7, dtype=dtype, seed=4)
    check("ScatterND", x, vectors, slices, reduction=reduction, opset=18, int64=int64, rtol=1e-4)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize(("dtype", "int64"), both_ways(TYPES))
def test_scatter_nd_types(depth: int, dtype: type, int64: str) -> None:
    x = random(3, 4, 5, dtype=dtype)
    extents = x.shape[:depth]
    flat = np.random.default_rng(5).permutation(int(np.prod(extents)))[:3]
    indices = np.stack(np.unravel_index(flat, extents), -1).reshape(1, 3, depth)
    indices[0, 1] -= np.array(extents)
    check("ScatterND", x, indices, random(1, 3, *x.shape[depth:], dtype=dtype, seed=3), opset=18, int64=int64)


@pytest.mark.costly
@pytest.mark.parametrize("reduction", ["none", "add", "max"])
@pytest.mark.parametrize("updates", [0, 1, 3])
def test_scatter_nd_of_no_indices_is_about_all_of_the_data(updates: int, reduction: str) -> None:
    indices = np.zeros((updates, 0), np.int64)
    for symbolic in (False, True):
        new = random(updates, 3, 4, seed=1)
        check("ScatterND", random(3, 4), indices, new, reduction=reduction, opset=18, symbolic=symbolic)


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_scatter_nd_where_only_the_updates_tell_how_many_indices_there_are(depth: int) -> None:
    indices, x = np.array([[1, 2], [0, 3]])[:, :depth], random(3, 4)
    check("ScatterND", x, indices, random(2, *x.shape[depth:], seed=1), opset=18, symbolic=True)


def test_scatter_nd_of_more_slices_than_a_workgroup_owns() -> None:
    indices = np.random.default_rng(0).permutation(3000)[:2500].reshape(-1, 1)
    check("ScatterND", random(3000, 2), indices, random(2500, 2, seed=1), opset=18)


@pytest.mark.costly
@pytest.mark.parametrize("op", ["ScatterND", "ScatterElements"])
def test_the_last_of_many_updates_is_found_in_linear_time(op: str) -> None:
    """One invocation for each update and element, and none that loops over them."""
    invocations = {}
    for count in (1000, 100_000):
        indices = np.random.default_rng(0).integers(0, count, count)
        x, updates = np.zeros(count, np.float32), np.arange(count, dtype=np.float32)
        places = indices[:, None] if op == "ScatterND" else indices
        program = support.compile_model(model(op, [x, places, updates]))
        want = x.copy()
        want[indices] = updates
        np.testing.assert_array_equal(support.Runner(program)(x, places, updates)[0], want)
        layout = Layouts(program).layout(())
        (last,) = [it for it in program.kernels if it.label == "scatter_last"]
        assert not any(loop in text for text in last.wgsl for loop in ("for (", "while (", "loop {"))
        invocations[count] = sum(math.prod(step.grid) for step in layout.steps)
    assert invocations[100_000] <= 101 * invocations[1000]


def test_of_duplicates_without_a_reduction_the_last_stays() -> None:
    x, updates = random(5, 2), random(4, 2, seed=1)
    got = support.run_model(
        model("ScatterND", [x, np.array([[1], [3], [1], [1]]), updates]), x, np.array([[1], [3], [1], [1]]), updates
    )
    want = x.copy()
    want[[3, 1]] = updates[[1, 3]]
    np.testing.assert_array_equal(got[0], want)


def test_updates_outside_are_left_out() -> None:
    x, updates, wild = random(4, 2), random(3, 2, seed=1), np.array([[99], [2], [-99]])
    got = support.run_model(model("ScatterND", [x, wild, updates]), x, wild, updates)
    want = x.copy()
    want[2] = updates[1]
    np.testing.assert_array_equal(got[0], want)


def test_scatter_of_no_updates() -> None:
    check("ScatterND", random(4, 2), np.zeros((0, 1), np.int64), np.zeros((0, 2), np.float32), opset=18)
    check("ScatterElements", random(4, 2), np.zeros((0, 2), np.int64), np.zeros((0, 2), np.float32), opset=18)


@pytest.mark.parametrize("values", [[2.0, 7.0], [0, 1]])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(values: list, axis: int) -> None:
    dtype = np.float32 if isinstance(values[0], float) else np.int64
    indices = np.array([[1, -1, 7], [3, -5, 0]])
    check("OneHot", indices, np.array(5), np.array(values, dtype), constants=[1], outputs=[dtype], axis=axis)
    check("OneHot", indices.astype(np.float32), np.array(5.0, np.float32), np.array(values, dtype), constants=[1], outputs=[dtype],
          axis=axis, want=None if dtype is np.float32 else support.run_model(
              model("OneHot", [indices, np.array(5), np.array(values, dtype)], constants=[1], outputs=[dtype], axis=axis),
              indices, np.array(values, dtype)))  # fmt: skip


@pytest.mark.parametrize(("dtype", "int64"), both_ways(TYPES))
def test_reverse_sequence(dtype: type, int64: str) -> None:
    lengths = np.array([1, 4, 2])
    check("ReverseSequence", random(4, 3, 5, dtype=dtype), lengths, int64=int64)
    check("ReverseSequence", random(3, 4, 5, dtype=dtype), lengths, batch_axis=0, time_axis=1, int64=int64)


@pytest.mark.parametrize("k", [-2, 0, 1, 9])
def test_eye_like(k: int) -> None:
    check("EyeLike", random(4, 6), k=k)
    check("EyeLike", random(4, 6), k=k, dtype=7, outputs=[np.int64])


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_compress_by_a_constant_condition(axis: int | None) -> None:
    how = {} if axis is None else {"axis": axis}
    check("Compress", random(3, 4, 5), np.array([True, False, True]), constants=[1], **how)


def test_tensor_scatter_writes_past_the_end_only_in_a_circle() -> None:
    past, update, starts = random(2, 3, 6, 4), random(2, 3, 4, 4, seed=1), np.array([1, 4])
    circular = past.copy()
    for k in range(4):
        for image, start in enumerate(starts):
            circular[image, :, (start + k) % 6] = update[image, :, k]
    check("TensorScatter", past, update, starts, mode="circular", opset=24, want=[circular])


def test_max_unpool() -> None:
    at = np.array([[[[5, 7], [13, 15]]]])
    check("MaxUnpool", random(1, 1, 2, 2), at, kernel_shape=[2, 2], strides=[2, 2])


def test_max_unpool_into_a_larger_result_follows_the_reference_and_not_the_cpu_provider() -> None:
    """As `docs/conformance.md` says."""
    x, at, shape = random(1, 1, 2, 2), np.array([[[[5, 7], [13, 15]]]]), np.array([1, 1, 5, 5])
    built = model("MaxUnpool", [x, at, shape], kernel_shape=[2, 2], strides=[2, 2])
    (want,) = ReferenceEvaluator(built).run(None, {"x0": x, "x1": at, "x2": shape})
    check_model(built, [x, at, shape], want=[want])
    assert not np.array_equal(expected(built, {"x0": x, "x1": at, "x2": shape})[0], want)


COMBINE = {"none": None, "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def _scattered(x: np.ndarray, indices: np.ndarray, updates: np.ndarray, axis: int, reduction: str) -> np.ndarray:
    """One update after the other, each rounded; those outside are left out."""
    want, extent = x.copy(), x.shape[axis]
    for at in np.ndindex(indices.shape):
        k = indices[at] + extent * (indices[at] < 0)
        if 0 <= k < extent:
            place = (*at[:axis], k, *at[axis + 1 :])
            combine = COMBINE[reduction]
            want[place] = updates[at] if combine is None else combine(want[place], updates[at])
    return want


@pytest.mark.costly
@pytest.mark.parametrize("reduction", COMBINE)
@pytest.mark.parametrize(("dtype", "int64"), both_ways([np.float32, np.int64, np.uint8]))
def test_many_updates_of_one_element_are_taken_in_their_order(reduction: str, dtype: type, int64: str) -> None:
    """Exactly, whatever the number of updates and the place of the axis; lines may be fewer than those of the data."""
    rng = np.random.default_rng(12)
    for axis in (0, 1, 2):
        for count in (64, 65, 300):
            x = random(3, 4, 5, dtype=dtype, seed=axis)
            shape = [int(rng.integers(2, n + 1)) if k != axis else count for k, n in enumerate(x.shape)]
            indices = rng.integers(-x.shape[axis] - 1, x.shape[axis] + 1, shape)
            updates = random(*shape, dtype=dtype, seed=3)
            want = _scattered(x, indices, updates, axis, reduction)
            built = model("ScatterElements", [x, indices, updates], axis=axis, reduction=reduction, opset=18)
            free = model(
                "ScatterElements", [x, indices, updates], symbolic=True, axis=axis, reduction=reduction, opset=18
            )
            for it in (built, free):
                runner = support.Runner(support.compile_model(it, support.device(int64).target))
                first, again = (runner(x, indices, updates)[0] for _ in range(2))
                np.testing.assert_array_equal(first, want, f"axis {axis}, {count} updates")
                np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
@pytest.mark.parametrize("reduction", COMBINE)
@pytest.mark.parametrize("counts", [(40, 3), (4000, 700), (700, 4000), (20_000, 9000)])
def test_messages_between_the_nodes_of_a_graph(op: str, reduction: str, counts: tuple[int, int]) -> None:
    """One index per update, which is a vector: expanded for ScatterElements, and sorted once."""
    nodes, edges = counts
    rng = np.random.default_rng(edges)
    x, u, to = random(nodes, 6), random(edges, 6, seed=1), rng.integers(0, nodes, edges)
    more = [helper.make_node("Shape", ["u"], ["s"]), helper.make_node("Expand", ["k", "s"], ["i"])]
    how = {"reduction": reduction} | ({"axis": 0} if op == "ScatterElements" else {})
    graph = [
        helper.make_node("Unsqueeze", ["to", "one"], ["k"]),
        *(more if op == "ScatterElements" else []),
        helper.make_node(op, ["x", "i" if op == "ScatterElements" else "k", "u"], ["y"], **how),
    ]
    built = support.make_model(
        graph,
        {"x": (np.float32, ["n", 6]), "to": (np.int64, ["m"]), "u": (np.float32, ["m", 6])},
        {"one": np.array([1])},
    )
    want = x.copy()
    if reduction == "none":
        last = {int(k): number for number, k in enumerate(to)}
        want[list(last)] = u[list(last.values())]
    else:
        COMBINE[reduction].at(want, to, u)
    np.testing.assert_array_equal(support.run_model(built, x, to, u)[0], want)


def test_an_index_that_all_columns_share_is_sorted_once() -> None:
    x, u, to = random(9, 600), random(100, 600, seed=1), np.arange(100).reshape(100, 1) % 9
    graph = [
        helper.make_node("Expand", ["to", "shape"], ["i"]),
        helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], axis=0, reduction="add"),
    ]
    inputs = {"x": (np.float32, [9, 600]), "to": (np.int64, [100, 1]), "u": (np.float32, [100, 600])}
    program = support.compile_model(support.make_model(graph, inputs, {"shape": np.array([100, 600])}))
    want = x.copy()
    np.add.at(want, to[:, 0], u)
    np.testing.assert_array_equal(support.Runner(program)(x, to, u)[0], want)
    between = [value.shape for value in program.values if value.storage is Storage.TEMP]
    assert between and all(math.prod(map(int, shape)) <= 100 for shape in between)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
@pytest.mark.parametrize("reduction", ["add", "mul"])
def test_sums_and_products_that_leave_their_type_wrap_before_the_next_node(
    reduction: str, op: str, dtype: type
) -> None:
    """A node that shares the kernel reads them before they are stored."""
    x, u = (np.full((6, 1), most, dtype) for most in (np.iinfo(dtype).max, 3))
    indices = np.arange(6)[:, None]
    kinds = [helper.np_dtype_to_tensor_dtype(np.dtype(it)) for it in (dtype, np.int64, dtype, np.float32)]
    values = [helper.make_tensor_value_info(name, kind, [6, 1]) for name, kind in zip("xiuy", kinds, strict=True)]
    nodes = [
        helper.make_node(op, [*"xiu"], ["s"], reduction=reduction),
        helper.make_node("Cast", ["s"], ["y"], to=kinds[3]),
    ]
    graph = helper.make_graph(nodes, "narrow", values[:3], values[3:])
    built = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    wanted = (x + u if reduction == "add" else x * u).astype(np.float32)
    np.testing.assert_array_equal(support.run_model(built, x, indices, u)[0], wanted)
