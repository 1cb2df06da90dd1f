"""Normalisations and softmax that a graph spells out: one kernel, with the values of the graph as it is; and why there is none."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import TensorProto
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler import kernels
from tests.support import Runner, compile_model, hardware, labels, make_model, target

F = np.float32
SQUARES = {
    "Pow": [node("Pow", ["d", "two"], ["q"])],
    "Mul": [node("Mul", ["d", "d"], ["q"])],
}
INVERSES = {
    "divided": [node("Sqrt", ["e"], ["s"]), node("Div", ["d", "s"], ["n"])],
    "root by Pow": [node("Pow", ["e", "half"], ["s"]), node("Div", ["d", "s"], ["n"])],
    "reciprocal": [node("Sqrt", ["e"], ["s"]), node("Reciprocal", ["s"], ["r"]), node("Mul", ["d", "r"], ["n"])],
    "one divided": [node("Sqrt", ["e"], ["s"]), node("Div", ["one", "s"], ["r"]), node("Mul", ["r", "d"], ["n"])],
    "inverse by Pow": [node("Pow", ["e", "minus_half"], ["r"]), node("Mul", ["d", "r"], ["n"])],
}


def model(square, inverse, *, centred, affine=True, dtype=F, shape=(3, 5, 70), axes=(-1,), dynamic=False, wide=False):
    """A normalisation of x; `wide` calculates what is given in halves in f32, as exporters write it."""
    inner = F if wide else dtype
    source = "x"
    nodes = []
    if wide:
        nodes.append(node("Cast", ["x"], ["w"], to=TensorProto.FLOAT))
        source = "w"
    if centred:
        nodes += [node("ReduceMean", [source, "axes"], ["m"]), node("Sub", [source, "m"], ["d"])]
    else:
        nodes.append(node("Identity", [source], ["d"]))
    nodes += [*SQUARES[square], node("ReduceMean", ["q", "axes"], ["v"]), node("Add", ["eps", "v"], ["e"])]
    nodes += INVERSES[inverse]
    last = "n"
    if wide:
        nodes.append(node("Cast", ["n"], ["c"], to=TensorProto.FLOAT16))
        last = "c"
    if affine:
        nodes += [node("Mul", ["gain", last], ["g"]), node("Add", ["g", "bias"], ["y"])]
    else:
        nodes.append(node("Identity", [last], ["y"]))
    rng = np.random.default_rng(5)
    weights = {
        "two": np.array(2, inner), "half": np.array(0.5, inner), "minus_half": np.array(-0.5, inner),
        "one": np.array(1, inner), "eps": np.array(1e-3, inner), "axes": np.array(axes),
        "gain": rng.standard_normal(shape[-1]).astype(dtype), "bias": rng.standard_normal(shape[-1]).astype(dtype),
    }  # fmt: skip
    read = {name for it in nodes for name in it.input}
    dims = ["b", "s", shape[-1]] if dynamic else list(shape)
    return make_model(nodes, {"x": (dtype, dims)}, {name: it for name, it in weights.items() if name in read})


def expected(x, made, *, centred, axes=(-1,)):
    x = x.astype(np.float64)
    d = x - x.mean(axes, keepdims=True) if centred else x
    y = d / np.sqrt((d * d).mean(axes, keepdims=True) + 1e-3)
    weights = {it.name: it for it in made.graph.initializer}
    if "gain" in weights:
        from onnx.numpy_helper import to_array

        y = y * to_array(weights["gain"]).astype(np.float64) + to_array(weights["bias"]).astype(np.float64)
    return y


def check(monkeypatch, made, x, want, label, on, tolerance=4e-6):
    program = compile_model(made, on)
    assert labels(program) == [label], program.declined
    (y,) = Runner(program)(x)
    np.testing.assert_allclose(y.astype(np.float64), want, rtol=tolerance, atol=tolerance)
    with monkeypatch.context() as patched:
        patched.setattr(kernels, "rewrite", lambda graph, target: graph)
        plain = compile_model(made, on)
    assert len(plain.dispatches) > 1
    (other,) = Runner(plain)(x)
    np.testing.assert_allclose(y.astype(np.float64), other.astype(np.float64), rtol=tolerance, atol=tolerance)


ON = {"own": target, "gpu": hardware}


@pytest.mark.costly
@pytest.mark.parametrize("on", ON)
@pytest.mark.parametrize(("square", "inverse"), list(itertools.product(SQUARES, INVERSES)))
@pytest.mark.parametrize("centred", [True, False], ids=["centred", "not centred"])
def test_every_spelling_of_a_normalisation_is_one_kernel(monkeypatch, centred, square, inverse, on):
    made = model(square, inverse, centred=centred)
    x = (np.random.default_rng(0).standard_normal((3, 5, 70)) * 3 + 2).astype(F)
    check(monkeypatch, made, x, expected(x, made, centred=centred), "layer_norm", ON[on]())


@pytest.mark.costly
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("wide", [True, False], ids=["in f32", "in f16"])
@pytest.mark.parametrize("centred", [True, False], ids=["centred", "not centred"])
def test_halves(monkeypatch, centred, wide, affine):
    made = model("Pow", "divided", centred=centred, dtype=np.float16, wide=wide, affine=affine)
    x = np.random.default_rng(0).standard_normal((3, 5, 70)).astype(np.float16)
    check(monkeypatch, made, x, expected(x, made, centred=centred), "layer_norm", hardware(), 4e-3)


@pytest.mark.costly
@pytest.mark.parametrize("axes", [(-1,), (1, 2), (-2, -1), (0, 1, 2)], ids=str)
def test_axes(monkeypatch, axes):
    made = model("Mul", "reciprocal", centred=True, axes=axes)
    x = np.random.default_rng(0).standard_normal((3, 5, 70)).astype(F)
    check(monkeypatch, made, x, expected(x, made, centred=True, axes=axes), "layer_norm", hardware())


def test_sizes_of_a_run():
    made = model("Pow", "divided", centred=True, dynamic=True)
    program = compile_model(made, hardware())
    assert labels(program) == ["layer_norm"]
    run = Runner(program)
    for shape in ((1, 1, 70), (7, 3, 70), (0, 4, 70)):
        x = np.random.default_rng(1).standard_normal(shape).astype(F)
        np.testing.assert_allclose(run(x)[0], expected(x, made, centred=True), rtol=4e-6, atol=4e-6)


def softmax(dtype=F, axis=-1):
    nodes = [
        node("ReduceMax", ["x", "axes"], ["m"]),
        node("Sub", ["x", "m"], ["d"]),
        node("Exp", ["d"], ["q"]),
        node("ReduceSum", ["q", "axes"], ["v"]),
        node("Div", ["q", "v"], ["y"]),
    ]
    return make_model(nodes, {"x": (dtype, [4, 6, 33])}, {"axes": np.array([axis])})


@pytest.mark.costly
@pytest.mark.parametrize(("dtype", "tolerance"), [(F, 4e-6), (np.float16, 2e-3)], ids=["f32", "f16"])
@pytest.mark.parametrize("on", ON)
def test_a_softmax_is_one_kernel(monkeypatch, on, dtype, tolerance):
    x = np.random.default_rng(2).standard_normal((4, 6, 33)).astype(dtype)
    x[0, 0, 3] = np.inf if dtype is F else 9
    x[1, 1, :5] = -np.inf
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        powers = np.exp(wide - wide.max(-1, keepdims=True))
        check(monkeypatch, softmax(dtype), x, powers / powers.sum(-1, keepdims=True), "softmax", ON[on](), tolerance)


MEAN = [node("ReduceMean", ["q", "axes"], ["v"]), node("Add", ["v", "eps"], ["e"]), node("Sqrt", ["e"], ["s"])]
SQUARE = [node("Mul", ["x", "x"], ["q"]), *MEAN]
DECLINED = {
    "normalisation: the deviation has another reader": [*SQUARE, node("Div", ["x", "s"], ["y"]), node("Exp", ["s"], ["z"])],
    "normalisation: the deviation does not divide the rows it was computed from": [*SQUARE, node("Div", ["w", "s"], ["y"])],
    "normalisation: the inverse deviation does not multiply the rows": [*SQUARE, node("Div", ["s", "x"], ["y"])],
    "softmax: the sum has another reader than a division": [
        node("ReduceMax", ["x", "axes"], ["m"]), node("Sub", ["x", "m"], ["d"]), node("Exp", ["d"], ["q"]),
        node("ReduceSum", ["q", "axes"], ["v"]), node("Log", ["v"], ["y"]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("reason", DECLINED)
def test_a_reason_is_given_where_a_rule_does_not_apply(reason):
    nodes = DECLINED[reason]
    read = {name for it in nodes for name in it.input}
    inputs = {name: (F, [2, 8, 8]) for name in ("x", "w") if name in read}
    weights = {"axes": np.array([-1]), "eps": np.array(1e-3, F)}
    program = compile_model(make_model(nodes, inputs, {k: v for k, v in weights.items() if k in read}), hardware())
    assert [f"{it.rule}: {it.reason}" for it in program.declined] == [reason]


UNLIKE = {
    "rows of another axis": [
        node("Mul", ["x", "x"], ["q"]), node("ReduceMean", ["q", "first"], ["v"]), node("Add", ["v", "eps"], ["e"]),
        node("Sqrt", ["e"], ["s"]), node("Div", ["x", "s"], ["y"]),
    ],
    "the mean of other axes": [
        node("ReduceMean", ["x", "first"], ["m"]), node("Sub", ["x", "m"], ["d"]), node("Mul", ["d", "d"], ["q"]), *MEAN,
        node("Div", ["d", "s"], ["y"]),
    ],
    "a deviation of columns": [*SQUARE, node("Transpose", ["s"], ["t"], perm=[0, 2, 1]), node("Div", ["x", "t"], ["y"])],
    "the mean of something else": [
        node("ReduceMean", ["w", "axes"], ["m"]), node("Sub", ["x", "m"], ["d"]), node("Mul", ["d", "d"], ["q"]), *MEAN,
        node("Div", ["d", "s"], ["y"]),
    ],
    "a sum": [
        node("Mul", ["x", "x"], ["q"]), node("ReduceSum", ["q", "axes"], ["v"]), node("Add", ["v", "eps"], ["e"]),
        node("Sqrt", ["e"], ["s"]), node("Div", ["x", "s"], ["y"]),
    ],
    "the lowest instead of the highest": [
        node("ReduceMin", ["x", "axes"], ["m"]), node("Sub", ["x", "m"], ["d"]), node("Exp", ["d"], ["q"]),
        node("ReduceSum", ["q", "axes"], ["v"]), node("Div", ["q", "v"], ["y"]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", UNLIKE)
def test_what_only_looks_like_one_keeps_its_values(name, monkeypatch):
    """Graphs that differ from a normalisation in one thing: the same values with the rules and without."""
    nodes = UNLIKE[name]
    read = {it for n in nodes for it in n.input}
    names = [it for it in ("x", "w") if it in read]
    weights = {"axes": np.array([-1]), "first": np.array([1]), "eps": np.array(1e-3, F)}
    made = make_model(nodes, {it: (F, [3, 7, 7]) for it in names}, {k: v for k, v in weights.items() if k in read})
    arrays = [np.random.default_rng(k).standard_normal((3, 7, 7)).astype(F) for k in range(len(names))]
    program = compile_model(made, hardware())
    (y,) = Runner(program)(*arrays)
    monkeypatch.setattr(kernels, "rewrite", lambda graph, target: graph)
    (other,) = Runner(compile_model(made, hardware()))(*arrays)
    np.testing.assert_allclose(y, other, rtol=4e-6, atol=4e-6)
