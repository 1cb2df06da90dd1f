"""Whose fault it is that a node does not run here: the node's is said in words, ours is told as ours and never as a reason."""

from __future__ import annotations

import dataclasses
import random
import zlib
from collections.abc import Callable
from functools import cache

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.helper import make_node as node

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.compiler.lower.lower import attempt
from onnxruntime_ep_wgpu.compiler.lower.ops import registry
from onnxruntime_ep_wgpu.errors import Fault, InternalError
from onnxruntime_ep_wgpu.program.target import Target
from tests.conformance import cases as node_cases
from tests.support import make_model

NUMBERS = (-(2**63), -1000, -3, -2, -1, 0, 1, 2, 3, 7, 1000, 2**31, 2**63 - 1)
MUTATIONS = 8  # of a case of each operator


@cache
def cases() -> dict[str, list[str]]:
    """Names of the node cases of the package onnx, by operator."""
    found: dict[str, list[str]] = {}
    for name, info in node_cases.index().items():
        if not info.expanded:
            found.setdefault(info.operator, []).append(name)
    return found


def an_attribute(made: onnx.NodeProto, dice: random.Random) -> None:
    if not made.attribute:
        return
    it = dice.choice(made.attribute)
    if it.type == it.INTS and it.ints:
        change = dice.randrange(3)
        if change == 0:
            it.ints[dice.randrange(len(it.ints))] = dice.choice(NUMBERS)
        elif change == 1:
            del it.ints[-1]
        else:
            it.ints.append(dice.choice(NUMBERS))
    elif it.type == it.INT:
        it.i = dice.choice(NUMBERS)
    elif it.type == it.FLOAT:
        it.f = dice.choice([0.0, -1.0, float("inf"), float("nan")])
    elif it.type == it.STRING:
        it.s = dice.choice([b"", b"x"])


def a_kind(made: onnx.NodeProto, dice: random.Random) -> None:
    if made.attribute:
        at = dice.randrange(len(made.attribute))
        value = dice.choice([1, 0.5, "x", [1], [0.5], ["x"]])
        name = made.attribute[at].name
        del made.attribute[at]
        made.attribute.append(onnx.helper.make_attribute(name, value))


def no_attribute(made: onnx.NodeProto, dice: random.Random) -> None:
    if made.attribute:
        del made.attribute[dice.randrange(len(made.attribute))]


def no_input(made: onnx.NodeProto, dice: random.Random) -> None:
    if made.input:
        at = dice.randrange(len(made.input))
        if dice.random() < 0.5:
            made.input[at] = ""
        else:
            del made.input[at]


def a_shape(model: onnx.ModelProto, dice: random.Random) -> None:
    if model.graph.input:
        dims = dice.choice(model.graph.input).type.tensor_type.shape.dim
        change = dice.randrange(3)
        if change == 0 and dims:
            del dims[-1]
        elif change == 1:
            dims.add().dim_value = dice.choice([0, 1, 2, 3])
        elif dims:
            dims[dice.randrange(len(dims))].dim_value = dice.choice([0, 1, 2, 3, 7])


OF_NODES: tuple[Callable[[onnx.NodeProto, random.Random], None], ...] = (an_attribute, a_kind, no_attribute, no_input)


@pytest.mark.parametrize("operator", cases())
def test_what_is_wrong_with_a_node_is_said(operator: str) -> None:
    dice = random.Random(zlib.crc32(operator.encode()))
    for _ in range(MUTATIONS):
        model = onnx.ModelProto.FromString(node_cases.read(dice.choice(cases()[operator])).model)
        change = dice.choice([*OF_NODES, None])
        if change is None:
            a_shape(model, dice)
        else:
            change(dice.choice(model.graph.node), dice)
        for output in model.graph.output:
            output.type.tensor_type.ClearField("shape")
        graph = ir.from_proto(model).graph
        for reason in attempt(graph, graph.opset_imports, Target()).reasons:
            internal = isinstance(reason, Fault) and isinstance(reason.error, InternalError)
            assert not internal, (reason, onnx.printer.to_text(model.graph))


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A model whose Abs meets a fault of ours."""

    def lower(*_: object, **__: object) -> None:
        raise KeyError("a typo")

    versions = registry._OPERATORS["", "Abs"]
    monkeypatch.setitem(registry._OPERATORS, ("", "Abs"), [dataclasses.replace(it, lower=lower) for it in versions])
    nodes = [node("Exp", ["x"], ["e"], name="exp"), node("Abs", ["e"], ["y"], name="abs")]
    return make_model(nodes, {"x": (np.float32, [2, 3])}).SerializeToString()


def test_a_fault_of_ours_names_the_node_and_the_place(faulty: bytes) -> None:
    graph = ir.from_proto(onnx.load_model_from_string(faulty)).graph
    well, reason = attempt(graph, graph.opset_imports, Target()).reasons
    assert well is None
    assert isinstance(reason, Fault) and isinstance(reason.error, InternalError)
    for part in ("Abs 'abs'", "KeyError: 'a typo'", "test_malformed.py:", "please report this message"):
        assert part in reason


def test_a_fault_of_ours_is_an_error_for_tests(faulty: bytes) -> None:
    with pytest.raises(InternalError, match="internal fault at Abs 'abs'"):
        webgpu_ep.session(faulty)


def test_a_fault_of_ours_leaves_a_users_node_to_the_cpu(
    faulty: bytes, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("WGPU_EP_STRICT")
    session = webgpu_ep.session(faulty)
    x = np.array([[1, -2, 3], [0, 5, -6]], np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], np.abs(np.exp(x)), rtol=1e-6)
    places = {it.name: it.provider for it in webgpu_ep.report(session).nodes}
    assert places == {"exp": webgpu_ep.get_ep_names()[0], "abs": "CPUExecutionProvider"}
    assert capfd.readouterr().err.count("internal fault at Abs 'abs': KeyError: 'a typo'") >= 1
