"""Sequences and optional values: folded away where their structure is known and tensors are at their ends, else on the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.helper import make_node as node

import onnxruntime_ep_wgpu as wgpu
from onnxruntime_ep_wgpu.errors import UnsupportedError
from tests.ops.compare import random
from tests.support import compile_model

F = np.float32
CPU = ["CPUExecutionProvider"]
MADE_ELSEWHERE, LEAVES = "made elsewhere", "leaves the nodes that run here"


def built(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[Any, Sequence[Any]] | onnx.TypeProto],
    outputs: Sequence[str],
    constants: Mapping[str, Any] = {},
    structured: Mapping[str, onnx.TypeProto] = {},
) -> onnx.ModelProto:
    """A model of opset 18. `outputs` are tensors, but those of `structured`."""
    values = [
        onnx.ValueInfoProto(name=name, type=it)
        if isinstance(it, onnx.TypeProto)
        else helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(it[0])), it[1])
        for name, it in inputs.items()
    ]
    weights = [numpy_helper.from_array(np.asarray(it), name) for name, it in constants.items()]
    results = [onnx.ValueInfoProto(name=name, type=structured.get(name)) for name in outputs]
    graph = helper.make_graph(list(nodes), "g", values, results, weights)
    # Types of results that no declaration says: ONNX's inference has them.
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    inferred = onnx.shape_inference.infer_shapes(made)
    for have, found in zip(made.graph.output, inferred.graph.output, strict=True):
        have.type.CopyFrom(found.type)
        if have.type.HasField("tensor_type"):
            have.type.tensor_type.ClearField("shape")
    return made


def compared(made: onnx.ModelProto, *runs: dict[str, Any], groups: int = 1) -> Any:
    """A report of a session all of whose nodes run here, and whose results are the CPU provider's."""
    text = made.SerializeToString()
    ours, theirs = wgpu.session(text), ort.InferenceSession(text, providers=CPU)
    report = wgpu.report(ours)
    assert not report.on_cpu, report
    assert report.partitions == groups
    _same(ours, theirs, *runs)
    return report


def left(made: onnx.ModelProto, *runs: dict[str, Any]) -> dict[str, str]:
    """Why nodes are on the CPU, by operator; results are right all the same."""
    text = made.SerializeToString()
    ours = wgpu.session(text)
    _same(ours, ort.InferenceSession(text, providers=CPU), *runs)
    return {it.op_type: it.reason for it in wgpu.report(ours).on_cpu}


def _same(ours: Any, theirs: Any, *runs: dict[str, Any]) -> None:
    for feeds in runs:
        for a, b in zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True):
            for got, want in zip(a, b, strict=True) if isinstance(b, list) else [(a, b)]:
                assert got.dtype == want.dtype
                assert got.shape == want.shape
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


X, Y, Z = random(3, 4), random(3, 4, seed=1), random(3, 4, seed=2)
THREE: dict[str, tuple[Any, Sequence[Any]] | onnx.TypeProto] = {name: (F, [3, 4]) for name in "xyz"}
FEEDS = {"x": X, "y": Y, "z": Z}
MAKE = node("SequenceConstruct", ["x", "y", "z"], ["s"])


@pytest.mark.parametrize("place", [0, 2, -1, -3])
@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_an_element(place: int, dtype: Any) -> None:
    nodes = [MAKE, node("SequenceAt", ["s", "at"], ["e"]), node("Relu", ["e"], ["r"])]
    compared(built(nodes, THREE, ["r", "e"], {"at": np.array(place, dtype)}), FEEDS)


def test_elements_of_different_shapes_whose_extents_runs_decide() -> None:
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("SequenceConstruct", ["a", "y"], ["s"]),
        node("SequenceAt", ["s", "zero"], ["p"]),
        node("SequenceAt", ["s", "one"], ["q"]),
        node("MatMul", ["p", "q"], ["r"]),
    ]
    made = built(nodes, {"x": (F, ["n", 4]), "y": (F, [4, "m"])}, ["r"], {"zero": np.int64(0), "one": np.int64(1)})
    compared(made, *({"x": random(n, 4), "y": random(4, m)} for n, m in ((3, 5), (1, 1), (7, 2))))


@pytest.mark.parametrize("place", [None, 0, 1, 3, -3])
def test_insertion(place: int | None) -> None:
    nodes = [
        MAKE,
        node("Neg", ["x"], ["n"]),
        node("SequenceInsert", ["s", "n", *(["at"] if place is not None else [])], ["t"]),
        node("ConcatFromSequence", ["t"], ["r"], axis=0),
    ]
    compared(built(nodes, THREE, ["r"], {"at": np.int64(place or 0)}), FEEDS)


@pytest.mark.parametrize("place", [None, 0, 1, -1, -3])
def test_erasure_and_length(place: int | None) -> None:
    nodes = [
        MAKE,
        node("SequenceErase", ["s", *(["at"] if place is not None else [])], ["t"]),
        node("SequenceLength", ["t"], ["n"]),
        node("ConcatFromSequence", ["t"], ["c"], axis=-1),
        node("Cast", ["n"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["c", "f"], ["r"]),
    ]
    compared(built(nodes, THREE, ["r", "n"], {"at": np.int64(place or 0)}), FEEDS)


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
@pytest.mark.parametrize("new_axis", [0, 1])
def test_concatenation(axis: int, new_axis: int) -> None:
    nodes = [MAKE, node("ConcatFromSequence", ["s"], ["r"], axis=axis, new_axis=new_axis)]
    compared(built(nodes, THREE, ["r"]), FEEDS)


def test_a_sequence_that_begins_empty() -> None:
    nodes = [
        node("SequenceEmpty", [], ["e"]),
        node("SequenceInsert", ["e", "x"], ["s"]),
        node("SequenceInsert", ["s", "y", "zero"], ["t"]),
        node("Identity", ["t"], ["u"]),
        node("ConcatFromSequence", ["u"], ["r"], axis=0),
    ]
    compared(built(nodes, THREE, ["r"], {"zero": np.int64(0)}), FEEDS)


@pytest.mark.parametrize(
    "split, keepdims",
    [
        *((it, 1) for it in (None, np.int64(1), np.int64(2), np.int64(5))),
        *((it, keep) for it in (np.array([1, 2, 1]), np.array([4])) for keep in (0, 1)),
        (None, 0),
    ],
)
def test_parts_of_a_tensor(split: Any, keepdims: int) -> None:
    nodes = [
        node("SplitToSequence", ["x", *(["split"] if split is not None else [])], ["s"], axis=1, keepdims=keepdims),
        node("SequenceAt", ["s", "last"], ["e"]),
        node("SequenceLength", ["s"], ["n"]),
        node("ConcatFromSequence", ["s"], ["c"], axis=1 if split is not None or keepdims else 0),
    ]
    constants = {"last": np.int64(-1), **({"split": split} if split is not None else {})}
    compared(built(nodes, {"x": (F, [3, 4])}, ["e", "n", "c"], constants), {"x": X})


def test_parts_of_a_size_keep_the_axis_as_onnx_says() -> None:
    """The CPU provider drops it without `keepdims`, or fails."""
    nodes = [
        node("SplitToSequence", ["x", "one"], ["s"], axis=1, keepdims=0),
        node("ConcatFromSequence", ["s"], ["r"], axis=1),
    ]
    ours = wgpu.session(built(nodes, {"x": (F, [3, 4])}, ["r"], {"one": np.int64(1)}).SerializeToString())
    np.testing.assert_array_equal(ours.run(None, {"x": X})[0], X)


def test_parts_of_an_axis_whose_extent_runs_decide() -> None:
    nodes = [
        node("SplitToSequence", ["x", "two"], ["s"], axis=0),
        node("SequenceAt", ["s", "last"], ["e"]),
        node("SequenceLength", ["s"], ["n"]),
    ]
    made = built(nodes, {"x": (F, ["n", 4])}, ["e", "n"], {"two": np.int64(2), "last": np.int64(-1)})
    compared(made, *({"x": random(n, 4)} for n in (1, 2, 3, 8)))


def test_a_position_that_a_run_decides() -> None:
    made = built([MAKE, node("SequenceAt", ["s", "at"], ["r"])], {**THREE, "at": (np.int64, [])}, ["r"])
    compared(made, *({**FEEDS, "at": np.array(place)} for place in (0, 2, -2, 0)))


def test_a_position_that_the_device_calculates() -> None:
    """The element follows when the position is known, in a group of its own; the sequence is there too."""
    nodes = [
        node("ArgMax", ["x"], ["i"], axis=0, keepdims=0),
        MAKE,
        node("SequenceAt", ["s", "i"], ["r"]),
    ]
    made = built(nodes, {"x": (F, [3]), "y": (F, [3]), "z": (F, [3])}, ["r"])
    values = [np.array(it, F) for it in ((1, 3, 2), (9, 1, 1), (0, 0, 5))]
    ours = wgpu.session(made.SerializeToString())
    theirs = ort.InferenceSession(made.SerializeToString(), providers=CPU)
    _same(ours, theirs, *({"x": it, "y": it + 1, "z": it + 2} for it in values))


def test_optional_values() -> None:
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [3, 4])
    sequence = helper.make_sequence_type_proto(tensor)
    nodes = [
        node("Abs", ["x"], ["a"]),
        node("Optional", ["a"], ["o"]),
        node("OptionalHasElement", ["o"], ["has"]),
        node("OptionalGetElement", ["o"], ["e"]),
        node("Optional", [], ["none"], type=tensor),
        node("OptionalHasElement", ["none"], ["hasnt"]),
        MAKE,
        node("Optional", ["s"], ["os"], type=sequence),
        node("OptionalGetElement", ["os"], ["t"]),
        node("SequenceAt", ["t", "one"], ["f"]),
        node("Add", ["e", "f"], ["r"]),
    ]
    compared(built(nodes, THREE, ["r", "has", "hasnt"], {"one": np.int64(1)}), FEEDS)


def test_a_tensor_is_an_optional_value_that_is_there() -> None:
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("OptionalGetElement", ["a"], ["e"]),
        node("OptionalHasElement", ["a"], ["has"]),
        node("Neg", ["e"], ["r"]),
    ]
    compared(built(nodes, {"x": (F, [3, 4])}, ["r", "has"]), {"x": X})


# ---- where they leave


SEQUENCE = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [3, 4]))


def test_sequences_that_are_inputs_stay_on_the_cpu() -> None:
    nodes = [node("SequenceAt", ["s", "one"], ["e"]), node("Exp", ["x"], ["a"]), node("Add", ["a", "e"], ["r"])]
    made = built(nodes, {"s": SEQUENCE, "x": (F, [3, 4])}, ["r"], {"one": np.int64(1)})
    reasons = left(made, {"s": [X, Y], "x": Z})
    assert set(reasons) == {"SequenceAt"}
    assert "'s'" in reasons["SequenceAt"] and MADE_ELSEWHERE in reasons["SequenceAt"]


def test_sequences_that_are_results_stay_on_the_cpu_with_all_that_reads_them() -> None:
    nodes = [
        node("Exp", ["x"], ["a"]),
        node("SequenceConstruct", ["a", "y"], ["s"]),
        node("SequenceInsert", ["s", "z"], ["t"]),
        node("SequenceAt", ["t", "one"], ["e"]),
        node("Relu", ["e"], ["r"]),
    ]
    reasons = left(built(nodes, THREE, ["s", "r"], {"one": np.int64(1)}), FEEDS)
    assert set(reasons) == {"SequenceConstruct", "SequenceInsert", "SequenceAt"}
    assert LEAVES in reasons["SequenceConstruct"]
    assert MADE_ELSEWHERE in reasons["SequenceInsert"]
    assert MADE_ELSEWHERE in reasons["SequenceAt"]


def test_a_sequence_that_a_loop_on_the_cpu_reads_stays_there() -> None:
    flag = helper.make_tensor_value_info("go", TensorProto.BOOL, [])
    body = helper.make_graph(
        [node("SequenceAt", ["s", "i"], ["e"]), node("Add", ["v", "e"], ["w"]), node("Identity", ["go"], ["on"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            flag,
            helper.make_tensor_value_info("v", TensorProto.FLOAT, [3, 4]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, [3, 4]),
        ],
    )
    nodes = [
        MAKE,
        node("Loop", ["three", "", "x"], ["l"], body=body),
        node("SequenceLength", ["s"], ["n"]),
        node("Exp", ["l"], ["r"]),
    ]
    reasons = left(built(nodes, THREE, ["r", "n"], {"three": np.int64(3)}), FEEDS)
    assert LEAVES in reasons["SequenceConstruct"]


def test_a_sequence_between_groups_is_left_to_the_cpu() -> None:
    """A node on the CPU stands between two that read the sequence: both groups would need it."""
    nodes = [
        MAKE,
        node("SequenceAt", ["s", "zero"], ["e"]),
        node("Exp", ["e"], ["f"]),
        node("Cast", ["f"], ["text"], to=TensorProto.STRING),
        node("Cast", ["text"], ["g"], to=TensorProto.FLOAT),
        node("SequenceInsert", ["s", "g"], ["t"]),
        node("ConcatFromSequence", ["t"], ["r"], axis=0),
    ]
    reasons = left(built(nodes, THREE, ["r"], {"zero": np.int64(0)}), FEEDS)
    assert "Cast" in reasons


@pytest.mark.parametrize(
    "nodes, words",
    [
        ([MAKE, node("SequenceAt", ["s", "four"], ["r"])], "position 4 is not in a sequence of 3"),
        ([MAKE, node("SequenceErase", ["s", "four"], ["t"]), node("SequenceLength", ["t"], ["r"])], "position 4"),
        ([node("SequenceEmpty", [], ["s"]), node("ConcatFromSequence", ["s"], ["r"], axis=0)], "empty sequence"),
        ([node("SplitToSequence", ["x", "four"], ["r"], axis=0)], LEAVES),
        ([MAKE, node("Relu", ["s"], ["r"])], "is a sequence"),
    ],
)
def test_what_cannot_be_is_refused(nodes: list[onnx.NodeProto], words: str) -> None:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 4]) for name in "xyz"]
    four = numpy_helper.from_array(np.array(4), "four")
    graph = helper.make_graph(nodes, "g", values, [onnx.ValueInfoProto(name="r")], [four])
    with pytest.raises(UnsupportedError, match=words):
        compile_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
