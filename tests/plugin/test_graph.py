"""ONNX Runtime's graph is read as it is: names, types, shapes, attributes, constants, opsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.compiler.lower.lower import Attempt
from onnxruntime_ep_wgpu.plugin.assign import graph as ort_graph
from onnxruntime_ep_wgpu.plugin.assign import subgraph
from onnxruntime_ep_wgpu.plugin.assign.shown import predecessors
from onnxruntime_ep_wgpu.runtime.weight_file import MappedFiles
from onnxruntime_ep_wgpu.runtime.weight_sources import FromModel, InFile, WeightSource

from . import models


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[ir.Graph]:
    """The graphs that the compiler is asked about; it refuses every node."""
    graphs: list[ir.Graph] = []

    def refuse(graph: ir.Graph, *_: Any, **__: Any) -> Attempt:
        graphs.append(graph)
        for value in graph.initializers.values():
            # A view of memory that is ONNX Runtime's and only lent.
            if value.const_value is not None and value.dtype != ir.DataType.STRING:
                value.meta["copy"] = value.const_value.numpy().copy()
        return Attempt(["refused"] * len(list(graph)))

    monkeypatch.setattr("onnxruntime_ep_wgpu.plugin.assign.claim.attempt", refuse)
    return graphs


def read(seen: list[ir.Graph], model: bytes, level: Any = ort.GraphOptimizationLevel.ORT_DISABLE_ALL) -> ir.Graph:
    so = ort.SessionOptions()
    so.graph_optimization_level = level
    webgpu_ep.session(model, sess_options=so, allow_cpu_only=True)
    return seen[-1]


def test_names_operators_and_edges_are_read(seen: list[ir.Graph]) -> None:
    graph = read(seen, models.chain())
    assert [(node.name, node.op_type, node.domain) for node in graph] == [
        ("mul", "Mul", ""),
        ("matmul", "MatMul", ""),
        ("relu", "LeakyRelu", ""),
        ("add", "Add", ""),
    ]
    assert [value.name for value in graph.inputs] == ["x"]
    assert [value.name for value in graph.outputs] == ["y"]
    assert [[value.name for value in node.inputs if value] for node in graph] == [
        ["x", "x"],
        ["a", "w"],
        ["c"],
        ["d", "b"],
    ]
    assert graph.opset_imports[""] == 17
    assert graph.node(1).inputs[0].producer() is graph.node(0)
    assert all(node.version for node in graph)


def test_dims_are_numbers_names_or_unknown(seen: list[ir.Graph]) -> None:
    nodes = [models.node("Relu", ["x"], ["y"]), models.node("Relu", ["u"], ["v"]), models.node("Relu", ["s"], ["t"])]
    inputs = [("x", models.FLOAT, [3, "batch", None]), ("u", models.FLOAT, None), ("s", models.FLOAT, [])]
    outputs = [("y", models.FLOAT, None), ("v", models.FLOAT, None), ("t", models.FLOAT, None)]
    values = {value.name: value for value in read(seen, models.model(nodes, inputs, outputs, check=False)).inputs}
    shape = values["x"].shape
    assert shape is not None
    assert (shape[0], shape[1].value, shape[2].value) == (3, "batch", None)
    assert values["u"].shape is None
    assert values["s"].shape is not None and values["s"].shape.rank() == 0


@pytest.mark.parametrize(
    "code",
    [1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 16, 21, 22],
    ids=lambda code: TensorProto.DataType.Name(code).lower(),
)
def test_constants_of_every_type_are_read(seen: list[ir.Graph], code: int) -> None:
    values = np.array([[0, 1, 1], [1, 0, 1], [3, 2, 1]])
    tensor = onnx.helper.make_tensor("c", code, values.shape, values.reshape(-1).tolist())
    packed = code in (TensorProto.UINT4, TensorProto.INT4)  # no operator but this one takes them
    reader = (
        helper.make_node("DequantizeLinear", ["c", "x"], ["y"], axis=0)
        if packed
        else helper.make_node("Identity", ["c"], ["y"])
    )
    nodes = [reader, helper.make_node("Identity", ["x"], ["z"])]
    graph = helper.make_graph(
        nodes,
        "constants",
        [helper.make_tensor_value_info("x", 1, [3])],
        [helper.make_tensor_value_info("y", 1 if packed else code, [3, 3]), helper.make_tensor_value_info("z", 1, [3])],
        [tensor],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    value = read(seen, model.SerializeToString()).initializers["c"]
    want = numpy_helper.to_array(tensor)
    assert value.dtype == ir.DataType(code)
    assert tuple(value.shape or ()) == (3, 3)
    np.testing.assert_array_equal(value.meta["copy"].astype(np.float32), want.astype(np.float32))


def test_string_constants_do_not_hurt(seen: list[ir.Graph]) -> None:
    nodes = [models.node("Identity", ["c"], ["y"]), models.node("Relu", ["x"], ["z"])]
    constants = [("c", np.array(["a", "bc"], dtype=object))]
    outputs = [("y", TensorProto.STRING, [2]), ("z", models.FLOAT, [1])]
    graph = read(seen, models.model(nodes, [("x", models.FLOAT, [1])], outputs, constants))
    assert graph.initializers["c"].dtype == ir.DataType.STRING


def test_every_kind_of_attribute_is_read(seen: list[ir.Graph]) -> None:
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    nodes = [
        models.node("Constant", [], ["c"], "constant", value=numpy_helper.from_array(value)),
        models.node("Conv", ["x", "w"], ["y"], "conv", auto_pad="SAME_UPPER", strides=[2, 1], group=1),
        models.node("LeakyRelu", ["y"], ["z"], "leaky", alpha=0.5),
        models.node("ConstantOfShape", ["s"], ["f"], "fill", value=numpy_helper.from_array(np.array([7], np.int64))),
    ]
    constants = [("w", np.ones((1, 1, 3, 3), np.float32)), ("s", np.array([2], np.int64))]
    outputs = [("z", models.FLOAT, None), ("f", models.INT64, None), ("c", models.FLOAT, None)]
    graph = read(seen, models.model(nodes, [("x", models.FLOAT, [1, 1, 8, 8])], outputs, constants, check=False))
    found = {node.name: node.attributes for node in graph}
    assert found["conv"]["auto_pad"].as_string() == "SAME_UPPER"
    assert list(found["conv"]["strides"].as_ints()) == [2, 1]
    assert found["conv"]["group"].as_int() == 1
    assert found["leaky"]["alpha"].as_float() == 0.5
    np.testing.assert_array_equal(found["fill"]["value"].as_tensor().numpy(), [7])


def test_lists_of_floats_and_strings_are_read(seen: list[ir.Graph]) -> None:
    nodes = [
        models.node(
            "LabelEncoder",
            ["x"],
            ["y"],
            "encoder",
            domain="ai.onnx.ml",
            keys_strings=["a", "bc", ""],
            values_floats=[1.5, 2.5, 3.5],
        )
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 8, [2])], [helper.make_tensor_value_info("y", 1, [2])]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 2)]
    (node,) = read(seen, helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    assert node.domain == "ai.onnx.ml"
    assert list(node.attributes["keys_strings"].as_strings()) == ["a", "bc", ""]
    assert list(node.attributes["values_floats"].as_floats()) == [1.5, 2.5, 3.5]


def test_inputs_and_outputs_that_are_left_out_stay_out(seen: list[ir.Graph]) -> None:
    nodes = [
        models.node("Clip", ["x", "", "high"], ["c"], "clip"),
        models.node("Dropout", ["c"], ["y", ""], "dropout"),
    ]
    constants = [("high", np.array(1, np.float32))]
    graph = read(seen, models.model(nodes, [("x", models.FLOAT, [2])], [("y", models.FLOAT, [2])], constants))
    clip = graph.node("clip")
    assert [value.name if value else None for value in clip.inputs] == ["x", None, "high"]


def conditional() -> bytes:
    """y = cond ? x + w : x * u, with the body's u made by the outer graph and w a constant of it."""
    then = helper.make_graph(
        [models.node("Add", ["x", "w"], ["t"], "then_add")], "then", [], [helper.make_tensor_value_info("t", 1, [2])]
    )
    other = helper.make_graph(
        [models.node("Mul", ["x", "u"], ["e"], "else_mul")], "else", [], [helper.make_tensor_value_info("e", 1, [2])]
    )
    nodes = [
        models.node("Relu", ["x"], ["u"], "relu"),
        models.node("If", ["cond"], ["i"], "if", then_branch=then, else_branch=other),
        models.node("Add", ["i", "u"], ["y"], "sum"),
    ]
    inputs = [("x", models.FLOAT, [2]), ("cond", TensorProto.BOOL, [])]
    return models.model(nodes, inputs, [("y", models.FLOAT, [2])], [("w", np.array([10, 20], np.float32))])


def test_bodies_are_opaque_and_their_outer_values_are_implicit_inputs(seen: list[ir.Graph]) -> None:
    read(seen, conditional())
    main = next(graph for graph in seen if any(node.op_type == "If" for node in graph))
    node = main.node("if")
    assert node.attributes["then_branch"].type == ir.AttributeType.GRAPH
    assert len(node.attributes["then_branch"].as_graph()) == 0
    assert sorted(value.name or "" for value in node.meta["implicit_inputs"]) == ["u", "w", "x"]
    assert predecessors(main)[1] == [0]
    body = next(graph for graph in seen if any(node.name == "else_mul" for node in graph))
    assert sorted(value.name or "" for value in body.inputs) == ["u", "x"]


def test_bodies_run_here_too() -> None:
    session = webgpu_ep.session(conditional(), allow_cpu_only=True)
    x = np.array([-1, 2], np.float32)
    for _ in range(3):
        (y,) = session.run(None, {"x": x, "cond": np.array(True)})
        np.testing.assert_array_equal(y, x + np.array([10, 20]) + np.maximum(x, 0))
        (y,) = session.run(None, {"x": x, "cond": np.array(False)})
        np.testing.assert_array_equal(y, x * np.maximum(x, 0) + np.maximum(x, 0))
    placed = {node.name: (node.within, node.provider) for node in webgpu_ep.report(session).nodes}
    assert placed["then_add"] == ("if", "WebGpuExecutionProvider")
    assert placed["else_mul"] == ("if", "WebGpuExecutionProvider")
    assert placed["if"] == ("", "WebGpuExecutionProvider")


def test_nodes_without_a_name_get_one_of_their_own(seen: list[ir.Graph]) -> None:
    nodes = [
        models.node("Relu", ["x"], ["a"]),
        models.node("Neg", ["a"], ["b"], "Relu_0"),
        models.node("Abs", ["b"], ["y"]),
    ]
    graph = read(seen, models.model(nodes, [("x", models.FLOAT, [2])], [("y", models.FLOAT, [2])]))
    names = [node.name for node in graph]
    assert "Relu_0" in names and all(names) and len(set(names)) == 3


def test_weights_in_a_file_beside_the_model_are_read(seen: list[ir.Graph], tmp_path: Any) -> None:
    model = onnx.load_from_string(models.chain())
    want = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    path = tmp_path / "model.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    graph = read(seen, path)
    assert set(graph.initializers) == set(want)
    for name, value in graph.initializers.items():
        np.testing.assert_array_equal(value.meta["copy"], want[name])


@pytest.mark.parametrize("optimised", [False, True])
@pytest.mark.parametrize("given", ["as a file", "as bytes with a folder"])
def test_what_lies_beside_the_model_is_taken_at_onnx_runtimes_word(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, given: str, optimised: bool
) -> None:
    """Which bytes of which file its memory has; a weight in the model itself is compared with the file."""
    model = onnx.load_from_string(models.chain())
    want = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    path = tmp_path / "model.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="weights.bin", size_threshold=128)
    external = {it.name for it in onnx.load(path, load_external_data=False).graph.initializer if it.external_data}
    assert 0 < len(external) < len(want)
    compared: list[str] = []
    monkeypatch.setattr(MappedFiles, "has_bytes", lambda _files, span, *_: compared.append(span.path.name) or False)
    sources: dict[str, WeightSource] = {}
    finders: list[FromModel] = []
    known = FromModel.__call__

    def noted(self: FromModel, name: str, array: np.ndarray) -> WeightSource:
        assert self._lent
        finders.append(self)
        sources[name] = found = known(self, name, array)
        return found

    monkeypatch.setattr(FromModel, "__call__", noted)
    so = ort.SessionOptions()
    if not optimised:
        so.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if given == "as a file":
        webgpu_ep.session(path, sess_options=so)
    else:
        so.add_session_config_entry("session.model_external_initializers_file_folder_path", str(tmp_path))
        webgpu_ep.session(path.read_bytes(), sess_options=so)
    assert external <= set(sources) and "weights.bin" not in compared
    for name in external:
        found = sources[name]
        assert isinstance(found, InFile) and found.span.path == tmp_path / "weights.bin"
        np.testing.assert_array_equal(found.read(), want[name])
    assert not any(it._lent for it in finders)  # ONNX Runtime may have freed its memory


@pytest.mark.parametrize("shared", [True, False])
def test_a_body_reads_a_weight_of_the_graph_around_it_that_lies_in_a_file(tmp_path: Any, shared: bool) -> None:
    """ONNX Runtime does not find the place of such a weight in the file."""
    one, other = np.random.default_rng(0).standard_normal((2, 16, 16), np.float32)
    body = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["inner"])], "then", [],
        [onnx.helper.make_tensor_value_info("inner", models.FLOAT, None)],
    )  # fmt: skip
    without = onnx.helper.make_graph(
        [onnx.helper.make_node("Neg", ["x"], ["less"])], "otherwise", [],
        [onnx.helper.make_tensor_value_info("less", models.FLOAT, None)],
    )  # fmt: skip
    nodes = [
        onnx.helper.make_node("If", ["c"], ["chosen"], then_branch=body, else_branch=without),
        onnx.helper.make_node("MatMul", ["chosen", "w" if shared else "v"], ["y"]),
    ]
    inputs = [("x", models.FLOAT, ["n", 16]), ("c", onnx.TensorProto.BOOL, [])]
    weights = [("w", one)] if shared else [("w", one), ("v", other)]
    model = onnx.load_from_string(models.model(nodes, inputs, [("y", models.FLOAT, ["n", 16])], weights))
    path = tmp_path / "model.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    session = webgpu_ep.session(path)
    x = np.random.default_rng(1).standard_normal((3, 16), np.float32)
    for choice in (True, False):
        (y,) = session.run(None, {"x": x, "c": np.array(choice)})
        np.testing.assert_allclose(y, (x @ one if choice else -x) @ (one if shared else other), rtol=1e-4, atol=1e-4)


def test_an_input_with_a_default_is_an_input(seen: list[ir.Graph]) -> None:
    """Such an initializer may be overridden in any run: it is not a constant."""
    nodes = [models.node("Add", ["x", "b"], ["y"], "add")]
    inputs = [("x", models.FLOAT, [2]), ("b", models.FLOAT, [2])]
    model = models.model(nodes, inputs, [("y", models.FLOAT, [2])], [("b", np.array([1, 2], np.float32))])
    graph = read(seen, model)
    assert [value.name for value in graph.inputs] == ["x", "b"]
    assert not graph.initializers


def test_an_overridden_default_is_used_in_the_next_run() -> None:
    nodes = [models.node("Add", ["x", "b"], ["y"], "add")]
    inputs = [("x", models.FLOAT, [2]), ("b", models.FLOAT, [2])]
    model = models.model(nodes, inputs, [("y", models.FLOAT, [2])], [("b", np.array([1, 2], np.float32))])
    session = webgpu_ep.session(model, allow_cpu_only=True)
    x = np.array([1, 1], np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], [2, 3])
    np.testing.assert_array_equal(session.run(None, {"x": x, "b": x})[0], [2, 2])
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], [2, 3])


def test_a_group_is_cut_out_with_its_inputs_constants_and_outputs(seen: list[ir.Graph]) -> None:
    graph = read(seen, models.mixed())
    nodes = [node for node in graph if node.name in ("add", "shape", "gather")]
    part = subgraph.extract(graph, nodes)
    assert [node.name for node in part] == ["add", "shape", "gather"]
    assert [value.name for value in part.inputs] == ["s"]
    assert sorted(part.initializers) == ["b", "i0"]
    assert [value.name for value in part.outputs] == ["t", "d0"]
    assert all(value.producer().graph is part for value in part.outputs)
    assert len(list(graph)) == 9 and graph.node("add").outputs[0].uses()


def test_the_number_that_says_which_type_is_onnx_runtimes_own() -> None:
    assert ir.DataType(ort_graph.onnx_code(1)) == ir.DataType.FLOAT
    assert [ir.DataType(ort_graph.onnx_code(code)).name for code in (24, 25, 26)] == ["UINT2", "INT2", "FLOAT8E8M0"]
