"""Loops of any length: what an adapter cannot do in one invocation is split, and what is refused is refused by name.

lavapipe ends a shader after 65,535 iterations of all loops of an invocation without a word, so a kernel that counts wrongly
shows as a wrong result here. Every test runs with the Target of a software adapter, on a GPU too, and with that of a GPU, whose
loops have any length: what of them lavapipe does not run is left to GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler.ops.matmul import LONGEST_SUM
from onnxruntime_ep_wgpu.errors import LimitError, UnsupportedError
from onnxruntime_ep_wgpu.program.target import MOST_ITERATIONS
from tests import support, targets

from .compare import check, check_model, expected, model

F = np.float32

RNG = np.random.default_rng(14)
SOFTWARE = targets.Way("software")


@pytest.fixture(autouse=True, params=[SOFTWARE, targets.Way("gpu", "pair")], ids=lambda way: way.target)
def way(request: pytest.FixtureRequest) -> Iterator[targets.Way]:
    with targets.using(request.param):
        yield request.param


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


@pytest.mark.parametrize("k", [LONGEST_SUM - 1, LONGEST_SUM, LONGEST_SUM + 1, 140_003])
@pytest.mark.parametrize("m", [1, 9])
def test_products_over_many_columns(m: int, k: int) -> None:
    check("MatMul", whole(m, k), whole(k, 5), rtol=0, atol=0)


def test_products_in_batches_and_in_half_precision() -> None:
    check("MatMul", whole(2, 3, 70_001), whole(2, 70_001, 4), rtol=0, atol=0)
    x, y = whole(3, 70_001) / 256, whole(70_001, 4) / 16
    check("MatMul", x.astype(np.float16), y.astype(np.float16), want=[(x.astype(np.float64) @ y).astype(np.float16)])


@pytest.mark.parametrize(
    ("channels", "kernel", "how"),
    [(1100, 7, {}), (1400, 7, {"pads": [1] * 4}), (2500, 7, {}), (2000, 6, {"group": 2}), (1, 251, {"pads": [1] * 4})],
)
def test_convolutions_over_many_channels_and_taps(channels: int, kernel: int, how: dict[str, Any]) -> None:
    side = kernel + 2
    x, w = whole(1, channels, side, side), whole(8, channels // how.get("group", 1), kernel, kernel)
    check("Conv", x, w, constants=[1], rtol=1e-6, atol=0.1, **how)


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


@pytest.mark.parametrize("size", [1 << 20, 5_000_011])
def test_long_rows_are_normalised(size: int) -> None:
    x = whole(2, size) / 4
    exact = x.astype(np.float64)
    mean = exact.mean(1, keepdims=True)
    want = (exact - mean) / np.sqrt(((exact - mean) ** 2).mean(1, keepdims=True) + 1e-5)
    check("LayerNormalization", x, np.ones(size, F), constants=[1], want=[want.astype(F)])


@pytest.mark.parametrize("kind", [np.float32, np.int64])
def test_the_largest_of_a_long_row(kind: type) -> None:
    # The kernel of GPUs has fewer invocations, each of which loops longer.
    x = RNG.permutation(500_003 if targets.pretended(targets.chosen()) else 2_000_003).astype(kind)[None]
    check("TopK", x, np.array([50]), outputs=[kind, np.int64], constants=[1])


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


@pytest.mark.parametrize("count", [50_000, 70_000])
def test_scattering_many_updates(count: int) -> None:
    x, updates, places = whole(500), whole(count, low=-999, high=999), RNG.integers(0, 500, count)
    how: dict[str, Any] = {"outputs": [F], "axis": 0, "reduction": "max"}
    if support.target().software and count > MOST_ITERATIONS:
        with pytest.raises(UnsupportedError, match="longer than software adapters"):
            support.compile_model(model("ScatterElements", [x, places, updates], **how))
    elif not ends_early(count):
        check("ScatterElements", x, places, updates, **how)
    every = RNG.permutation(count)
    check("ScatterND", whole(count), every[:, None], updates, outputs=[F])


@about_the_limit
def test_sizes_that_are_known_when_run() -> None:
    """A product that turns out long is compiled for its size, once; a short one is not."""
    built = model("MatMul", [whole(2, 2), whole(2, 3)], symbolic=True)
    run = support.specialising(built)
    programs = set()
    for k in (7, LONGEST_SUM + 5, 9, LONGEST_SUM + 5, LONGEST_SUM + 6):
        x, y = whole(2, k), whole(k, 3)
        np.testing.assert_array_equal(run(x, y)[0], x @ y)
        programs |= set(map(id, run.executable._specialised.values()))
    assert len(programs) == 2 and len(run.executable.plans) == 2


@about_the_limit
def test_without_its_graph_a_program_names_the_limit() -> None:
    built = model("MatMul", [whole(2, 2), whole(2, 3)], symbolic=True)
    run = support.Runner(support.compile_model(built))
    with pytest.raises(LimitError, match=rf"a matrix product over .* columns is longer.*{LONGEST_SUM + 1}"):
        run(whole(2, LONGEST_SUM + 1), whole(LONGEST_SUM + 1, 3))


@about_the_limit
def test_what_helps_in_no_size_is_refused_by_name() -> None:
    built = model("ScatterElements", [whole(9), np.arange(9), whole(9)], outputs=[F], axis=0, symbolic=True)
    run = support.specialising(built)
    x = whole(70_000)
    with pytest.raises(LimitError, match=r"ScatterElements.*longer than software adapters"):
        run(x, np.arange(70_000), x)
    check_model(built, [x[:9], np.arange(9), x[:9]])
