"""Loops of any length: what an adapter cannot do in one invocation is split, and what is refused is refused by name.

lavapipe ends a shader after 65,535 iterations of all loops of an invocation without a word, so a kernel that counts wrongly
shows as a wrong result here. Every test runs with the Target of a software adapter, on a GPU too, and with that of a GPU, whose
loops have any length: what of them lavapipe does not run is left to GPUs.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler.lower.ops.matmul import longest_sum
from onnxruntime_ep_wgpu.errors import LimitError, UnsupportedError
from onnxruntime_ep_wgpu.program.program import Dispatch
from onnxruntime_ep_wgpu.program.target import Target
from tests import support, targets

from .compare import check, check_model, expected, model

F = np.float32

RNG = np.random.default_rng(14)
MOST_ITERATIONS = Target().max_iterations
LONGEST_SUM = longest_sum(Target(software=True)) or 0
SOFTWARE = targets.Way("software")


way = targets.each(SOFTWARE, targets.Way("gpu", "pair"))


about_the_limit = pytest.mark.parametrize("way", [SOFTWARE], ids=["software"], indirect=True)


def ends_early(iterations: int) -> bool:
    """Whether the adapter ends loops of this length in spite of the Target."""
    return targets.pretended(targets.chosen()) and iterations > MOST_ITERATIONS


def needs_loops(iterations: int) -> None:
    if ends_early(iterations):
        pytest.skip(f"as a GPU's, an invocation loops {iterations} times, which this software adapter does not")


def whole(*shape: int, low: int = -3, high: int = 4) -> np.ndarray:
    """Whole numbers, whose sums are exact."""
    return RNG.integers(low, high, shape).astype(F)


@pytest.mark.costly
@pytest.mark.parametrize("k", [LONGEST_SUM - 1, LONGEST_SUM, LONGEST_SUM + 1, 140_003])
@pytest.mark.parametrize("m", [1, 9])
def test_products_over_many_columns(m: int, k: int) -> None:
    check("MatMul", whole(m, k), whole(k, 5), rtol=0, atol=0)


@pytest.mark.costly
def test_products_in_batches_and_in_half_precision() -> None:
    check("MatMul", whole(2, 3, 70_001), whole(2, 70_001, 4), rtol=0, atol=0)
    x, y = whole(3, 70_001) / 256, whole(70_001, 4) / 16
    check("MatMul", x.astype(np.float16), y.astype(np.float16), want=[(x.astype(np.float64) @ y).astype(np.float16)])


@pytest.mark.costly
@pytest.mark.parametrize(
    ("channels", "kernel", "how"),
    [(1100, 7, {}), (1400, 7, {"pads": [1] * 4}), (2500, 7, {}), (2000, 6, {"group": 2}), (1, 251, {"pads": [1] * 4})],
)
def test_convolutions_over_many_channels_and_taps(channels: int, kernel: int, how: dict[str, Any]) -> None:
    side = kernel + 2
    x, w = whole(1, channels, side, side), whole(8, channels // how.get("group", 1), kernel, kernel)
    check("Conv", x, w, constants=[1], rtol=1e-6, atol=0.1, **how)


@pytest.mark.costly
@pytest.mark.parametrize("size", [1 << 20, 5_000_011])
@pytest.mark.parametrize(
    ("op", "more", "how", "kinds"),
    [
        ("Softmax", [], {}, [F]),
        ("ReduceMax", [np.array([1])], {}, [F]),
        ("CumSum", [np.array(1)], {}, [F]),
        ("ArgMax", [], {"axis": 1}, [np.int64]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_long_rows(op: str, more: list[Any], how: dict[str, Any], kinds: list[Any], size: int) -> None:
    given = [whole(2, size) / 4, *more]
    check(op, *given, outputs=kinds, constants=range(1, len(given)), rtol=1e-3, atol=1e-6, **how)


@pytest.mark.costly
@pytest.mark.parametrize("size", [1 << 20, 5_000_011])
def test_long_rows_are_normalised(size: int) -> None:
    x = whole(2, size) / 4
    exact = x.astype(np.float64)
    mean = exact.mean(1, keepdims=True)
    want = (exact - mean) / np.sqrt(((exact - mean) ** 2).mean(1, keepdims=True) + 1e-5)
    check("LayerNormalization", x, np.ones(size, F), constants=[1], want=[want.astype(F)])


@pytest.mark.costly
@pytest.mark.parametrize("kind", [np.float32, np.int64])
def test_the_largest_of_a_long_row(kind: type) -> None:
    # The kernel of GPUs has fewer invocations, each of which loops longer.
    x = RNG.permutation(500_003 if targets.pretended(targets.chosen()) else 2_000_003).astype(kind)[None]
    check("TopK", x, np.array([50]), outputs=[kind, np.int64], constants=[1])


@pytest.mark.costly
def test_a_long_row_is_sorted_whether_its_length_is_known_or_not() -> None:
    x, k = RNG.permutation(70_001).astype(F)[None], np.array([69_000])
    order = np.argsort(-x[0])[None, :69_000]
    want = [np.take_along_axis(x, order, 1), order]
    check("TopK", x, k, outputs=[F, np.int64], constants=[1], want=want)
    built = model("TopK", [x, k], symbolic=True, outputs=[F, np.int64])
    built.graph.input[1].type.tensor_type.shape.dim[0].dim_value = 1
    for found, wanted in zip(support.Runner(support.compile_model(built))(x, k), want, strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.float32])
@pytest.mark.parametrize("side", [100, 120, 240])
def test_pools_with_large_windows(kind: type, side: int) -> None:
    """Results narrower than a word are made several at a time, by one invocation."""
    x = RNG.integers(0, 100, (1, 1, side + 2, side + 5)).astype(kind)
    built = model("MaxPool", [x], kernel_shape=[side, side])
    needs_loops(4 // np.dtype(kind).itemsize * side * (side + 1))
    try:
        program = support.compile_model(built)
    except UnsupportedError as refused:
        assert support.target().software and ((side == 120 and kind is not np.float32) or side == 240), refused
        return
    np.testing.assert_array_equal(support.Runner(program)(x)[0], expected(built, {"x0": x})[0])


def test_a_large_window_before_a_narrow_result() -> None:
    """The comparison may not join the pool: bytes come four at a time, and four windows are too many for one invocation."""
    needs_loops(4 * 150 * 151)
    nodes = [
        node("MaxPool", ["x"], ["p"], kernel_shape=[150, 150]),
        node("Greater", ["p", "c"], ["y"]),
    ]
    x = whole(1, 3, 152, 154)
    y = support.run_model(support.make_model(nodes, {"x": (F, list(x.shape))}, {"c": np.array(2.5, F)}), x)[0]
    np.testing.assert_array_equal(y, np.ones((1, 3, 3, 5), bool))


@pytest.mark.costly
@pytest.mark.parametrize("count", [50_000, 70_000, 130_000])
@pytest.mark.parametrize("kind", [F, np.int8])
def test_scattering_many_updates(count: int, kind: type) -> None:
    x, updates, places = whole(500), whole(count, low=-99, high=99), RNG.integers(0, 500, count)
    x, updates = x.astype(kind), updates.astype(kind)
    if not ends_early(count * 4 // np.dtype(kind).itemsize):
        check("ScatterElements", x, places, updates, outputs=[kind], axis=0, reduction="max")
        check(
            "ScatterND", x, places[:, None], updates, outputs=[kind], reduction="add", want=[_added(x, places, updates)]
        )
    every = RNG.permutation(count)
    check("ScatterND", whole(count), every[:, None], updates.astype(F), outputs=[F])


def _added(x: np.ndarray, places: np.ndarray, updates: np.ndarray) -> np.ndarray:
    total = x.copy()
    np.add.at(total, places, updates)
    return total


@about_the_limit
def test_sizes_that_are_known_when_run() -> None:
    """A product that turns out long is compiled for its size, once; a short one is not."""
    built = model("MatMul", [whole(2, 2), whole(2, 3)], symbolic=True)
    run = support.specialising(built)
    programs = set()
    for k in (7, LONGEST_SUM + 5, 9, LONGEST_SUM + 5, LONGEST_SUM + 6):
        x, y = whole(2, k), whole(k, 3)
        np.testing.assert_array_equal(run(x, y)[0], x @ y)
        programs |= set(map(id, run.sized.specialised.values()))
    assert len(programs) == 2 and len(run.executable.plans) == 2


@about_the_limit
def test_without_its_graph_a_program_names_the_limit() -> None:
    built = model("MatMul", [whole(2, 2), whole(2, 3)], symbolic=True)
    run = support.Runner(support.compile_model(built))
    with pytest.raises(LimitError, match=rf"a matrix product over .* columns exceeds.*{LONGEST_SUM + 1}"):
        run(whole(2, LONGEST_SUM + 1), whole(LONGEST_SUM + 1, 3))


@about_the_limit
def test_updates_that_are_many_when_run() -> None:
    built = model("ScatterElements", [whole(9), np.arange(9), whole(9)], outputs=[F], axis=0, symbolic=True)
    run = support.specialising(built)
    x, updates, places = whole(700), whole(70_000), RNG.integers(0, 700, 70_000)
    np.testing.assert_array_equal(
        run(x, places, updates)[0], expected(built, {"x0": x, "x1": places, "x2": updates})[0]
    )
    check_model(built, [x[:9], np.arange(9), x[:9]])


def half(*shape: int) -> np.ndarray:
    return whole(*shape).astype(np.float16)


def places(*shape: int, of: int) -> np.ndarray:
    return RNG.integers(-of, of, shape)


def last(size: int) -> np.ndarray:
    """Rows of few different numbers, so that many are the best."""
    return RNG.integers(0, 3, (3, size)).astype(F)


# name: operator, inputs, constants among them, result types, attributes, iterations that an invocation may make
SPLIT: dict[str, tuple[str, list[Any], list[int], list[Any], dict[str, Any], int]] = {
    "sum": ("ReduceSum", [whole(3, 2000), np.array([1])], [1], [F], {}, 2),
    "sum of a first axis": ("ReduceSum", [whole(2000, 3), np.array([0])], [1], [F], {"keepdims": 0}, 2),
    "sum of all": ("ReduceSum", [whole(100_001)], [], [F], {}, 1),
    "mean": ("ReduceMean", [whole(2, 3, 1701), np.array([-1])], [1], [F], {}, 1),
    "least": ("ReduceMin", [places(3, 5003, of=2**30).astype(np.int32), np.array([1])], [1], [np.int32], {}, 1),
    "largest of chunks of chunks": ("ReduceMax", [whole(2, 200_003), np.array([1])], [1], [F], {}, 1),
    "largest byte": ("ReduceMax", [places(3, 5003, of=100).astype(np.int8), np.array([1])], [1], [np.int8], {}, 1),
    "norm": ("ReduceL2", [half(3, 997), np.array([1])], [1], [np.float16], {}, 1),
    "global pool": ("GlobalAveragePool", [whole(1, 2, 50, 51)], [], [F], {}, 1),
    "softmax": ("Softmax", [whole(3, 2001)], [], [F], {}, 1),
    "softmax of a first axis": ("Softmax", [half(1003, 2)], [], [np.float16], {"axis": 0}, 1),
    "logarithm": ("LogSoftmax", [whole(3, 2001)], [], [F], {}, 2),
    "layers and means": ("LayerNormalization", [whole(3, 1999), whole(1999)], [1], [F, F, F], {}, 1),
    "layers": ("LayerNormalization", [whole(3, 1999), whole(1999), whole(1999)], [1, 2], [F], {}, 1),
    "instances": ("InstanceNormalization", [whole(2, 3, 40, 41), whole(3), whole(3)], [1, 2], [F], {}, 1),
    "running totals": ("CumSum", [whole(3, 2001), np.array(1)], [1], [F], {}, 2),
    "running totals back": ("CumSum", [whole(2001, 2), np.array(0)], [1], [F], {"reverse": 1, "exclusive": 1}, 1),
    "best": ("ArgMax", [last(2003)], [], [np.int64], {"axis": 1}, 1),
    "last of the best": ("ArgMax", [last(2003)], [], [np.int64], {"axis": 1, "select_last_index": 1}, 1),
    "last of the least": ("ArgMin", [last(2003).T.copy()], [], [np.int64], {"axis": 0, "select_last_index": 1}, 2),
    "one best": ("Hardmax", [last(2003)], [], [F], {}, 1),
    "range": ("DynamicQuantizeLinear", [whole(2, 5003)], [], [np.uint8, F, np.uint8], {}, 1),
    "selected": ("TopK", [last(40_000), np.array([7])], [1], [F, np.int64], {}, 1100),
    "product": ("MatMul", [whole(3, 101), whole(101, 5)], [1], [F], {}, 20),
    "grouped": ("Conv", [whole(1, 8, 7, 7), whole(4, 4, 3, 3)], [1], [F], {"group": 2}, 30),
    "added": ("ScatterElements", [whole(5, 9), places(5, 201, of=9)[:, :201], whole(5, 201)], [], [F],
              {"axis": 1, "reduction": "add"}, 40),
    "replaced": ("ScatterElements", [whole(9, 2), places(57, 2, of=9), whole(57, 2)], [], [F], {"axis": 0}, 40),
    "bytes": ("ScatterElements", [whole(99).astype(np.uint8), places(501, of=99), whole(501).astype(np.uint8)], [],
              [np.uint8], {"reduction": "max"}, 101),
    "slices": ("ScatterND", [whole(9, 4), places(57, 1, of=9), whole(57, 4)], [], [F], {"reduction": "add"}, 40),
}  # fmt: skip


@pytest.mark.costly
@about_the_limit
@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "symbolic"])
@pytest.mark.parametrize("name", SPLIT)
def test_every_long_loop_is_split(name: str, symbolic: bool) -> None:
    """With a limit so low that small tensors are beyond it, in sizes that are known at once or in a run."""
    op, given, constants, kinds, how, iterations = SPLIT[name]
    low = dataclasses.replace(support.target(), max_iterations=iterations)
    built = model(op, given, constants=constants, outputs=kinds, symbolic=symbolic, **how)
    if op == "ScatterND":  # the number of indices per update is a rank
        built.graph.input[1].type.tensor_type.shape.dim[-1].dim_value = 1
    feeds = {f"x{k}": a for k, a in enumerate(given) if k not in constants}
    usual = support.compile_model(model(op, given, constants=constants, outputs=kinds, **how))
    run = support.specialising(built, low)
    got = run(*feeds.values())
    split = next(reversed(run.sized.specialised.values()), run.executable).program
    assert sum(map(_times, split.dispatches)) > sum(map(_times, usual.dispatches))
    for ours, theirs in zip(got, expected(built, feeds), strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        close = 2e-3 if ours.dtype == np.float16 else 2e-6
        ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
        np.testing.assert_allclose(ours, theirs, rtol=close, atol=close * max(1, np.abs(theirs).max()))


def _times(dispatch: Dispatch) -> int:
    return dispatch.repeats if isinstance(dispatch.repeats, int) else 1
