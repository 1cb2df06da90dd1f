"""Which nodes are taken, in which groups, and what is said about the others."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto
from onnxruntime.capi import _pybind_state

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.compiler.compile import compile_graph
from onnxruntime_ep_wgpu.compiler.lower.lower import Attempt
from onnxruntime_ep_wgpu.compiler.lower.ops import host
from onnxruntime_ep_wgpu.compiler.lower.ops.host import reads_shape_alone
from onnxruntime_ep_wgpu.plugin import abi
from onnxruntime_ep_wgpu.plugin import session as session_state
from onnxruntime_ep_wgpu.plugin.assign import subgraph
from onnxruntime_ep_wgpu.plugin.assign.claim import (
    _NOT_ON_CPU,
    _SHAPES,
    _TENSORS,
    FORCED,
    SHAPE_ARITHMETIC,
    VIEWS_AND_CASTS,
    Claim,
    claim,
)
from onnxruntime_ep_wgpu.plugin.assign.report import AssignmentReport
from onnxruntime_ep_wgpu.program.target import WEB_BASELINE

from . import models
from .fakes import Fake

X = np.ones((5, 8), np.float32)


def graph_of(model: bytes) -> ir.Graph:
    inferred = onnx.shape_inference.infer_shapes(onnx.load_from_string(model))
    graph = ir.from_proto(inferred).graph
    for value in list(graph.inputs):
        if value.is_initializer():
            graph.inputs.remove(value)
    return graph


def names(graph: ir.Graph, decision: Claim) -> list[list[str]]:
    return [[graph.node(place).name or "" for place in group] for group in decision.groups]


def decide(model: bytes, held: tuple[str, ...] = (), forced: tuple[str, ...] = ()) -> tuple[ir.Graph, Claim]:
    graph = graph_of(model)
    assigned = ["OtherExecutionProvider" if node.name in held else "" for node in graph]
    return graph, claim(graph, WEB_BASELINE, assigned, frozenset(forced))[0]


def test_groups_end_at_nodes_that_cannot_run(fake: Fake) -> None:
    graph, decision = decide(models.mixed())
    assert names(graph, decision) == [
        ["mul"],
        ["add", "shape", "gather", "unsqueeze", "concat", "reshape", "double"],
    ]
    assert [reason for reason in decision.reasons if reason] == ["no Softmax"]


def test_nodes_of_other_providers_are_left_alone(fake: Fake) -> None:
    graph, decision = decide(models.chain(), held=("matmul",))
    assert names(graph, decision) == [["mul"], ["relu", "add"]]
    assert decision.reasons[1] == "held by OtherExecutionProvider"


def test_named_nodes_stay_on_the_cpu(fake: Fake) -> None:
    graph, decision = decide(models.chain(), forced=("relu",))
    assert names(graph, decision) == [["mul", "matmul"], ["add"]]
    assert decision.reasons[2] == FORCED


def shapes(outside: str) -> bytes:
    """A float path on x that can run, and shape arithmetic on s whose result an operator that cannot run takes."""
    nodes = [
        models.node("Mul", ["x", "x"], ["a"], "mul"),
        models.node("Add", ["s", "s"], ["t"], "sum"),
        models.node("Abs", ["t"], ["u"], "abs"),
        models.node(outside, ["a", "u"], ["y"], "outside"),
    ]
    return models.model(
        nodes, [("x", models.FLOAT, [2, 2]), ("s", models.INT64, [2])], [("y", models.FLOAT, ["A", "B"])], opset=13
    )


def test_islands_of_shape_arithmetic_stay_on_the_cpu(fake: Fake) -> None:
    graph, decision = decide(shapes("Expand"))
    assert names(graph, decision) == [["mul"]]
    assert decision.reasons[1:3] == (SHAPE_ARITHMETIC, SHAPE_ARITHMETIC)


def beside(floats: str, *nodes: onnx.NodeProto, **values: tuple[int, list[int]]) -> Claim:
    """What is decided on `nodes` beside a map of `floats`."""
    relu = models.node("Relu", [floats], ["r"], "relu")
    inputs = [(name, *of) for name, of in values.items()]
    outputs = [(name, TensorProto.UNDEFINED, None) for name in (nodes[-1].output[0], "r")]
    return decide(models.model([*nodes, relu], inputs, outputs, opset=20, check=False))[1]


@pytest.mark.parametrize("kind", ["INT64", "INT32", "INT16", "UINT32", "BOOL"])
def test_shape_arithmetic_of_types_that_the_cpu_provider_may_lack_is_kept(kind: str) -> None:
    """Nobody would run it there, and the session would not be made."""
    of, ab = TensorProto.DataType.Value(kind), ["a", "b"]
    node = models.node("Where", ["c", *ab], ["y"]) if kind == "BOOL" else models.node("Min", ab, ["y"])
    decision = beside("x", node, a=(of, [4]), b=(of, [4]), c=(TensorProto.BOOL, [4]), x=(models.FLOAT, [4]))
    assert decision.reasons == (SHAPE_ARITHMETIC if kind in ("INT64", "INT32") else None, None)


def test_short_integers_of_an_operator_that_makes_no_shapes_are_kept() -> None:
    decision = beside("x", models.node("Sign", ["a"], ["y"]), a=(models.INT64, [4]), x=(models.FLOAT, [4]))
    assert decision.reasons == (None, None)


@pytest.mark.parametrize("kind", ["FLOAT", "FLOAT16", "BFLOAT16"])
def test_sizes_are_left_to_the_cpu_provider_where_it_has_a_kernel(kind: str) -> None:
    of = TensorProto.DataType.Value(kind)
    decision = beside("x", models.node("Size", ["a"], ["y"]), a=(of, ["n"]), x=(models.FLOAT, [4]))
    assert decision.reasons == (SHAPE_ARITHMETIC if kind == "FLOAT" else None, None)
    decision = beside("x", models.node("Shape", ["a"], ["y"]), a=(of, ["n"]), x=(models.FLOAT, [4]))
    assert decision.reasons == (SHAPE_ARITHMETIC, None)


def test_the_cpu_provider_has_the_kernels_of_what_is_left_to_it() -> None:
    every = [it for it in _pybind_state.get_all_opkernel_def() if it.provider == "CPUExecutionProvider"]
    lacking = set()
    for name, opset in itertools.product((*host._RULES, "Shape", "Size"), range(13, 25)):
        schema = onnx.defs.get_schema(name, opset)
        kernels = [
            it
            for it in every
            if (it.op_name, it.domain) == (name, "")
            and it.version_range[0] <= schema.since_version <= it.version_range[1]
        ]
        wanted = _TENSORS if reads_shape_alone(name, "") else _SHAPES
        of_tensor = {f"tensor({it.name.lower()})" for it in wanted}
        for constraint in schema.type_constraints:
            for text in of_tensor & set(constraint.allowed_type_strs):
                if not any(text in it.type_constraints.get(constraint.type_param_str, [text]) for it in kernels):
                    lacking.add((name, text))
    assert lacking <= {(name, f"tensor({it.name.lower()})") for name, it in _NOT_ON_CPU}


def test_shape_arithmetic_that_is_used_here_is_taken_along(fake: Fake) -> None:
    graph, decision = decide(shapes("Reshape"))
    assert names(graph, decision) == [["mul", "sum", "abs", "outside"]]


def test_a_shape_of_a_tensor_that_is_made_here_is_taken(fake: Fake) -> None:
    """On the CPU it would download the tensor to look at its dims."""
    nodes = [
        models.node("Mul", ["x", "x"], ["a"], "mul"),
        models.node("Softmax", ["a"], ["b"], "softmax"),
        models.node("Shape", ["a"], ["s"], "shape"),
        models.node("Expand", ["b", "s"], ["y"], "expand"),
    ]
    graph, decision = decide(models.model(nodes, [("x", models.FLOAT, ["N", 2])], [("y", models.FLOAT, ["A", "B"])]))
    assert names(graph, decision) == [["mul", "shape"]]


def test_a_graph_of_nothing_but_integers_is_taken(fake: Fake) -> None:
    nodes = [models.node("Add", ["s", "s"], ["t"], "sum")]
    graph, decision = decide(models.model(nodes, [("s", models.INT64, [2])], [("t", models.INT64, [2])]))
    assert names(graph, decision) == [["sum"]]


def test_large_integer_tensors_are_work(fake: Fake) -> None:
    nodes = [models.node("Add", ["s", "s"], ["t"], "sum"), models.node("Softmax", ["x"], ["y"], "softmax")]
    inputs = [("s", models.INT64, ["N", 64]), ("x", models.FLOAT, [2])]
    graph, decision = decide(models.model(nodes, inputs, [("t", models.INT64, ["N", 64]), ("y", models.FLOAT, [2])]))
    assert names(graph, decision) == [["sum"]]


def test_a_group_is_asked_about_as_it_will_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node may run in the whole graph and not in its group: here, because another one is in the group too."""
    asked: list[list[str]] = []

    def check(graph: ir.Graph, *_: Any, **__: Any) -> Attempt:
        inside = [node.name or "" for node in graph]
        asked.append(inside)
        alone = len(inside) < 4 and "add" not in inside
        answers = {"matmul": "never", "relu": "not without add" if alone else None}
        return Attempt([answers.get(name) for name in inside])

    monkeypatch.setattr("onnxruntime_ep_wgpu.plugin.assign.claim.attempt", check)
    nodes = [
        models.node("Mul", ["x", "x"], ["a"], "mul"),
        models.node("Relu", ["a"], ["r"], "relu"),
        models.node("MatMul", ["r", "a"], ["m"], "matmul"),
        models.node("Add", ["m", "a"], ["y"], "add"),
    ]
    graph, decision = decide(models.model(nodes, [("x", models.FLOAT, [2, 2])], [("y", models.FLOAT, [2, 2])]))
    assert asked == [["mul", "relu", "matmul", "add"], ["mul", "relu"], ["add"], ["mul"]]
    assert names(graph, decision) == [["mul"], ["add"]]
    assert decision.reasons == (None, "not without add", "never", None)


def test_asking_twice_gives_the_same_answer_and_the_compiler_is_asked_once(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime may ask any number of times before it compiles."""
    decide_once = session_state.SessionState.decide
    answers = []

    def decide_often(self: session_state.SessionState, handle: Any, has_kernel: Any) -> Any:
        answers.extend(decide_once(self, handle, has_kernel) for _ in range(3))
        return answers[-1]

    monkeypatch.setattr(session_state.SessionState, "decide", decide_often)
    session = webgpu_ep.session(models.mixed())
    assert len(answers) == 3
    assert answers[0] == answers[1] == answers[2]
    checks = fake.checks
    assert checks == 1 + 2  # the graph, and each of its two groups
    np.testing.assert_allclose(session.run(None, {"x": X})[0], models.mixed_reference(X), rtol=1e-5)
    assert len(webgpu_ep.report(session).nodes) == len({node.name for node in webgpu_ep.report(session).nodes})


class Lines:
    """A logger that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, str]] = []

    def log(self, severity: int, message: str) -> None:
        self.lines.append((severity, message))


def test_a_report_survives_that_groups_become_nodes(fake: Fake) -> None:
    """After compiling a group ONNX Runtime may expand a function elsewhere and ask about the changed graph."""
    report = AssignmentReport("WebGpuExecutionProvider", Lines())  # type: ignore[arg-type]
    before, decision = decide(models.mixed())
    report.decided("", before, decision, [""] * len(decision.reasons))
    made = frozenset(value.name or "" for value in before.node("mul").outputs)
    alone = subgraph.extract(before, [before.node("mul")])
    report.compiled(made, compile_graph(alone, before.opset_imports, WEB_BASELINE))
    nodes = [
        models.node("Group", ["x"], ["a"], "fused_1"),
        models.node("Mul", ["a", "a"], ["e"], "from_softmax"),
        models.node("Group", ["e"], ["y"], "fused_2"),
    ]
    inputs, outputs = [("x", models.FLOAT, ["N", 8])], [("y", models.FLOAT, ["N", 2, 4])]
    after = graph_of(models.model(nodes, inputs, outputs, check=False))
    assigned = ["WebGpuExecutionProvider", "", "WebGpuExecutionProvider"]
    report.decided("", after, claim(after, WEB_BASELINE, assigned, frozenset())[0], assigned)
    placed = {node.name: node for node in report.placements()}
    assert "softmax" not in placed and "fused_1" not in placed
    assert (placed["mul"].partition, placed["mul"].kernels) == (0, ("0 map",))
    assert (placed["double"].partition, placed["from_softmax"].partition) == (1, 2)


def test_everything_is_logged(fake: Fake) -> None:
    log = Lines()
    report = AssignmentReport("WebGpuExecutionProvider", log)  # type: ignore[arg-type]
    graph, decision = decide(models.mixed(), forced=("add",))
    report.decided("", graph, decision, [""] * len(decision.reasons))
    assert (abi.INFO, "Softmax 'softmax' runs on CPUExecutionProvider: no Softmax") in log.lines
    assert (abi.INFO, f"Add 'add' runs on CPUExecutionProvider: {FORCED}") in log.lines


def test_onnx_runtimes_log_shows_it(
    fake: Fake, open_session: Callable[..., Any], capfd: pytest.CaptureFixture[str], devices: list[Any]
) -> None:
    open_session(
        models.mixed(), {"forceCpuNodeNames": "double", "preferredLayout": "NCHW"}, log_severity_level=abi.INFO
    )
    shown = capfd.readouterr().err
    assert "Mul 'double' runs on CPUExecutionProvider: named in forceCpuNodeNames" in shown
    assert "Softmax 'softmax' runs on CPUExecutionProvider: no Softmax" in shown
    assert "option preferredLayout='NCHW' has no effect in this version" in shown


def test_the_log_says_which_of_several_devices_is_used(devices: list[Any], capfd: pytest.CaptureFixture[str]) -> None:
    import onnxruntime as ort

    so = ort.SessionOptions()
    so.log_severity_level = abi.INFO
    so.add_provider_for_devices([devices[0], devices[0]], {"powerPreference": "low-power"})
    ort.InferenceSession(models.square(), so)
    shown = capfd.readouterr().err
    assert "2 devices were passed" in shown
    assert f"the session runs on {devices[0].ep_metadata['name']!r}: powerPreference" in shown


def test_full_validation_compiles_kernels_with_checks(fake: Fake, open_session: Callable[..., Any]) -> None:
    for mode, checked in (("full", True), ("basic", False), ("disabled", False)):
        open_session(models.square(), {"validationMode": mode})
        assert fake.executables[-1].settings.bounds_checks is checked


def test_sessions_with_equal_device_numbers_share_a_device(fake: Fake, open_session: Callable[..., Any]) -> None:
    for number in ("0", "0", "3", "3"):
        open_session(models.square(), {"deviceId": number})
    first, second, third, fourth = (it.device for it in fake.executables)
    assert first is second and third is fourth and first is not third


@pytest.mark.parametrize("extent", ["n", 65])
def test_lists_longer_than_those_of_dimensions_are_data(extent: int | str) -> None:
    """Two parts of integers, and one of floats beside them."""
    nodes = [
        models.node("Add", ["a", "a"], ["b"], "first"),
        models.node("Mul", ["c", "c"], ["d"], "second"),
        models.node("Relu", ["x"], ["y"], "third"),
    ]
    long = [(name, models.INT64, [extent]) for name in "ac"]
    floats = [("x", models.FLOAT, [extent])]
    results = [("b", models.INT64, [extent]), ("d", models.INT64, [extent]), ("y", models.FLOAT, [extent])]
    assert decide(models.model(nodes, long + floats, results))[1].reasons == (None, None, None)
    short = [(name, models.INT64, [4]) for name in "ac"]
    results = [("b", models.INT64, [4]), ("d", models.INT64, [4])]
    assert decide(models.model(nodes[:2], short, results))[1].reasons == (None, None), "nothing else"
    results.append(("y", models.FLOAT, [extent]))
    assert decide(models.model(nodes, short + floats, results))[1].reasons == (SHAPE_ARITHMETIC, SHAPE_ARITHMETIC, None)


@pytest.mark.parametrize(
    ("between", "reason"),
    [
        ([("Cast", {"to": models.FLOAT})], VIEWS_AND_CASTS),
        ([("Transpose", {}), ("Cast", {"to": models.FLOAT}), ("Flatten", {})], VIEWS_AND_CASTS),
        ([("Cast", {"to": models.FLOAT}), ("Relu", {})], None),
        ([("Cast", {"to": models.FLOAT}), ("Softmax", {})], None),
    ],
    ids=["cast", "chain", "relu", "softmax"],
)
def test_what_calculates_nothing_between_nodes_on_the_cpu_stays_there(
    between: list[tuple[str, dict[str, Any]]], reason: str | None
) -> None:
    """Beside it a map of floats runs here, and more of it where anything reads from here or is read here."""
    nodes = [models.node("Relu", ["x"], ["r"], "relu"), models.node("NonZero", ["x"], ["v0"], "before")]
    for k, (op, how) in enumerate(between):
        nodes.append(onnx.helper.make_node(op, [f"v{k}"], [f"v{k + 1}"], f"n{k}", **how))
    last, count = f"v{len(between)}", len(between)
    after = models.node("Unique", [last], ["y"], "after")
    known = [("r", models.FLOAT, ["A", "B"])]

    def reasons(nodes: list[onnx.NodeProto], results: list[Any]) -> tuple[str | None, ...]:
        inputs = [("x", models.FLOAT, ["N", "M"])]
        return decide(models.model(nodes, inputs, results, opset=20, check=False))[1].reasons[2 : 2 + count]

    assert reasons([*nodes, after], [*known, ("y", models.FLOAT, None)]) == (reason,) * count
    assert reasons([*nodes, after], [*known, (last, models.FLOAT, None)]) == (None,) * count, "a result of the model"
    here = models.node("Exp", [last], ["z"], "here")
    assert reasons([*nodes, after, here], [*known, ("z", models.FLOAT, None)]) == (None,) * count
