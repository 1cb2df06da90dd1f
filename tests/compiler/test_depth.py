"""What depth costs: expressions, checks and symbols of a Program do not grow with the layers that share them."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler import dims
from onnxruntime_ep_wgpu.compiler.dims import Names, symbol
from onnxruntime_ep_wgpu.compiler.passes import fuse
from onnxruntime_ep_wgpu.program.program import Program
from tests.language.models import Decoder, graph_of
from tests.support import Runner, compile_model, make_model

F, I64 = np.float32, np.int64
LAST = np.array([2**31 - 1])


def blocks(count: int, cut: str = "own"):
    """`count` blocks of y = y + tanh(y + c), where c is the last rows of x: as many as x has, or as `other` has."""
    nodes = [
        node("Shape", ["x" if cut == "own" else "other"], ["shape"]),
        node("Slice", ["shape", "zero", "one"], ["rows"]),
        node("Neg", ["rows"], ["start"]),
        node("Slice", ["x", "start", "last"], ["c"]),
    ]
    for k in range(count):
        nodes += [node("Add", [f"y{k}", "c"], [f"a{k}"]), node("Tanh", [f"a{k}"], [f"t{k}"])]
        nodes += [node("Add", [f"y{k}", f"t{k}"], [f"y{k + 1}"])]
    inputs = {"x": (F, ["s", 4]), "y0": (F, ["t", 4])} | ({} if cut == "own" else {"other": (F, ["r", 4])})
    return make_model(nodes, inputs, {"zero": np.array([0]), "one": np.array([1]), "last": LAST})


def longest(program: Program) -> int:
    """Tokens of the longest expression in a Program."""
    found = [d for v in program.values for d in (*v.shape, *v.elements)]
    found += [d for x in program.dispatches for d in (*x.uniforms, *x.guards, *x.workgroups, x.flops, x.traffic)]
    found += [c.condition for c in program.checks] + [
        d for _, d in (*program.definitions, *program.message_definitions)
    ]
    return max(len(d) for d in found if not isinstance(d, int))


@pytest.mark.costly
@pytest.mark.parametrize("cut", ["own", "other"])
def test_layers_that_share_their_dims_add_no_expression(cut):
    shallow, deep = (compile_model(blocks(n, cut)) for n in (4, 200))
    assert longest(deep) <= max(longest(shallow), 64)
    assert len(deep.checks) == len(shallow.checks)
    assert len(deep.definitions) <= len(shallow.definitions) + 2
    assert len(deep.dispatches) < 200


def test_layers_that_broadcast_compute_what_they_say():
    run = Runner(compile_model(blocks(3, "other")))
    generator = np.random.default_rng(1)
    for s, t, r in ((5, 3, 3), (5, 1, 2), (3, 3, 7), (4, 4, 4), (5, 1, 5), (6, 1, 1)):
        x, y, other = (generator.normal(size=(n, 4)).astype(F) for n in (s, t, r))
        want = y
        for _ in range(3):
            want = want + np.tanh(want + x[-r:])
        np.testing.assert_allclose(run(x, y, other)[0], want, rtol=2e-5, atol=2e-6)


def test_shapes_of_windows_that_are_padded_to_fit_are_exact():
    """Swin: pad to a multiple of the window, cut into windows, put together, roll; nothing is left to be checked."""
    nodes = [
        node("Shape", ["x"], ["height"], start=1, end=2),
        node("Mod", ["height", "seven"], ["over"]),
        node("Sub", ["seven", "over"], ["short"]),
        node("Mod", ["short", "seven"], ["pad"]),
        node("Concat", ["zeros", "pad", "zero"], ["pads"], axis=0),
        node("Pad", ["x", "pads"], ["padded"]),
        node("Shape", ["padded"], ["taller"], start=1, end=2),
        node("Div", ["taller", "seven"], ["count"]),
        node("Concat", ["copy", "count", "seven", "rest"], ["cut"], axis=0),
        node("Reshape", ["padded", "cut"], ["windows"]),
        node("Transpose", ["windows"], ["turned"], perm=[0, 2, 1, 3]),
        node("Transpose", ["turned"], ["back"], perm=[0, 2, 1, 3]),
        node("Concat", ["copy", "taller", "rest"], ["whole"], axis=0),
        node("Reshape", ["back", "whole"], ["together"]),
        node("Slice", ["together", "three", "last", "one"], ["low"]),
        node("Slice", ["together", "zero", "three", "one"], ["high"]),
        node("Concat", ["low", "high"], ["rolled"], axis=1),
        node("Add", ["rolled", "together"], ["y"]),
    ]
    weights = {"seven": [7], "zeros": [0, 0, 0, 0], "zero": [0], "copy": [0], "rest": [-1], "three": [3], "one": [1]}
    model = make_model(nodes, {"x": (F, ["b", "h", 2])}, {k: np.array(v) for k, v in weights.items()} | {"last": LAST})
    program = compile_model(model)
    assert program.checks == ()
    run = Runner(program)
    for b, h in ((1, 7), (2, 8), (1, 20), (1, 1)):
        x = np.random.default_rng(h).normal(size=(b, h, 2)).astype(F)
        padded = np.pad(x, ((0, 0), (0, -h % 7), (0, 0)))
        np.testing.assert_array_equal(run(x)[0], np.roll(padded, -3, axis=1) + padded)


VALUES_ONLY = {
    "sum": [node("Add", ["a", "two"], ["y"])],
    "product": [node("Mul", ["a", "a"], ["y"])],
    "comparison": [node("Less", ["a", "two"], ["y"])],
    "choice": [node("Equal", ["a", "two"], ["c"]), node("Where", ["c", "a", "two"], ["y"])],
    "mask": [node("Equal", ["a", "two"], ["c"]), node("Cast", ["c"], ["m"], to=1), node("Mul", ["x", "m"], ["y"])],
    "moved": [node("Unsqueeze", ["a", "zero"], ["u"]), node("Concat", ["u", "u"], ["y"], axis=0)],
    "least": [node("Min", ["a", "two"], ["y"])],
    "total": [node("ReduceSum", ["a"], ["y"], keepdims=0)],
    "cut": [node("Slice", ["a", "one", "three"], ["y"])],
    "picked": [node("Gather", ["a", "one"], ["y"])],
    "as float": [node("Cast", ["a"], ["f"], to=1), node("Add", ["x", "f"], ["y"])],
}


@pytest.mark.parametrize("kind", [np.int64, np.int32])
@pytest.mark.parametrize("name", VALUES_ONLY)
def test_values_that_set_no_shape_are_not_read_back(name, kind):
    """One plan serves all values of a small integer input, though each of these operators is known to the host too."""
    constants = {"two": np.array([2], kind), "zero": np.array([0]), "one": np.array([1]), "three": np.array([3])}
    inputs = {"a": (kind, [3])} | ({"x": (F, ["n", 3])} if name in ("mask", "as float") else {})
    model = make_model(VALUES_ONLY[name], inputs, constants)
    program = compile_model(model)
    assert not [s for s in program.symbols if s.is_element]
    run = Runner(program)
    from onnx.reference import ReferenceEvaluator

    oracle = ReferenceEvaluator(model)
    for values in ([0, 1, 2], [2, 2, 2], [-5, 7, 1]):
        feeds = {"a": np.array(values, kind)} | ({"x": np.ones((2, 3), F)} if len(inputs) > 1 else {})
        (want,) = oracle.run(None, feeds)
        np.testing.assert_array_equal(run(*feeds.values())[0], want)
    assert len(run.executable.plans) == 1


def test_only_the_elements_that_set_shapes_are_read():
    nodes = [
        node("Add", ["a", "two"], ["values"]),
        node("Gather", ["a", "one"], ["length"]),
        node("Expand", ["x", "length"], ["y"]),
        node("Slice", ["a", "zero", "one"], ["first"]),
        node("Add", ["first", "two"], ["z"]),
    ]
    constants = {"two": np.array([2]), "zero": np.array([0]), "one": np.array([1])}
    program = compile_model(make_model(nodes, {"a": (I64, [3]), "x": (F, [1])}, constants))
    assert [(s.name, s.index) for s in program.symbols if s.is_element] == [("@a[1]", 1)]
    run = Runner(program)
    for length in (2, 5):
        for other in (1, 9):
            values, y, z = run(np.array([other, length, other]), np.array([3], F))
            assert values.tolist() == [other + 2, length + 2, other + 2] and z.tolist() == [other + 2]
            assert y.tolist() == [3.0] * length
    assert len(run.executable.plans) == 2


def test_joining_what_lies_far_apart_costs_no_more_per_node_in_a_longer_graph(monkeypatch):
    """Every step adds an early tensor of its own to a late one: whether they may share a kernel is asked each time."""

    def graph(count: int):
        nodes = [node("Relu", [f"x{k}"], [f"early{k}"]) for k in range(count)]
        for k in range(count):
            nodes += [node("MatMul", [f"t{k}", "w"], [f"t{k + 1}"]), node("Gather", [f"t{k + 1}", "order"], [f"g{k}"])]
            nodes.append(node("Sub", [f"g{k}", f"early{k}"], [f"y{k}"]))
        inputs = {"t0": (F, [2, 2])} | {f"x{k}": (F, [2, 2]) for k in range(count)}
        return make_model(nodes, inputs, {"w": np.eye(2, dtype=F), "order": np.array([1, 0])})

    asked = 0
    inner = fuse._Fusion._producer_groups

    def before(self, group):
        nonlocal asked
        asked += 1
        return inner(self, group)

    monkeypatch.setattr(fuse._Fusion, "_producer_groups", before)
    work = []
    for count in (300, 600, 1200):
        asked = 0
        compile_model(graph(count))
        work.append(asked)
    assert work[2] - work[1] < 2.5 * (work[1] - work[0])


def test_an_expression_is_named_once():
    names, n = Names(), symbol("n")
    long = sum(dims.floordiv(n * n, k) for k in range(3, 40, 2))
    assert names.of(long) is names.of(long) and len(names.definitions) == 1
    program = compile_model(graph_of(Decoder(layers=2)))
    expressions = [expression for _, expression in program.definitions]
    assert expressions and len(set(expressions)) == len(expressions)


MOST_CALLS = {"fp32": 15_000, "int4": 24_000}  # per layer: 15 % more than in November 2026


@pytest.mark.costly
@pytest.mark.parametrize("kind", MOST_CALLS)
def test_a_layer_costs_as_much_as_the_layer_before(kind):
    """In calls of functions: what is known of one layer is not worked out for the next, and none looks at all the others."""

    def calls(layers: int) -> int:
        model, count = graph_of(Decoder(kind, layers=layers)), 0

        def counted(_frame: object, event: str, _arg: object) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(counted)
        try:
            compile_model(model)
        finally:
            sys.setprofile(None)
        return count

    calls(2)  # what a process does once
    few, more, most = calls(8), calls(16), calls(24)
    assert abs((most - more) - (more - few)) < 0.02 * (more - few)
    assert (more - few) / 8 < MOST_CALLS[kind]
