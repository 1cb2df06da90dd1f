"""Inputs whose extents share a name, and get different sizes in a run: ONNX Runtime takes names as hints, and so do we."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.errors import UnsupportedError

Feeds = dict[str, np.ndarray]
OpenSession = Callable[..., ort.InferenceSession]

SPELLINGS = {
    "apart": "(float[n,2] a, float[n,2] b) => (float[n,2] y, float[n,2] z) { y = Relu (a) [mid] t = Neg (b) z = Exp (t) }",
    "within one": "(float[n,n] a) => (float[n,n] y, float[n,n] z) { [mid] t = Neg (a) y = Tanh (t) z = Transpose (t) }",
    "broadcast": "(float[n,2] a, float[n,2] b) => (float[n,2] y) { [mid] t = Tanh (a) u = Mul (t, b) y = Add (u, a) }",
    "both axes": "(float[n,n] a, float[n,n] b) => (float[n,n] y) { t = Neg (b) [mid] u = Add (a, t) y = Relu (u) }",
    "concat": "(float[n,2] a, float[n,2] b, float[n,2] c) => (float[m,2] y)"
    " { [mid] t = Neg (b) u = Concat <axis = 0> (a, t, c) y = Tanh (u) }",
    "beside": "(float[n,2] a, float[n,n] b) => (float[n,m] y) { [mid] t = Tanh (b) u = Concat <axis = 1> (a, t) y = Neg (u) }",
    "product": "(float[n,k] a, float[k,n] b) => (float[n,n] y, float[n] z)"
    " { t = MatMul (a, b) [mid] y = Relu (t) z = ReduceSum <keepdims = 0> (y, ax) }",
    "square product": "(float[n,n] a, float[n,n] b) => (float[n,n] y) { t = MatMul (a, b) [mid] u = Neg (t) y = Tanh (u) }",
    "reshaped": "(float[n,k] a, float[n,k] b) => (float[n,k] y)"
    " { s = Shape (a) [mid] t = Neg (b) u = Reshape (t, s) y = Mul (u, u) }",
    "expanded": "(float[n,1] a, float[n,k] b) => (float[n,k] y) { s = Shape (b) [mid] t = Neg (a) u = Expand (t, s) y = Exp (u) }",
    "cut to another": "(float[n,2] a, float[n,2] b) => (float[n,2] y)"
    " { s = Shape <start = 0, end = 1> (b) [mid] t = Neg (a) u = Slice (t, zero, s) y = Tanh (u) }",
    "gathered": "(float[n,3] a, int64[n] i) => (float[n,3] y) { [mid] t = Neg (a) u = Gather <axis = 1> (t, i) y = Relu (u) }",
    "masked": "(float[b,n] a, bool[b,n] c) => (float[b,n] y) { [mid] t = Neg (a) u = Where (c, t, a) y = Softmax (u) }",
    "sizes compared": "(float[n] a, float[n] b) => (float[n] y)"
    " { s = Shape (a) t = Shape (b) e = Equal (s, t) [mid] u = Neg (b) y = Where (e, u, b) }",
    "an axis of sizes": "(float[n,2] a, float[n,2] b) => (float[l,k] y)"
    " { s = Shape <start = 0, end = 1> (a) t = Shape <start = 0, end = 1> (b) e = Equal (s, t) w = Cast <to = 7> (e)"
    " [mid] u = Neg (a) y = ReduceMean (u, w) }",
}
RANK_OF_SIZES = (
    "(float[n,2] a, float[n,2] b) => (float[l] y) { s = Shape <start = 0, end = 1> (a) t = Shape <start = 0, end = 1> (b)"
    " e = Equal (s, t) w = Cast <to = 7> (e) c = Concat <axis = 0> (w, ax) r = ReduceSum (a) z = Expand (r, c) y = Squeeze (z) }"
)
HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '
CONSTANTS = " <int64[1] ax = {1}, int64[1] zero = {0}> {"
TYPES = {1: np.float32, 7: np.int64, 9: np.bool_}
WAYS = ["run", "bound", "captured", "in two groups"]


def model_of(spelling: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD + SPELLINGS.get(spelling, spelling).replace(" {", CONSTANTS, 1))


def runs_of(model: onnx.ModelProto, count: int, seed: int) -> list[Feeds]:
    """Feeds of random sizes from 1 to 4, the first of which keep to the names."""
    dice = np.random.default_rng(seed)
    found = []
    for turn in range(count):
        named: dict[str, int] = {}
        feeds = {}
        for it in model.graph.input:
            shape = []
            for dim in it.type.tensor_type.shape.dim:
                size = int(dice.integers(1, 5))
                if turn == 0:
                    size = named.setdefault(dim.dim_param, size)
                shape.append(dim.dim_value or size)
            dtype = TYPES[it.type.tensor_type.elem_type]
            values = dice.standard_normal(shape) if dtype == np.float32 else dice.integers(0, 2, shape)
            feeds[it.name] = values.astype(dtype)
        found.append(feeds)
    return found


def bound(session: ort.InferenceSession, feeds: Feeds, options: ort.RunOptions | None = None) -> list[np.ndarray]:
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array, "webgpu", 0))
    for it in session.get_outputs():
        binding.bind_output(it.name, "webgpu")
    session.run_with_iobinding(binding, options)
    return binding.copy_outputs_to_cpu()


def opened(model: onnx.ModelProto, way: str) -> Callable[[Feeds], list[np.ndarray]]:
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    # Between nodes ONNX Runtime gives tensors with the same names one buffer, and refuses runs where the second is larger.
    settings.enable_mem_reuse = way != "in two groups"
    options: dict[str, Any] = {
        "captured": {"enableGraphCapture": 1},
        "in two groups": {"forceCpuNodeNames": "mid"},
    }.get(way, {})
    session = webgpu_ep.session(model.SerializeToString(), sess_options=settings, **options)
    if way == "bound":
        return lambda feeds: bound(session, feeds)
    return lambda feeds: session.run(None, feeds)


@pytest.mark.costly
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_what_the_cpu_provider_runs_runs_and_is_right(spelling: str, backwards: bool, way: str) -> None:
    model = model_of(spelling)
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    reference = ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    ours = opened(model, way)
    runs = runs_of(model, 12, 5)
    outcomes = set()
    for feeds in [*runs[::-1], *runs] if backwards else [*runs, *runs[::-1]]:
        try:
            wanted = reference.run(None, feeds)
        except Exception:
            outcomes.add("refused")
            with pytest.raises(Exception, match=r"node '|input '|Non-zero status code"):
                ours(feeds)
            continue
        outcomes.add("right")
        for got, want in zip(ours(feeds), wanted, strict=True):
            assert got.shape == want.shape and got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert "right" in outcomes


@pytest.mark.costly
@pytest.mark.parametrize("spelling", ["broadcast", "beside", "an axis of sizes"])
def test_threads_with_sizes_of_all_kinds_get_what_is_theirs(spelling: str) -> None:
    model = model_of(spelling)
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    reference = ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    ours = opened(model, "run")

    def work(seed: int) -> None:
        for feeds in runs_of(model, 12, seed):
            try:
                wanted = reference.run(None, feeds)
            except Exception:
                with pytest.raises(Exception, match=r"node '|input '"):
                    ours(feeds)
                continue
            for got, want in zip(ours(feeds), wanted, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(8)))


def added(rows: int, other: int) -> Feeds:
    return {"a": np.ones((rows, 2), np.float32), "b": np.ones((other, 2), np.float32)}


def test_a_graph_is_compiled_once_more_whatever_the_sizes(compiled: list[dict[str, int]]) -> None:
    run = opened(model_of("broadcast"), "run")
    run(added(3, 3))
    assert not compiled
    for rows, other in itertools.permutations((1, 4, 7, 9), 2):
        if 1 in (rows, other):
            assert run(added(rows, other))[0].shape == (max(rows, other), 2)
    assert compiled == [{}]


def test_inputs_that_do_not_fit_together_change_nothing(compiled: list[dict[str, int]]) -> None:
    run = opened(model_of("broadcast"), "run")
    for rows in (3, 5, 7):
        with pytest.raises(
            Exception, match=rf"node 'Mul_\d': cannot broadcast.*'b' has 4 elements .*the model needs {rows} \(n"
        ):
            run(added(rows, 4))
    assert compiled == [{}]
    run(added(4, 4))
    # What was compiled for them waits for a run that it takes.
    assert run(added(1, 4))[0].shape == (4, 2)
    assert compiled == [{}]


def test_an_axis_that_a_name_decides_is_compiled_for_where_it_is_another(compiled: list[dict[str, int]]) -> None:
    run = opened(model_of("an axis of sizes"), "run")
    for _ in range(2):
        for rows, other in ((4, 2), (6, 3), (3, 3)):
            (y,) = run(added(rows, other))
            assert y.shape == ((rows, 1) if rows == other else (1, 2))
    assert compiled == [{}, {"n": 3, "n_of_b": 3}]


def test_what_needs_a_name_is_compiled_for_certain_sizes(compiled: list[dict[str, int]]) -> None:
    model = model_of(RANK_OF_SIZES)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    run = opened(model, "run")
    for _ in range(2):
        for rows, other in ((4, 2), (6, 3), (3, 3)):
            assert run(added(rows, other))[0].shape == (() if rows == other else (0,))
    assert compiled == [{}, {"n": 4, "n_of_b": 2}, {"n": 6, "n_of_b": 3}]


def test_names_that_were_taken_apart_say_of_which_input_they_are() -> None:
    text = (
        HEAD
        + "(float[n,n] a, float[n,1] n_of_a, float[n,1] x_y) => (float[n,n] y) { t = Add (a, n_of_a) y = Add (t, x_y) }"
    )
    session = webgpu_ep.session(onnx.parser.parse_model(text).SerializeToString(), validationMode="basic")
    with pytest.raises(Exception, match=r"the inputs have n = 2, n_of_a = 3, n_of_n_of_a = 4;"):
        session.run(
            None, {it: np.ones(shape, np.float32) for it, shape in (("a", (2, 3)), ("n_of_a", (4, 1)), ("x_y", (2, 1)))}
        )
    given = {
        "a": np.ones((2, 3), np.float32),
        "n_of_a": np.ones((1, 1), np.float32),
        "x_y": np.ones((1, 1), np.float32),
    }
    assert session.run(None, given)[0].shape == (2, 3)
    with pytest.raises(Exception, match=r"the inputs have n = 2, n_of_a = 3, n_of_n_of_a = 1, n_of_x_y = 5;"):
        session.run(None, given | {"x_y": np.ones((5, 1), np.float32)})


def test_what_compiles_with_no_sizes_names_the_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise UnsupportedError("not without that name")

    monkeypatch.setattr("onnxruntime_ep_wgpu.plugin.specialise.compile_graph", refuse)
    run = opened(model_of("broadcast"), "run")
    with pytest.raises(Exception, match=r"input 'b' has 1 elements along axis 0, the model needs 3 \(n\)"):
        run(added(3, 1))
    run(added(3, 3))


def test_numbers_that_the_model_gives_its_inputs_bind_all_the_same(open_session: OpenSession) -> None:
    text = HEAD + "(float[3,2] a, float[n,2] b) => (float[n,2] y) { y = Add (a, b) }"
    session = open_session(onnx.parser.parse_model(text).SerializeToString())
    with pytest.raises(Exception, match=r"(?s)invalid dimensions for input: a.*Got: 1 Expected: 3"):
        session.run(None, added(1, 3))
    assert session.run(None, added(3, 1))[0].shape == (3, 2)
