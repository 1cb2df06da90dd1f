"""Control flow between nodes that run here and bodies whose nodes run here, there or both.

ONNX Runtime hands a body what it takes from outside as it hands a model its inputs: copied to where the body's nodes read
it, without a kernel of its own, also in a model in its own format.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.plugin import watch
from onnxruntime_ep_wgpu.plugin.node import ComputeInfo

OpenSession = Callable[..., ort.InferenceSession]
# Bodies that make {0} of r, which is made outside; nodes named cpu... are to stay on the CPU.
HERE, THERE = "[n{0}] {0} = Mul (r, r)", "[cpu{0}] {0} = Mul (r, r)"
MIXED = "[n{0}] {0}1 = Mul (r, r) [cpu{0}] {0}2 = Neg (r) [m{0}] {0} = Add ({0}1, {0}2)"
KINDS = {"here": HERE, "there": THERE, "mixed": MIXED}
IF = "If (c) <then_branch = t{2} () => (float[N,4] a{2}) {{ {0} }}, else_branch = e{2} () => (float[N,4] b{2}) {{ {1} }}>"


def choice(first: str, second: str, mark: str = "") -> str:
    return IF.format(first.format(f"a{mark}"), second.format(f"b{mark}"), mark)


def graph(lines: str, outputs: str = "float[N,4] y", inputs: str = "float[N,4] x, bool c") -> onnx.ModelProto:
    text = f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => ({outputs}) {{ {lines} }}'
    model = onnx.parser.parse_model(text)
    onnx.checker.check_model(model)
    return model


def models() -> dict[str, onnx.ModelProto]:
    found = {}
    for (first, one), (second, other) in itertools.product(KINDS.items(), repeat=2):
        found[f"if-{first}-{second}"] = graph(f"[r] r = Tanh (x) y = {choice(one, other)}")
    loop = (
        "[r] r = Tanh (x) n = Constant <value = int64 {{3}}> () y = Loop (n, c, x) <body = b (int64 i, bool c0, float[N,4] s)"
        " => (bool c1, float[N,4] s1) {{ c1 = Identity (c0) {0} [sum] s1 = Add (s, v) }}>"
    )
    scan = (
        "[r] r = Tanh (x) zero = Constant <value = float {{0}}> () [first] z = Mul (x, zero)"
        " s, y = Scan <num_scan_inputs = 1, body = b (float[N,4] h, float[4] row) => (float[N,4] h1, float[4] o)"
        " {{ {0} [sum] h1 = Add (h, v) [o] o = Neg (row) }}> (z, r)"
    )
    for kind, lines in KINDS.items():
        found[f"loop-{kind}"] = graph(loop.format(lines.format("v")))
        found[f"scan-{kind}"] = graph(scan.format(lines.format("v")), "float[N,4] s, float[N,4] y")
        inner = f"y1 = {choice(lines, HERE, '_in')}"
        outer = "y = If (c) <then_branch = t () => (float[N,4] y1) {{ {0} }}, else_branch = e () => (float[N,4] d) {{ {1} }}>"
        found[f"nested-{kind}"] = graph("[r] r = Tanh (x) " + outer.format(inner, "[d] d = Abs (r)"))
        found[f"nested-inside-{kind}"] = graph(outer.format("[r] r = Tanh (x) " + inner, "[d] d = Abs (x)"))
    # An input of the model that a body reads and a group beside it.
    body = "[n{0}] {0} = Mul (x, x)"
    found["input"] = graph(f"[z] z = Tanh (x) y = {choice(body, body)}", "float[N,4] y, float[N,4] z")
    return found


MODELS = models()


def on_cpu(model: onnx.ModelProto) -> str:
    """The names for `forceCpuNodeNames`, of bodies in bodies too."""

    def of(nodes: onnx.GraphProto) -> list[str]:
        bodies = [it.g for node in nodes.node for it in node.attribute if it.type == onnx.AttributeProto.GRAPH]
        named = [node.name for node in nodes.node if node.name.startswith("cpu")]
        return named + [name for body in bodies for name in of(body)]

    return "\n".join(of(model.graph))


def check_runs(session: ort.InferenceSession, model: onnx.ModelProto) -> None:
    reference = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(3).standard_normal((3, 4)).astype(np.float32)
    for condition in (True, False):
        given = {"x": x, "c": np.array(condition)}
        feeds = {it.name: given[it.name] for it in reference.get_inputs()}
        for got, want in zip(session.run(None, feeds), reference.run(None, feeds), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.costly
@pytest.mark.parametrize("name", MODELS)
def test_bodies_read_what_is_made_here(open_session: OpenSession, name: str) -> None:
    model = MODELS[name]
    session = open_session(model.SerializeToString(), {"forceCpuNodeNames": on_cpu(model)})
    check_runs(session, model)


@pytest.mark.parametrize("name", [name for name in MODELS if not name.startswith(("loop", "scan"))])
def test_in_onnx_runtimes_own_format_only_a_node_that_shares_a_value_within_its_graph_is_refused(
    open_session: OpenSession, tmp_path: Path, name: str
) -> None:
    model, path = MODELS[name], str(tmp_path / "model.ort")
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.optimized_model_filepath = path
    ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    options = {"forceCpuNodeNames": on_cpu(model)}
    if "mixed" not in name:
        check_runs(open_session(path, options), model)
        return
    # From onnxruntime 1.27 on when the session is made, before that when it runs.
    with pytest.raises(Exception, match=r"Neg 'cpu.*' cannot run .* use the .onnx file instead"):
        check_runs(open_session(path, options), model)


# r is made outside and read in the body; the trip count is an input, on the host.
LOOP = """[r] r = Tanh (x)
 s, z = Loop (m, c, x) <body = b (int64 i, bool c0, {0}[N,4] s0) => (bool c1, {0}[N,4] s1, {0}[N,4] o) {{
   {1} [s1] s1 = Add (s0, r) [o] o = Tanh (s1) }}>
 [y] y = Add (s, s)"""
# Each iteration makes the state longer, and stops when it is long enough; the inner Loop doubles.
GROWING = """[r] r = Tanh (x) most = Constant <value = int64 {14}> () one = Constant <value = int64[1] {1}> ()
 two = Constant <value = int64 {2}> ()
 [flat] r1 = Reshape (r, minus)
 y = Loop (m, c, r1) <body = b (int64 i, bool c0, float[K] s0) => (bool c1, float[L] s2) {
   t = Loop (two, , s0) <body = inner (int64 j, bool d0, float[K] t0) => (bool d1, float[K] t1) {
     d1 = Identity (d0) [half] t1 = Tanh (t0) }>
   [join] s2 = Concat <axis = 0> (t, r1) size = Size (s2) c1 = Less (size, most) }>"""


def counted(session: ort.InferenceSession, feeds: dict[str, np.ndarray]) -> tuple[list[np.ndarray], int]:
    """The results of a run, and its transfers."""
    device = next(it.state for it in watch.live() if it.state is not None).device()
    before = device.counters["uploads"] + device.counters["downloads"]
    return session.run(None, feeds), device.counters["uploads"] + device.counters["downloads"] - before


# A condition that is known on the host, and one that the device makes.
CONDITIONS = {
    "known": "c1 = Identity (c0)",
    "made": "[sq] sq = Mul (s0, s0) [most] most = ReduceMax <keepdims = 0> (sq) bound = Constant <value = float {60}> ()"
    " [narrow] f = Cast <to = 1> (most) [go] c1 = Less (f, bound)",
}


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("dtype", ["float", "float16"])
def test_states_and_outer_values_of_a_loop_stay_on_the_device(dtype: str, condition: str) -> None:
    """Transfers grow with the iterations by the condition alone; joined outputs are right, of no iteration too."""
    lines, outputs = LOOP.format(dtype, CONDITIONS[condition]), f"{dtype}[N,4] y, {dtype}[K,N,4] z"
    model = graph(lines, outputs, f"{dtype}[N,4] x, bool c, int64 m").SerializeToString()
    session = webgpu_ep.session(model)
    reference = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    assert {it.op_type for it in webgpu_ep.report(session).on_cpu} <= {"Identity"}
    x = np.random.default_rng(3).standard_normal((3, 4)).astype({"float": "f4", "float16": "f2"}[dtype])
    transfers = []
    for trips, go in ((0, True), (2, True), (20, True), (3, False), (-5, True)):
        feeds = {"x": x, "c": np.array(go), "m": np.array(trips, np.int64)}
        found, number = counted(session, feeds)
        transfers.append(number)
        for mine, theirs in zip(found, reference.run(None, feeds), strict=True):
            assert mine.shape == theirs.shape
            np.testing.assert_allclose(mine, theirs, rtol=2e-2 if dtype == "float16" else 1e-5, atol=1e-6)
    assert transfers[2] - transfers[1] <= (18 if condition == "made" else 0), transfers


def test_a_state_that_grows_in_nested_loops(open_session: OpenSession) -> None:
    lines = GROWING.replace("[flat]", "minus = Constant <value = int64[1] {-1}> () [flat]")
    model = graph(lines, "float[L] y", "float[N,4] x, bool c, int64 m").SerializeToString()
    session = open_session(model)
    reference = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(3).standard_normal((1, 4)).astype(np.float32)
    for trips in (0, 1, 100):
        feeds = {"x": x, "c": np.array(True), "m": np.array(trips, np.int64)}
        (mine,), (theirs,) = session.run(None, feeds), reference.run(None, feeds)
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_a_captured_run_refuses_control_flow_by_name(open_session: OpenSession) -> None:
    model = MODELS["if-here-here"].SerializeToString()
    with pytest.raises(Exception, match=r"If 'If_\d+' .* a captured run would repeat the branches"):
        open_session(model, {"enableGraphCapture": "1"})


@pytest.mark.parametrize("condition", CONDITIONS)
def test_iterations_are_repeated_without_python(condition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where each one makes a condition, which is a byte that the host reads."""
    lines = (
        LOOP.replace("s, z = Loop", "s = Loop").replace(", {0}[N,4] o) {{", ") {{").replace(" [o] o = Tanh (s1)", "")
    )
    inputs = "float[N,4] x, bool c, int64 m"
    session = webgpu_ep.session(graph(lines.format("float", CONDITIONS[condition]), inputs=inputs).SerializeToString())
    feeds = {"x": np.full((3, 4), 0.01, np.float32), "c": np.array(True), "m": np.array(200)}
    session.run(None, feeds)
    runs, run = [], ComputeInfo.run
    monkeypatch.setattr(ComputeInfo, "run", lambda self, *given: (runs.append(1), run(self, *given))[1])
    session.run(None, feeds)
    assert len(runs) < 40


@pytest.mark.skipif(sys.platform == "win32", reason="no signal can be sent to a thread")
def test_an_endless_loop_can_be_interrupted() -> None:
    """The session goes on. The interrupt comes when the body has been repeated without Python."""
    lines = (
        LOOP.replace("s, z = Loop", "s = Loop").replace(", {0}[N,4] o) {{", ") {{").replace(" [o] o = Tanh (s1)", "")
    )
    inputs = "float[N,4] x, bool c, int64 m"
    session = webgpu_ep.session(graph(lines.format("float", CONDITIONS["known"]), inputs=inputs).SerializeToString())
    feeds = {"x": np.ones((3, 4), np.float32), "c": np.array(True), "m": np.array(3)}
    (want,) = session.run(None, feeds)
    _interrupt(session, feeds | {"m": np.array(2**62)})
    np.testing.assert_array_equal(session.run(None, feeds)[0], want)


@pytest.mark.skipif(sys.platform == "win32", reason="no signal can be sent to a thread")
def test_a_scan_of_many_rows_can_be_interrupted() -> None:
    lines = """[r] r = Tanh (x)
     s, z = Scan <num_scan_inputs = 1, body = b (float[4] s0, float[4] row) => (float[4] s1, float[4] o) {
       [s1] s1 = Add (s0, row) [o] o = Tanh (s1) }> (first, r)
     [y] y = Add (z, s)"""
    session = webgpu_ep.session(graph(lines, "float[N,4] y", "float[N,4] x, float[4] first").SerializeToString())
    feeds = {"x": np.ones((3, 4), np.float32), "first": np.zeros(4, np.float32)}
    (want,) = session.run(None, feeds)
    _interrupt(session, feeds | {"x": np.ones((300_000, 4), np.float32)})
    np.testing.assert_array_equal(session.run(None, feeds)[0], want)


def _interrupt(session: ort.InferenceSession, feeds: dict[str, Any]) -> None:
    """Sends an interrupt to a run when it has made 500 dispatches; the run has to raise it."""
    device = next(it.state for it in watch.live() if it.state is not None).device()
    enough = device.counters["dispatches"] + 500

    def interrupt() -> None:
        while device.counters["dispatches"] < enough:
            os.sched_yield()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    sender = threading.Thread(target=interrupt)
    sender.start()
    with pytest.raises(KeyboardInterrupt):
        session.run(None, feeds)
    sender.join()


def case(lines: str, outputs: str, state: str = "float[N,4]") -> tuple[bytes, str]:
    inputs = f"{state} x, bool c, int64 m"
    return graph(lines, outputs, inputs).SerializeToString(), state


BODY = "<body = b (int64 i, bool c0, float[{0}] s{1}) => (bool c1, float[{0}] s1, {2}) {{ c1 = Identity (c0) {3} }}>"
CASES = {
    "branches of two ranks": case(
        "y = If (c) <then_branch = t () => (float[N,4] a) { a = Tanh (x) }, else_branch = e () => (float[K] b)"
        " { k = Constant <value = int64[1] {-1}> () r = Tanh (x) b = Reshape (r, k) }> z = Neg (x) n = Neg (m)",
        "float y, float[N,4] z, int64 n",
    ),
    "a branch that is an outer value": case(
        "r = Tanh (x) y = If (c) <then_branch = t () => (float[N,4] a) { a = Identity (r) }, else_branch = e () =>"
        " (float[N,4] b) { b = Neg (r) }> z = Add (y, r) n = Neg (m)",
        "float[N,4] y, float[N,4] z, int64 n",
    ),
    "states that change places": case(
        "r = Tanh (x) t = Neg (x) y, z = Loop (m, c, r, t) "
        + BODY.format("N,4", ", float[N,4] u", "float[N,4] s2", "s1 = Sin (u) s2 = Identity (s)"),
        "float[N,4] y, float[N,4] z",
    ),
    "an outer value and the iteration's number": case(
        "r = Tanh (x) y, z = Loop (m, c, x) "
        + BODY.format("N,4", "", "float[N,4] o", "f = Cast <to = 1> (i) s1 = Add (s, f) o = Neg (r)"),
        "float[N,4] y, float[K,N,4] z",
    ),
    "joined bytes": case(
        "y, z = Loop (m, c, x) "
        + BODY.format(
            "N",
            "",
            "bool[N] o",
            "f = Cast <to = 1> (i) s1 = Add (s, f) one = Constant <value = float {1}> () o = Less (s1, one)",
        ),
        "float[N] y, bool[K,N] z",
        "float[N]",
    ),
    **{
        f"a Scan{how}": case(
            f"k = Constant <value = float[1] {{0.5}}> () h, y, w = Scan <num_scan_inputs = 1 {how}, body ="
            " b (float[1] s, float[4] row) => (float[1] s1, float[4] o, bool[4] p) { t = Tanh (row) q = Mul (s, k)"
            " o = Add (t, q) mx = ReduceMax (t) s1 = Add (q, mx) p = Less (o, s1) }> (k, x) n = Neg (m)",
            "float[1] h, float[N,4] y, bool[N,4] w, int64 n",
        )
        for how in ("", ", scan_input_directions = [1]", ", scan_output_directions = [1, 0]")
    },
    **{
        f"a Scan along axis {axes}": case(
            "zero = Constant <value = int64 {0}> () front = Constant <value = int64[1] {0}> () z = Gather <axis = 1> (x, zero)"
            f" h, y, w = Scan <num_scan_inputs = 1, scan_input_axes = [{axes}, body = b (float[N] s, float[N] column) =>"
            " (float[N] s1, float[N] o, float[2,N] p) { t = Tanh (column) s1 = Add (s, t) o = Mul (s1, column)"
            " u = Unsqueeze (s1, front) v = Unsqueeze (t, front) p = Concat <axis = 0> (u, v) }> (z, x) n = Neg (m)",
            "float[N] h, float[N,4] y, float[A,B,C] w, int64 n",
        )
        for axes in (
            "1], scan_output_axes = [1, 2]",
            "-1], scan_output_axes = [0, 1], scan_input_directions = [1]",
            "1], scan_output_axes = [-1, -2], scan_output_directions = [1, 1]",
        )
    },
    "an If in a Loop": case(
        "r = Tanh (x) y = Loop (m, c, x) <body = b (int64 i, bool c0, float[N,4] s) => (bool c1, float[N,4] s1)"
        " { c1 = Identity (c0) mx = ReduceMax <keepdims = 0> (s) h = Constant <value = float {1.5}> () big = Less (h, mx)"
        " s1 = If (big) <then_branch = t () => (float[N,4] a) { a = Sub (s, r) }, else_branch = e () => (float[N,4] b)"
        " { b = Add (s, r) }> }>",
        "float[N,4] y",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_control_flow_gives_what_the_cpu_provider_gives(name: str) -> None:
    model, state = CASES[name]
    session, reference = webgpu_ep.session(model), ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    assert {"If", "Loop", "Scan"}.isdisjoint(it.op_type for it in webgpu_ep.report(session).on_cpu)
    for rows, trips, go in ((3, 0, True), (3, 1, True), (1, 5, True), (3, 5, False), (3, 9, True)):
        x = np.random.default_rng(rows).standard_normal((rows, 4)[: state.count(",") + 1]).astype(np.float32)
        x.flat[0] = np.nan if trips == 5 else np.inf if trips == 9 else x.flat[0]
        feeds = {"x": x, "c": np.array(go), "m": np.array(trips, np.int64)}
        for mine, theirs in zip(session.run(None, feeds), reference.run(None, feeds), strict=True):
            assert mine.shape == theirs.shape
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("width", "axis"), [(None, 0), (1, 0), (3, 0), (4, 0), (3, 1), (4, 1)])
@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.float16])
def test_rows_of_a_scan_that_are_no_whole_words_run_on_the_cpu(dtype: Any, width: int | None, axis: int) -> None:
    code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    row = [] if width is None else [width]
    info = onnx.helper.make_tensor_value_info
    nodes = [
        onnx.helper.make_node("Not" if dtype is np.bool_ else "Neg", ["r"], ["o"]),
        onnx.helper.make_node("Tanh", ["s"], ["s1"]),
    ]
    body = onnx.helper.make_graph(
        nodes, "b", [info("s", 1, [2]), info("r", code, row)], [info("s1", 1, [2]), info("o", code, row)]
    )
    scan = onnx.helper.make_node(
        "Scan", ["h", "x"], ["h1", "y"], body=body, num_scan_inputs=1, scan_input_axes=[axis], scan_output_axes=[axis]
    )
    shape = [*row, "N"] if axis else ["N", *row]
    given = [info("h", 1, [2]), info("x", code, shape)]
    graph = onnx.helper.make_graph([scan], "g", given, [info("h1", 1, [2]), info("y", code, shape)])
    opsets = [onnx.helper.make_opsetid("", 18)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    session = webgpu_ep.session(model, allow_cpu_only=True)
    reasons = [it.reason or "" for it in webgpu_ep.report(session).on_cpu if it.op_type == "Scan"]
    cut = np.dtype(dtype).itemsize * (width or 1) % 4 != 0
    assert [("its rows are not whole 32-bit words, such as those of 'x'" in it) for it in reasons] == [True] * cut
    x = np.random.default_rng(0).integers(0, 2, (*row, 5) if axis else (5, *row)).astype(dtype)
    feeds = {"h": np.ones(2, np.float32), "x": x}
    np.testing.assert_array_equal(session.run(["y"], feeds)[0], ~x if dtype is np.bool_ else -x)


@pytest.mark.parametrize("code", [onnx.TensorProto.INT4, onnx.TensorProto.UINT4])
def test_a_loop_that_joins_parts_of_bytes_runs_on_the_cpu(code: int) -> None:
    info = onnx.helper.make_tensor_value_info
    nodes = [
        onnx.helper.make_node("Identity", ["c"], ["c1"]),
        onnx.helper.make_node("Neg", ["s"], ["s1"]),
        onnx.helper.make_node("Cast", ["s"], ["o"], to=code),
    ]
    body = onnx.helper.make_graph(
        nodes,
        "b",
        [info("i", 7, []), info("c", 9, []), info("s", 1, [3])],
        [info("c1", 9, []), info("s1", 1, [3]), info("o", code, [3])],
    )
    loop = onnx.helper.make_node("Loop", ["m", "", "x"], ["y", "z"], body=body)
    given = [info("m", 7, []), info("x", 1, [3])]
    graph = onnx.helper.make_graph([loop], "g", given, [info("y", 1, [3]), info("z", code, [None, 3])])
    opsets = [onnx.helper.make_opsetid("", 21)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    on_cpu = {it.op_type: it.reason or "" for it in webgpu_ep.report(webgpu_ep.session(model)).on_cpu}
    assert "a Loop runs on the CPU if its elements are smaller than a byte, such as those of 'z'" in on_cpu["Loop"]
