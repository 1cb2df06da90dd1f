"""Indices: seen in all 64 bits, an error where they are constants or in a checked run, never outside memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from onnxruntime_ep_wgpu.compiler.compile import compile_graph
from onnxruntime_ep_wgpu.compiler.lower.lower import attempt
from onnxruntime_ep_wgpu.errors import Fault, InputError, OutOfRangeError, UnsupportedError
from onnxruntime_ep_wgpu.program.settings import CompileSettings
from onnxruntime_ep_wgpu.runtime.settings import RunSettings
from tests import provider, support

from .compare import check, model, random

WILD = [2**32 + 1, -(2**32) + 1, 2**31, -(2**31) - 1, 2**40 + 2, -(2**40) + 2, 2**63 - 1, -(2**63), 3 << 32, -(3 << 32)]


@dataclass(frozen=True)
class Case:
    """An operator with indices of one number each: its inputs for a number, which of them that is, and its attributes."""

    op: str
    inputs: Callable[[Any], list[np.ndarray]]
    place: int = 1
    attributes: tuple[tuple[str, Any], ...] = ()
    opset: int = 20
    low: int = -5
    high: int = 4

    def arrays(self, number: int) -> list[np.ndarray]:
        return self.inputs(np.int64(number))

    def model(self, number: int, **how: Any) -> onnx.ModelProto:
        return model(self.op, self.arrays(number), opset=self.opset, **dict(self.attributes), **how)


X = random(5, 3)
U = random(2, 3, seed=1)
CASES = [
    Case("Gather", lambda i: [X, np.array([[1, i]])]),
    Case("Gather", lambda i: [X.T.copy(), np.array(i)], attributes=(("axis", -1),)),
    Case("GatherElements", lambda i: [X, np.array([[1, i, 0]])]),
    Case("GatherND", lambda i: [X, np.array([[1, 2], [i, 1]])]),
    Case("GatherND", lambda i: [X.T.copy(), np.array([[1, i], [0, 1]])]),
    Case("ScatterElements", lambda i: [X, np.array([[1, i, 0], [2, 2, 3]]), U]),
    Case("ScatterElements", lambda i: [X, np.array([[1, i, 0], [2, 2, 3]]), U], attributes=(("reduction", "add"),)),
    Case("ScatterND", lambda i: [X, np.array([[1], [i]]), U]),
    Case("ScatterND", lambda i: [X, np.array([[1], [i]]), U], attributes=(("reduction", "max"),)),
    Case("ReverseSequence", lambda i: [X, np.array([1, i, 2])], low=0, high=5),
    Case(
        "TensorScatter",
        lambda i: [random(2, 5, 3), random(2, 2, 3, seed=1), np.array([1, i])],
        2,
        opset=24,
        low=0,
        high=3,
    ),
]
IDS = [f"{k}-{case.op}" for k, case in enumerate(CASES)]


@pytest.mark.parametrize("int64", ["native", "pair"])
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_an_index_out_of_range_is_so_in_all_its_bits(case: Case, int64: str) -> None:
    """One that 32 bits cannot hold does what the furthest one does that they can."""
    run = support.Runner(support.compile_model(case.model(0), support.target(int64)))
    far = {True: run(*case.arrays(2**31 - 1))[0], False: run(*case.arrays(-(2**31)))[0]}
    for number in WILD:
        np.testing.assert_array_equal(run(*case.arrays(number))[0], far[number > 0], err_msg=str(number))


@pytest.mark.parametrize("int64", ["native", "pair"])
def test_one_hot_sets_nothing_outside(int64: str) -> None:
    indices = np.array([0, -5, 4, 5, -6, *WILD])
    values = np.array([2.0, 7.0], np.float32)
    check("OneHot", indices, np.array(5), values, constants=[1], outputs=[np.float32], int64=int64)
    unsigned = np.array([0, 4, 5, 2**32 + 1, 2**63 + 1, 2**64 - 1], np.uint64)
    want = np.where(unsigned[:, None] == np.arange(5, dtype=np.uint64), values[1], values[0])
    built = model("OneHot", [unsigned, np.array(5), values], constants=[1], outputs=[np.float32])
    np.testing.assert_array_equal(support.run_model(built, unsigned, values, int64=int64)[0], want)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_constant_out_of_range_is_a_fault_of_the_model(case: Case) -> None:
    for number in (case.low - 1, case.high + 1, 2**32 + 1):
        built = case.model(number, constants=[case.place])
        with pytest.raises(
            OutOfRangeError, match=rf"node ''? ?\({case.op}\): the index {number}.* is outside .*axis \d of"
        ):
            support.compile_model(built)
        module = ir.from_proto(built)
        (reason,) = attempt(module.graph, module.opset_imports, support.target()).reasons
        assert isinstance(reason, Fault) and str(number) in reason
    for number in (case.low, case.high):
        support.compile_model(case.model(number, constants=[case.place]))


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_constant_that_may_be_out_of_range_is_looked_at_in_every_plan(case: Case) -> None:
    for number, fails in ((case.low - 1, True), (case.high + 1, True), (case.low, False), (case.high, False)):
        if number < case.low == 0:
            continue  # wrong in every plan
        run = support.Runner(support.compile_model(case.model(number, constants=[case.place], symbolic=True)))
        arrays = [a for k, a in enumerate(case.arrays(number)) if k != case.place]
        if fails:
            with pytest.raises(InputError, match=f"the index {number}.* is outside"):
                run(*arrays)
        else:
            run(*arrays)


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_checked_run_finds_indices_out_of_range_in_data(case: Case, computed: bool) -> None:
    """Given as an input, or calculated in what would be the same kernel."""
    built = case.model(0)
    node = built.graph.node[0]
    node.name = "pick"
    if computed:
        name = node.input[case.place]
        node.input[case.place] = "shifted"
        one = helper.make_node("Constant", [], ["one"], value_int=1)
        built.graph.node.insert(0, helper.make_node("Add", [name, "one"], ["shifted"]))
        built.graph.node.insert(0, one)
    module = ir.from_proto(built)
    program = compile_graph(
        module.graph, module.opset_imports, support.target(), "test", CompileSettings(with_assertions=True)
    )
    run = support.Runner(program, RunSettings(stepwise=True))
    plain = support.Runner(support.compile_model(built))
    for number in (case.low, case.high, case.low - 1, case.high + 1, 2**32 + 1, -(2**63)):
        arrays = case.arrays(number)
        arrays[case.place] = arrays[case.place] - int(computed)
        if case.low <= number <= case.high:
            np.testing.assert_array_equal(run(*arrays)[0], plain(*arrays)[0])
        else:
            seen = int(np.int64(number)) if not computed or number > -(2**63) else number
            message = rf"node 'pick': the index {seen} .*is outside .*which allows {case.low} to {case.high}; 1 of"
            with pytest.raises(OutOfRangeError, match=message.replace(" .*", ".*")):
                run(*arrays)
            plain(*arrays)


def _with_known_indices(built: onnx.ModelProto, indices: np.ndarray) -> onnx.ModelProto:
    """The model with the shape of its second input, of which an axis may have to be known."""
    kind = built.graph.input[1].type.tensor_type.elem_type
    built.graph.input[1].CopyFrom(helper.make_tensor_value_info("x1", kind, indices.shape))
    return built


EMPTY = [
    ("Gather", [random(0, 3), np.array([1, 0, -7])], {}),
    ("Gather", [random(3, 0), np.array([[5]])], {"axis": 1}),
    ("GatherElements", [random(0, 3), np.array([[0, 1, 2]])], {}),
    ("GatherND", [random(2, 0), np.array([[1, 0], [1, 3]])], {}),
]


@pytest.mark.parametrize(("op", "arrays", "attributes"), EMPTY)
@pytest.mark.parametrize("symbolic", [False, True])
def test_an_axis_without_elements_gives_zeros(
    op: str, arrays: list[np.ndarray], attributes: Any, symbolic: bool
) -> None:
    """There is nothing to clamp to; in a checked run it is an error as above."""
    built = _with_known_indices(model(op, arrays, symbolic=symbolic, **attributes), arrays[1])
    result = support.run_model(built, *arrays)[0]
    assert result.size and not result.any()
    with pytest.raises((OutOfRangeError, InputError), match="the index"):
        constant = model(op, arrays, symbolic=symbolic, constants=[1], **attributes)
        support.run_model(constant, arrays[0])


@pytest.mark.costly
@pytest.mark.parametrize("known", [True, False])
def test_indices_longer_than_the_data_on_another_axis_are_refused(known: bool) -> None:
    wide = np.zeros((2, 4), np.int64)
    for op, arrays in (
        ("GatherElements", [X, wide]),
        ("ScatterElements", [X, wide, random(2, 4)]),
        ("ScatterElements", [X, wide[:, :3], random(2, 2)]),
        ("ScatterND", [X, wide[:, :1], random(2, 4)]),
    ):
        with pytest.raises((UnsupportedError, InputError), match=r"longer than|must have the shape"):
            support.run_model(_with_known_indices(model(op, arrays, symbolic=not known), arrays[1]), *arrays)


def _session_model(inside: bool) -> bytes:
    """Gather with a constant index of 9, in the graph or in a branch of If."""
    pick = helper.make_node("Gather", ["x", "nine"], ["y"], name="pick")
    nine = helper.make_tensor("nine", TensorProto.INT64, [1], [9])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3])
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    if inside:
        other = helper.make_graph([helper.make_node("Relu", ["x"], ["z"])], "other", [], [
            helper.make_tensor_value_info("z", TensorProto.FLOAT, None)])  # fmt: skip
        branch = helper.make_graph([pick], "branch", [], [y], [nine])
        node = helper.make_node("If", ["flag"], ["y"], then_branch=branch, else_branch=other)
        graph = helper.make_graph([node], "test", [x, flag], [y])
    else:
        graph = helper.make_graph([pick, helper.make_node("Relu", ["y"], ["z"])], "test", [x], [
            helper.make_tensor_value_info("z", TensorProto.FLOAT, None)], [nine])  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()


def test_no_session_is_made_for_a_constant_index_out_of_range() -> None:
    message = (
        r"OutOfRangeError: node 'pick' \(Gather\): the index 9 at \[0\] is outside axis 0 of the data float32\[4, 3\]"
    )
    with pytest.raises(Exception, match=message):
        provider.open_session(_session_model(inside=False), "ours")


def test_a_branch_that_does_not_run_may_have_a_constant_index_out_of_range() -> None:
    session = provider.open_session(_session_model(inside=True), "ours")
    x = random(4, 3)
    np.testing.assert_array_equal(session.run(None, {"x": x, "flag": np.array(False)})[0], np.maximum(x, 0))
    with pytest.raises(Exception, match=r"(?i)out of|range|bounds"):
        session.run(None, {"x": x, "flag": np.array(True)})


def test_a_session_in_full_validation_names_the_node_and_the_index() -> None:
    node = helper.make_node("Gather", ["x", "i"], ["y"], name="pick")
    built = support.make_model([node], {"x": (np.float32, ["n", 3]), "i": (np.int64, ["k"])})
    built.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    session = provider.open_session(built.SerializeToString(), "ours", {"validationMode": "full"})
    x = random(4, 3)
    np.testing.assert_array_equal(session.run(None, {"x": x, "i": np.array([3, -4])})[0], x[[3, 0]])
    with pytest.raises(Exception, match=r"OutOfRangeError: node 'pick': the index 4 at \[1\] is outside axis 0"):
        session.run(None, {"x": x, "i": np.array([3, 4])})
