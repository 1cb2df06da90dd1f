"""Loops that run here with all of their iterations: results are the CPU provider's, with few submissions and readbacks."""

from __future__ import annotations

import dataclasses
import math
import threading
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.plugin import watch
from onnxruntime_ep_wgpu.plugin.loops import steady, unrolled
from onnxruntime_ep_wgpu.plugin.loops.joined import JoinedOutput
from onnxruntime_ep_wgpu.plugin.step_memory import StepMemory
from onnxruntime_ep_wgpu.program.dtypes import DType

Feeds = dict[str, Any]
GO = "c1 = Identity (c0)"
# The state is below a bound, which it reaches after some iterations: calculated on the device.
BELOW = "most = ReduceMax <keepdims = 0> (s1) bound = Constant <value = float {1.3}> () c1 = Less (most, bound)"


def model(lines: str, outputs: str, inputs: str = "float[N,4] x, int64 m, bool c", opset: int = 21) -> bytes:
    text = f'<ir_version: 10, opset_import: ["" : {opset}]> g ({inputs}) => ({outputs}) {{ {lines} }}'
    found = onnx.parser.parse_model(text)
    onnx.checker.check_model(found)
    data: bytes = found.SerializeToString()
    return data


def loop(read: str, states: str, results: str, nodes: str, made: str = "y", number: str = "int64 i") -> str:
    return f"{made} = Loop ({read}) <body = b ({number}, bool c0{states}) => (bool c1{results}) {{ {nodes} }}>"


STATE, NEXT, ROW = ", float[N,4] s", ", float[N,4] s1", ", float[N,4] o"
Y, YZ = "float[N,4] y", "float[N,4] y, float[K,N,4] z"
STEP = "half = Constant <value = float {0.5}> () t = Tanh (s) s1 = Add (t, half)"
CASES = {
    "a state": model(loop("m, c, x", STATE, NEXT, f"{STEP} {GO}"), Y),
    "joined": model(loop("m, c, x", STATE, NEXT + ROW, f"{STEP} {GO} o = Neg (s)", "y, z"), YZ),
    "a condition": model(loop("m, c, x", STATE, NEXT, f"{STEP} {BELOW}"), Y),
    "a condition and rows": model(loop("m, c, x", STATE, NEXT + ROW, f"{STEP} {BELOW} o = Neg (s)", "y, z"), YZ),
    "a condition that is a state": model(
        loop("m, c, x, c", STATE + ", bool d", NEXT + ", bool c1", f"{STEP} {BELOW}", "y, e"), f"{Y}, bool e"
    ),
    "rows that are the state": model(loop("m, c, x", STATE, NEXT + ", float[N,4] s1", f"{STEP} {GO}", "y, z"), YZ),
    "rows of what was read": model(
        loop("m, c, x", STATE, NEXT + ", float[N,4] o", f"{STEP} {GO} o = Identity (s)", "y, z"), YZ
    ),
    "states that change places": model(
        "r = Neg (x)"
        + loop(
            "m, c, x, r",
            STATE + ", float[N,4] u",
            ", float[N,4] v, float[N,4] w",
            f"v = Sin (u) w = Identity (s) {GO}",
            "y, z",
        ),
        f"{Y}, float[N,4] z",
    ),
    "one result for two states": model(
        "r = Neg (x)"
        + loop(
            "m, c, x, r",
            STATE + ", float[N,4] u",
            NEXT + ", float[N,4] s1",
            f"t = Sub (s, u) s1 = Tanh (t) {GO}",
            "y, z",
        ),
        f"{Y}, float[N,4] z",
    ),
    "a state that stays": model(
        "r = Neg (x)"
        + loop(
            "m, c, x, r",
            STATE + ", float[N,4] u",
            NEXT + ", float[N,4] u1" + ROW,
            f"t = Sub (s, u) s1 = Tanh (t) u1 = Identity (u) {GO} o = Mul (u, s)",
            "y, w, z",
        ),
        "float[N,4] y, float[N,4] w, float[K,N,4] z",
    ),
    "the number": model(
        loop(
            "m, c, x",
            STATE,
            NEXT + ROW + ", int64 n",
            f"f = Cast <to = 1> (i) s1 = Add (s, f) o = Mul (s, f) n = Identity (i) {GO}",
            "y, z, n",
        ),
        f"{YZ}, int64[K] n",
    ),
    "a number of rank one": model(
        loop("m, c, x", STATE, NEXT, f"f = Cast <to = 1> (i) s1 = Add (s, f) {GO}", number="int64[1] i"), Y
    ),
    "an outer value and a constant": model(
        "r = Neg (x)"
        + loop(
            "m, c, x",
            STATE,
            NEXT,
            f"k = Constant <value = float[4] {{1, 2, 3, 4}}> () t = Mul (r, k) u = Add (s, t) s1 = Sin (u) {GO}",
        ),
        Y,
    ),
    "one iteration": model(
        loop("m, c, x", STATE, NEXT + ROW, f"{STEP} c1 = Constant <value = bool {{0}}> () o = Neg (s)", "y, z"), YZ
    ),
    "no trip count": model(loop(", c, x", STATE, NEXT, f"{STEP} {BELOW}"), Y, "float[N,4] x, bool c, int64 m"),
    "no condition": model(loop("m, , x", STATE, NEXT, f"{STEP} {GO}"), Y),
    "a state that grows": model(
        loop("m, c, x", ", float[A,4] s", ", float[B,4] s1", f"t = Tanh (x) s1 = Concat <axis = 0> (s, t) {GO}"),
        "float[M,4] y",
    ),
    "a state that spreads once": model(
        "one = Constant <value = float[1,4] {1, 2, 3, 4}> ()"
        + loop("m, c, one", ", float[A,4] s", ", float[B,4] s1", f"s1 = Add (s, x) {GO}"),
        "float[M,4] y",
    ),
    "a state that nothing reads": model(
        "r = Neg (x)"
        + loop(
            "m, c, x, r",
            STATE + ", float[N,4] u",
            NEXT + ", float[N,4] u1",
            f"s1 = Identity (u) u1 = Tanh (u) {GO}",
            "y, z",
        ),
        f"{Y}, float[N,4] z",
    ),
    "rows of bytes": model(
        loop(
            "m, c, x",
            STATE,
            NEXT + ", bool[N,3] o",
            f"{STEP} {GO} three = Constant <value = int64[3] {{0, 2, 3}}> ()"
            " p = Gather <axis = 1> (s1, three) q = Constant <value = float {0.4}> () o = Less (p, q)",
            "y, z",
        ),
        "float[N,4] y, bool[K,N,3] z",
    ),
    "a loop in a loop": model(
        "two = Constant <value = int64 {2}> ()"
        + loop(
            "m, c, x",
            STATE,
            NEXT,
            "t = Loop (two, , s) <body = inner (int64 j, bool d0, float[N,4] t0) => (bool d1, float[N,4] t1)"
            f" {{ d1 = Identity (d0) t1 = Sin (t0) }}> s1 = Tanh (t) {GO}",
        ),
        Y,
    ),
    "elements of a state that decide": model(
        "k = Constant <value = int64[1] {1}> ()"
        + loop(
            "m, c, x, k",
            STATE + ", int64[1] n",
            NEXT + ", int64[1] n1",
            "one = Constant <value = int64[1] {1}> ()"
            " four = Constant <value = int64[1] {4}> () p = Mod (n, four) q = Sub (four, p) ax = Constant <value = int64[1] {1}> ()"
            " zero = Constant <value = int64[1] {0}> () part = Slice (s, zero, q, ax) sum = ReduceSum (part, ax) s1 = Add (s, sum)"
            f" n1 = Add (n, one) {GO}",
            "y, w",
        ),
        f"{Y}, int64[1] w",
    ),
}


def runs(single: bytes, *, trips: tuple[int, ...] = (0, 1, 2, 3, 7, 40)) -> None:
    session, reference = webgpu_ep.session(single), ort.InferenceSession(single, providers=["CPUExecutionProvider"])
    wanted = {it.name for it in reference.get_inputs()}
    for rows, go, count in [(3, True, it) for it in trips] + [(1, False, 5), (1, True, -3), (5, True, 9)]:
        x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
        x[0, 0] = np.inf if count == 9 else x[0, 0]
        feeds = {name: it for name, it in {"x": x, "m": np.array(count), "c": np.array(go)}.items() if name in wanted}
        for got, want in zip(session.run(None, feeds), reference.run(None, feeds), strict=True):
            assert (got.dtype, got.shape) == (want.dtype, want.shape), (count, go)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_results_are_the_cpu_providers(name: str) -> None:
    runs(CASES[name])


@pytest.mark.parametrize("name", [name for name in CASES if "condition" in name])
@pytest.mark.parametrize("short", [0.0, math.inf])
def test_batches_end_where_the_condition_does(name: str, short: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steady, "SHORT", short)
    runs(CASES[name], trips=(2, 3, 4, 5, 6, 7, 8, 9, 50))


def with_constants(single: bytes, trips: int) -> bytes:
    """The model with a constant trip count and a condition that holds."""
    found = onnx.load_from_string(single)
    known = {"m": np.array(trips), "c": np.array(True)}
    kept = [it for it in found.graph.input if it.name not in known]
    del found.graph.input[:]
    found.graph.input.extend(kept)
    found.graph.initializer.extend(onnx.numpy_helper.from_array(it, name) for name, it in known.items())
    data: bytes = found.SerializeToString()
    return data


@pytest.mark.parametrize("name", CASES)
def test_with_a_constant_trip_count_results_are_the_cpu_providers(name: str) -> None:
    for trips in (1, 5):
        runs(with_constants(CASES[name], trips), trips=(trips,))


@pytest.mark.parametrize("name", ["a state", "joined", "the number", "a state that grows", "a loop in a loop"])
def test_a_small_loop_with_a_constant_trip_count_is_part_of_the_graph_around(name: str) -> None:
    found = onnx.load_from_string(with_constants(CASES[name], 5))
    before, behind = onnx.helper.make_node("Neg", ["x"], ["x0"]), onnx.helper.make_node("Abs", ["y"], ["y0"])
    for node in found.graph.node:
        node.input[:] = ["x0" if it == "x" else it for it in node.input]
    found.graph.node.insert(0, before)
    found.graph.node.append(behind)
    found.graph.output[0].name = "y0"
    single = found.SerializeToString()
    session = webgpu_ep.session(single)
    assert len({it.partition for it in webgpu_ep.report(session).nodes if not it.within}) == 1
    runs(single, trips=(5,))


def test_the_report_has_the_kernels_of_a_loop_that_is_unrolled() -> None:
    session = webgpu_ep.session(with_constants(CASES["joined"], 3))
    (node,) = [it for it in webgpu_ep.report(session).nodes if it.op_type == "Loop"]
    assert node.kernels


@pytest.mark.parametrize("trips", [None, 5])
@pytest.mark.parametrize("name", CASES)
def test_tools_see_what_a_session_does(name: str, trips: int | None) -> None:
    """With all iterations here, and with them in the graph around the Loop."""
    single = CASES[name] if trips is None else with_constants(CASES[name], trips)
    nodes = webgpu_ep.report(webgpu_ep.session(single)).nodes
    assert webgpu_ep.explain(single).report.nodes == nodes
    x = np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32)
    feeds = {"x": x} | ({"m": np.array(5), "c": np.array(True)} if trips is None else {})
    wanted = {it.name for it in ort.InferenceSession(single, providers=["CPUExecutionProvider"]).get_inputs()}
    found = webgpu_ep.verify(single, {name: it for name, it in feeds.items() if name in wanted})
    assert found.nodes == nodes
    assert found.kernels or name == "a state that spreads once"
    assert not found.differing
    assert found.outputs
    assert max(it.error for it in found.outputs) < 1e-5


def test_a_loop_with_many_iterations_is_not_unrolled() -> None:
    single = with_constants(CASES["a state"], 1 + unrolled.MOST_NODES)
    session = webgpu_ep.session(single)
    (node,) = [it for it in webgpu_ep.report(session).nodes if it.op_type == "Loop"]
    assert node.on_webgpu and not node.kernels
    assert node.declined == ("unrolling: 257 iterations of 2 nodes; from 1 to 256 nodes are unrolled",)
    runs(single, trips=(1,))


def counted(session: ort.InferenceSession, feeds: Feeds) -> dict[str, int]:
    device = next(it.state for it in watch.live() if it.state is not None).device()
    before = device.counters
    session.run(None, feeds)
    return {name: count - before[name] for name, count in device.counters.items()}


@pytest.mark.parametrize("name", ["a state", "joined", "the number"])
def test_many_iterations_are_one_submission(name: str) -> None:
    session = webgpu_ep.session(CASES[name])
    feeds = {"x": np.ones((3, 4), np.float32), "c": np.array(True), "m": np.array(200)}
    session.run(None, feeds)
    session.run(None, feeds)
    found = counted(session, feeds)
    assert found["dispatches"] >= 200
    assert found["submits"] < 20
    assert found["bind_groups"] == (
        0 if name == "a state" else 4 if name == "the number" else 2
    )  # of copies, of both kinds
    assert found["downloads"] <= 3  # the results


def test_a_condition_is_read_once_for_many_short_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steady, "SHORT", math.inf)
    always = BELOW.replace("{1.3}", "{1000}")
    session = webgpu_ep.session(model(loop("m, c, x", STATE, NEXT, f"{STEP} {always}"), Y))
    feeds = {"x": np.ones((3, 4), np.float32), "c": np.array(True), "m": np.array(320)}
    session.run(None, feeds)
    assert counted(session, feeds)["downloads"] < 20


@pytest.mark.parametrize("once", [False, True])
def test_memory_for_rows_is_for_those_that_may_come(once: bool) -> None:
    """Rows of 40 MB, of which 64 are beyond what a buffer of a software adapter holds."""
    early = "top = ReduceMax <keepdims = 0> (s1) most = Constant <value = float {3}> () last = Cast <to = 1> (i)"
    ends = "c1 = Constant <value = bool {0}> ()" if once else f"{early} far = Max (top, last) c1 = Less (far, most)"
    single = model(
        loop(
            "m, c, x", STATE, NEXT + ", float[A,B,C] o", f"{STEP} wide = Expand (s, size) o = Neg (wide) {ends}", "y, z"
        ),
        "float[N,4] y, float[K,A,B,C] z",
        "float[N,4] x, int64 m, bool c, int64[3] size",
    )
    x = np.arange(4, dtype=np.float32)[None] / 4
    feeds = {"x": x, "m": np.array(1000), "c": np.array(True), "size": np.array([2_500_000, 1, 4])}
    session = webgpu_ep.session(single)
    assert not webgpu_ep.report(session).on_cpu
    _, z = session.run(None, feeds)
    assert z.shape == (1 if once else 4, 2_500_000, 1, 4)
    np.testing.assert_array_equal(z[0], np.broadcast_to(-x, z.shape[1:]))


def test_iterations_behind_the_end_of_a_loop_need_no_memory_that_there_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """12 rows are made. A buffer holds 13, and a batch that follows the first 7 iterations would have 8."""
    monkeypatch.setattr(steady, "SHORT", math.inf)
    nodes = f"{STEP} {BELOW.replace('{1.3}', '{1000}')} o = Neg (s)".replace("c1 =", "low =")
    count = "twelve = Constant <value = int64 {11}> () early = Less (i, twelve) c1 = And (low, early)"
    session = webgpu_ep.session(model(loop("m, c, x", STATE, NEXT + ROW, f"{nodes} {count}", "y, z"), YZ))
    device = next(it.state for it in watch.live() if it.state is not None).device()
    rows, reserve = [], JoinedOutput.reserve
    monkeypatch.setattr(device, "target", dataclasses.replace(device.target, max_buffer_bytes=13 * 3 * 4 * 4))
    monkeypatch.setattr(JoinedOutput, "reserve", lambda self, *given: rows.append(given[3]) or reserve(self, *given))
    x = np.ones((3, 4), np.float32)
    _, z = session.run(None, {"x": x, "c": np.array(True), "m": np.array(100)})
    assert len(z) == 12
    assert max(rows) == 13


def test_memory_for_rows_doubles_up_to_what_a_buffer_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    session = webgpu_ep.session(CASES["a state"])
    device = next(it.state for it in watch.live() if it.state is not None).device()
    monkeypatch.setattr(device, "target", dataclasses.replace(device.target, max_buffer_bytes=8 * 140))
    rooms = []
    with StepMemory(device) as memory:
        tensor = memory.tensor
        monkeypatch.setattr(memory, "tensor", lambda *given: rooms.append(given[1][0]) or tensor(*given))
        joined = JoinedOutput(memory, "rows", None, False)
        for rows in (1, 65, 129, 141):
            joined.reserve(DType.FLOAT32, (2,), 0, rows)
    assert rooms == [64, 128, 140, 141], "the last one is refused where it is made, if the device refuses it"
    assert session.get_inputs()


def test_runs_of_several_threads_do_not_mix() -> None:
    single = CASES["a condition and rows"]
    session, reference = webgpu_ep.session(single), ort.InferenceSession(single, providers=["CPUExecutionProvider"])
    wrong: list[int] = []

    def run(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(8):
            x = rng.standard_normal((2, 4)).astype(np.float32)
            feeds = {"x": x, "c": np.array(True), "m": np.array(30)}
            for got, want in zip(session.run(None, feeds), reference.run(None, feeds), strict=True):
                if got.shape != want.shape or not np.allclose(got, want, rtol=1e-4, atol=1e-5):
                    wrong.append(seed)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(3)]
    for it in threads:
        it.start()
    for it in threads:
        it.join()
    assert not wrong


def test_random_numbers_differ_from_iteration_to_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a condition is read, too: no iteration is calculated for nothing."""
    monkeypatch.setattr(steady, "SHORT", math.inf)
    nodes = (
        f"r = RandomUniformLike <seed = 1.0> (s) s1 = Add (s, r) o = Identity (r) {BELOW.replace('{1.3}', '{1000}')}"
    )
    single = model(loop("m, c, x", STATE, NEXT + ROW, nodes, "y, z"), YZ)
    feeds = {"x": np.zeros((2, 4), np.float32), "c": np.array(True), "m": np.array(12)}
    y, z = webgpu_ep.session(single).run(None, feeds)
    assert len(np.unique(z)) == z.size
    np.testing.assert_allclose(y, z.sum(0), rtol=1e-5)


def test_rows_of_other_shapes_are_an_error_that_names_the_iteration() -> None:
    nodes = f"t = Tanh (x) s1 = Concat <axis = 0> (s, t) o = Neg (s1) {GO}"
    single = model(
        loop("m, c, x", ", float[A,4] s", ", float[B,4] s1, float[D,4] o", nodes, "y, z"),
        "float[M,4] y, float[K,P,4] z",
    )
    session = webgpu_ep.session(single)
    feeds = {"x": np.ones((2, 4), np.float32), "c": np.array(True), "m": np.array(3)}
    with pytest.raises(
        Exception, match=r"joined result 0 .* the row of iteration 1 has the shape \[6, 4\], those before it \[4, 4\]"
    ):
        session.run(None, feeds)


def test_a_loop_that_is_kept_on_the_cpu_stays_there() -> None:
    single = model("r = Neg (x) [loop]" + loop("m, c, r", STATE, NEXT, f"{STEP} {GO}"), Y)
    session = webgpu_ep.session(single, forceCpuNodeNames=["loop"])
    assert [it.name for it in webgpu_ep.report(session).on_cpu if it.op_type == "Loop"] == ["loop"]
