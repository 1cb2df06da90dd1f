"""A group is lowered when it is decided on, and that is what is compiled: once, from memory that is still there."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.api.reports import state_of
from onnxruntime_ep_wgpu.compiler.compile import compile_lowered
from onnxruntime_ep_wgpu.compiler.graph.facts import facts_of
from onnxruntime_ep_wgpu.compiler.lower import lower
from onnxruntime_ep_wgpu.plugin.assign import subgraph
from onnxruntime_ep_wgpu.plugin.assign.converted import NumbersAttribute
from onnxruntime_ep_wgpu.plugin.assign.lowerings import Lowerings
from onnxruntime_ep_wgpu.program.weights import Permuted
from tests import targets, zoo
from tests.support import Runner, compile_model, target

from . import models

F = np.float32
RNG = np.random.default_rng(3)


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the nodes that are lowered, in order."""
    names: list[str] = []
    node = lower.Lowering.node

    def noted(self: Any, it: ir.Node, name: str = "") -> None:
        if not name:
            names.append(it.name or "")
        node(self, it, name)

    monkeypatch.setattr(lower.Lowering, "node", noted)
    return names


def test_every_node_of_a_graph_that_runs_here_is_lowered_once(lowered: list[str]) -> None:
    session = webgpu_ep.session(models.chain())
    x = RNG.standard_normal((5, 8)).astype(F)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], models.chain_reference(x), rtol=1e-4, atol=1e-5)
    assert sorted(lowered) == sorted(node.name for node in webgpu_ep.report(session).nodes)


@pytest.mark.parametrize("forced", ["relu", "matmul"])
def test_a_group_of_a_graph_that_is_divided_is_lowered_once_more_and_not_to_compile_it(
    lowered: list[str], forced: str
) -> None:
    session = webgpu_ep.session(models.chain(), forceCpuNodeNames=[forced])
    x = RNG.standard_normal((5, 8)).astype(F)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], models.chain_reference(x), rtol=1e-4, atol=1e-5)
    names = [node.name for node in webgpu_ep.report(session).nodes]
    assert sorted(lowered) == sorted([*names, *(name for name in names if name != forced)])


@pytest.mark.costly
@pytest.mark.parametrize("name", ["tiny", "minilm_dynquant", "detector_nms", "lstm_gru"])
def test_models_are_compiled_as_they_were_decided_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that are turned or folded while lowering, external ones, and several groups among them."""
    monkeypatch.setattr("onnxruntime_ep_wgpu.plugin.compiling.compile_graph", None)
    try:
        case = zoo.load(name)
    except zoo.MissingWeightsError as missing:
        pytest.skip(str(missing))
    session = webgpu_ep.session(case.path)
    feeds = case.inputs(0)
    want = ort.InferenceSession(str(case.path), providers=["CPUExecutionProvider"]).run(None, feeds)
    for got, expected in zip(session.run(None, feeds), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-2, atol=2e-2)


def unknown_ranks() -> onnx.ModelProto:
    """A normalisation of whose result ONNX Runtime infers no shape, twice read behind where the graph is divided."""
    make = onnx.helper.make_node
    nodes = [
        make("GroupNormalization", ["x", "scale", "bias"], ["n"], "norm", num_groups=2),
        make("Relu", ["n"], ["r"], "relu"),
        make("Sigmoid", ["r"], ["s"], "cpu"),
        make("ReduceMean", ["r", "axes"], ["m"], "mean", keepdims=0),
        make("Softmax", ["s"], ["p"], "softmax", axis=1),
        make("Mul", ["m", "p"], ["y"], "mul"),
    ]
    value = onnx.helper.make_tensor_value_info
    inputs = [value("x", 1, ["b", 4, 3]), value("scale", 1, [4]), value("bias", 1, [4])]
    axes = onnx.helper.make_tensor("axes", onnx.TensorProto.INT64, [1], [0])
    graph = onnx.helper.make_graph(nodes, "g", inputs, [value("y", 1, None)], [axes])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.costly
@pytest.mark.parametrize("held", ["norm", "relu", "cpu", "softmax"])
def test_ranks_that_onnx_runtime_does_not_know_are_known_behind_nodes_of_the_cpu(
    held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxruntime_ep_wgpu.plugin.compiling.compile_graph", None)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = unknown_ranks()
    session = webgpu_ep.session(model.SerializeToString(), sess_options=options, forceCpuNodeNames=[held])
    left = [node.name for node in webgpu_ep.report(session).nodes if node.partition is None]
    assert left == [held] or held == "norm"  # a function, which the CPU provider runs as its body
    reference = ReferenceEvaluator(model)
    for rows in (1, 5):
        feeds = {"x": RNG.standard_normal((rows, 4, 3)).astype(F), "scale": RNG.random(4, F), "bias": RNG.random(4, F)}
        np.testing.assert_allclose(session.run(None, feeds)[0], reference.run(None, feeds)[0], rtol=1e-4, atol=1e-5)


def test_two_equal_bodies_know_the_ranks_that_one_of_them_found() -> None:
    graph = unknown_ranks().graph
    value, make = onnx.helper.make_tensor_value_info, onnx.helper.make_node
    body = onnx.helper.make_graph(list(graph.node), "body", [], list(graph.output), list(graph.initializer))
    node = make("If", ["which"], ["z"], "if", then_branch=body, else_branch=body)
    whole = onnx.helper.make_graph(
        [node], "g", [value("which", onnx.TensorProto.BOOL, []), *graph.input], [value("z", 1, None)]
    )
    model = onnx.helper.make_model(whole, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = webgpu_ep.session(model.SerializeToString(), sess_options=options, forceCpuNodeNames=["cpu"])
    assert {node.name for node in webgpu_ep.report(session).nodes if node.partition is None} == {"cpu"}
    feeds = {"x": RNG.standard_normal((2, 4, 3)).astype(F), "scale": RNG.random(4, F), "bias": RNG.random(4, F)}
    (want,) = ReferenceEvaluator(unknown_ranks()).run(None, feeds)
    for which in (True, False):
        np.testing.assert_allclose(
            session.run(None, {"which": np.array(which), **feeds})[0], want, rtol=1e-4, atol=1e-5
        )


def test_nothing_is_kept_when_a_session_is_made() -> None:
    for model in (models.chain(), models.mixed()):
        session = webgpu_ep.session(model)
        assert not state_of(session)._compiler._compiling.lowerings._kept


def chain(weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    nodes = [
        models.node("MatMul", ["x", "w"], ["m"], "product"),
        models.node("Transpose", ["c"], ["t"], "turn", perm=[1, 0]),
        models.node("Add", ["m", "t"], ["y"], "add"),
    ]
    return onnx.load_from_string(
        models.model(nodes, [("x", models.FLOAT, ["n", 8])], [("y", models.FLOAT, ["n", 4])], list(weights.items()))
    )


def group_of(
    model: onnx.ModelProto, weights: dict[str, np.ndarray], lent: dict[str, bytearray] | None = None
) -> ir.Graph:
    """The graph of a model with constants in memory that is not numpy's, as ONNX Runtime's is not: in `lent`."""
    graph = ir.from_proto(model).graph
    for name, value in graph.initializers.items():
        memory = (lent if lent is not None else {}).setdefault(name, bytearray(weights[name].tobytes()))
        value.const_value = ir.Tensor(np.frombuffer(memory, F).reshape(weights[name].shape), name=name)
    for value in list(graph.inputs):
        if value.is_initializer():
            graph.inputs.remove(value)
    return graph


def test_a_lowering_outlives_the_memory_that_it_was_made_from() -> None:
    weights = {"w": RNG.standard_normal((8, 4)).astype(F), "c": RNG.standard_normal((4, 1)).astype(F)}
    model = chain(weights)
    lent: dict[str, bytearray] = {}
    first = group_of(model, weights, lent)
    made = lower.attempt(first, first.opset_imports, target())
    assert made.lowered is not None
    kept = Lowerings()
    kept.keep(first, made.lowered, facts_of(first))
    assert len(lent) == 2
    for memory in lent.values():
        memory[:] = b"\xff" * len(memory)  # ONNX Runtime takes its memory back, which now holds NaN
    again = group_of(model, weights)
    found = kept.take(subgraph.extract(again, list(again)))
    assert found is made.lowered
    assert kept.take(again) is None  # compiling changes it
    x = RNG.standard_normal((3, 8)).astype(F)
    got = Runner(compile_lowered(found, target()))(x)[0]
    np.testing.assert_array_equal(got, Runner(compile_model(model))(x)[0])


def test_weights_in_another_order_outlive_that_memory_too() -> None:
    x = RNG.standard_normal((2, 8, 5, 5)).astype(F)
    weights = {name: RNG.standard_normal((8, 8, 3, 3)).astype(F) for name in ("v", "w")}
    nodes = [models.node("Conv", ["x", "v"], ["t"], "first"), models.node("Conv", ["t", "w"], ["y"], "second")]
    shapes = [("x", models.FLOAT, [2, 8, 5, 5])], [("y", models.FLOAT, [2, 8, 1, 1])]
    model = onnx.load_from_string(models.model(nodes, *shapes, list(weights.items())))
    with targets.using(targets.Way("channels")):
        lent: dict[str, bytearray] = {}
        first = group_of(model, weights, lent)
        made = lower.attempt(first, first.opset_imports, target())
        assert made.lowered is not None and any(isinstance(it.data, Permuted) for it in made.lowered.weights())
        kept = Lowerings()
        kept.keep(first, made.lowered, facts_of(first))
        for memory in lent.values():
            memory[:] = b"\xff" * len(memory)
        found = kept.take(group_of(model, weights))
        assert found is made.lowered
        got = Runner(compile_lowered(found, target()))(x)[0]
        np.testing.assert_array_equal(got, Runner(compile_model(model))(x)[0])


def test_a_group_of_other_content_is_not_taken_for_it() -> None:
    weights = {"w": RNG.standard_normal((8, 4)).astype(F), "c": RNG.standard_normal((4, 1)).astype(F)}
    model = chain(weights)
    first = group_of(model, weights)

    def others() -> list[ir.Graph]:
        small = {**weights, "c": weights["c"] + 1}
        renamed, turned, wider = group_of(model, weights), group_of(model, weights), group_of(model, weights)
        renamed.inputs[0].name = "z"
        turned.node("turn").attributes["perm"] = ir.AttrInt64s("perm", [0, 1])
        wider.inputs[0].shape = ir.Shape(["n", "k"])
        return [group_of(model, small), renamed, turned, wider]

    for other in others():
        made = lower.attempt(first, first.opset_imports, target())
        assert made.lowered is not None
        kept = Lowerings()
        kept.keep(first, made.lowered, facts_of(first))
        assert kept.take(other) is None
        assert kept.take(group_of(model, weights)) is made.lowered


def test_a_list_of_numbers_is_compared_whole_and_no_number_becomes_an_object_for_it() -> None:
    axes = np.arange(100_000)
    weights = {"w": RNG.standard_normal((8, 4)).astype(F), "c": RNG.standard_normal((4, 1)).astype(F)}
    model = chain(weights)

    def group(numbers: np.ndarray) -> ir.Graph:
        found = group_of(model, weights)
        found.node("turn").attributes["perm"] = NumbersAttribute("perm", ir.AttributeType.INTS, numbers)
        return found

    first = group(axes)
    made = lower.attempt(group_of(model, weights), first.opset_imports, target())
    assert made.lowered is not None
    kept, other = Lowerings(), axes.copy()
    other[77_777] += 1
    kept.keep(first, made.lowered, {})
    assert kept.take(group(other)) is None
    assert kept.take(group(axes[:-1])) is None
    again = group(axes)
    assert kept.take(again) is made.lowered
    for it in (first, again):
        assert it.node("turn").attributes["perm"]._value is None  # as_ints() makes it
    assert again.node("turn").attributes["perm"].as_ints() == tuple(range(100_000))


def test_a_group_in_which_a_large_constant_that_was_looked_at_differs_is_not_taken_for_it() -> None:
    """The bodies of an If have nodes and constants of the same names: one that was folded is in the lowering with its elements."""
    nodes = [models.node("Transpose", ["w"], ["t"], "turn", perm=[1, 0]), models.node("Mul", ["x", "t"], ["y"], "mul")]
    shapes = [("x", models.FLOAT, ["n", 64, 64])], [("y", models.FLOAT, ["n", 64, 64])]
    first, second = (RNG.standard_normal((64, 64)).astype(F) for _ in range(2))
    model = onnx.load_from_string(models.model(nodes, *shapes, [("w", first)]))
    group = group_of(model, {"w": first})
    made = lower.attempt(group, group.opset_imports, target())
    assert made.lowered is not None
    kept = Lowerings()
    kept.keep(group, made.lowered, facts_of(group))
    assert kept.take(group_of(model, {"w": second})) is None
    assert kept.take(group_of(model, {"w": first})) is made.lowered


def test_constants_that_are_tied_in_one_group_and_not_in_another() -> None:
    nodes = [models.node("MatMul", ["x", "v"], ["t"], "first"), models.node("MatMul", ["t", "w"], ["y"], "second")]
    shapes = [("x", models.FLOAT, ["n", 128])], [("y", models.FLOAT, ["n", 128])]
    first, second = (RNG.standard_normal((128, 128)).astype(F) for _ in range(2))
    model = onnx.load_from_string(models.model(nodes, *shapes, [("v", first), ("w", first)]))
    group = group_of(model, {"v": first, "w": first})
    made = lower.attempt(group, group.opset_imports, target())
    assert made.lowered is not None and len(made.lowered.weights()) == 1
    kept = Lowerings()
    kept.keep(group, made.lowered, {})
    assert kept.take(group_of(model, {"v": first, "w": second})) is None
    assert kept.take(group_of(model, {"v": second, "w": second})) is made.lowered
