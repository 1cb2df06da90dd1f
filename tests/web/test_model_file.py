"""What ONNX Runtime opens is read for an export: it is compiled, or refused by the names of the nodes that cannot run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu import export
from onnxruntime_ep_wgpu.api.model_file import read_model
from onnxruntime_ep_wgpu.api.web_export import _compiled
from onnxruntime_ep_wgpu.errors import FreeSizeError, OptionError, UnsupportedError
from onnxruntime_ep_wgpu.program.target import WEB_BASELINE
from tests.support import Runner

X = np.random.default_rng(5).standard_normal((2, 3)).astype(np.float32)
ML = "ai.onnx.ml"
MAP = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, [1]))


def tensor(name: str, shape: Sequence[int | str | None] = (2, 3)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def model(nodes: list[onnx.NodeProto], inputs: Any = None, outputs: Any = None, **more: Any) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs or [tensor("x")], outputs or [tensor("y")])
    opsets = [helper.make_opsetid(domain, version) for domain, version in (("", 17), (ML, 2), ("own", 1))]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, **more)


def sparse(*indices: Any) -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(np.array([1.5, -2], np.float32), "w")
    return helper.make_sparse_tensor(values, numpy_helper.from_array(np.array(indices, np.int64), "at"), [2, 3])


def with_function() -> onnx.ModelProto:
    """A function that calls another one, twice, within an If too."""
    opset = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    twice = helper.make_function("own", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])], opset)
    steps = [node("Twice", ["a"], ["t"], domain="own"), node("Twice", ["t"], ["b"], domain="own")]
    four = helper.make_function("own", "Four", ["a"], ["b"], steps, opset)
    body = helper.make_graph([node("Four", ["f"], ["p"], domain="own")], "then", [], [onnx.ValueInfoProto(name="p")])
    nodes = [
        node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(True))),
        node("Four", ["x"], ["f"], domain="own"),
        node("If", ["c"], ["y"], then_branch=body, else_branch=body),
    ]
    return model(nodes, functions=[twice, four])


def with_sparse_weight(*indices: Any) -> onnx.ModelProto:
    made = model([node("Add", ["x", "w"], ["y"])])
    made.graph.sparse_initializer.append(sparse(*indices))
    return made


RUN = {
    "functions": with_function(),
    "a sparse weight": with_sparse_weight(1, 5),
    "a sparse weight by coordinates": with_sparse_weight((0, 1), (1, 2)),
    "a sparse Constant": model(
        [node("Constant", [], ["w"], sparse_value=sparse(0, 4)), node("Add", ["x", "w"], ["y"])]
    ),
    "nodes out of order": model([node("Neg", ["t"], ["y"]), node("Exp", ["x"], ["t"])]),
}


@pytest.mark.parametrize("what", RUN)
def test_what_onnxruntime_opens_is_compiled(what: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(RUN[what], path)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {"x": X})
    (got,) = Runner(*_compiled(path, read_model(path), WEB_BASELINE))(X)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def classifier() -> onnx.ModelProto:
    """What converters of scikit-learn and LightGBM write behind probabilities."""
    steps = [node("Softmax", ["x"], ["p"]), node("ZipMap", ["p"], ["y"], domain=ML, classlabels_int64s=[0, 1, 2])]
    return model(steps, outputs=[helper.make_value_info("y", helper.make_sequence_type_proto(MAP))])


def from_a_map(operator: str, **attributes: Any) -> onnx.ModelProto:
    one = node(operator, ["x"], ["y"], domain=ML, **attributes)
    return model([one], [helper.make_value_info("x", MAP)], [tensor("y", [1, 2])])


REFUSED = {
    "ZipMap": (classifier(), f"1 node that cannot run on WebGPU: ZipMap 'y': no kernel for {ML}.ZipMap"),
    # Inference of a whole model by onnx ends the process here.
    "DictVectorizer": (
        from_a_map("DictVectorizer", int64_vocabulary=[1, 2]),
        "DictVectorizer 'y': the type of 'x' is unknown, or is not a tensor type",
    ),
    "CastMap": (from_a_map("CastMap"), "CastMap 'y': the type of 'x' is unknown, or is not a tensor type"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_has_no_kernel_is_refused_by_its_name(what: str, tmp_path: Path) -> None:
    made, reason = REFUSED[what]
    path = tmp_path / "model.onnx"
    onnx.save(made, path)
    ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    with pytest.raises(UnsupportedError, match=re.escape(reason)):
        export(path)


@pytest.mark.parametrize("kind", ["onnx", "ort"])
def test_sizes_that_decide_a_branch_are_fixed(kind: str, tmp_path: Path) -> None:
    """By name and by input and axis, in both formats."""
    text = """<ir_version: 10, opset_import: ["" : 17]> g (float[N, 3] x) => (float[] y) <int64 zero = {0}> {
        shape = Shape (x)  count = Gather (shape, zero)  c = Cast <to = 9> (count)
        r = If (c) <then_branch = t () => (float[] p) { p = Neg (x) }, else_branch = e () => (float[] q) { q = Squeeze (x) }>
        y = Exp (r) }"""
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    if kind == "ort":
        settings = ort.SessionOptions()
        settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        settings.optimized_model_filepath = str(path := tmp_path / "model.ort")
        ort.InferenceSession(tmp_path / "model.onnx", settings, providers=["CPUExecutionProvider"])
    with pytest.raises(
        FreeSizeError, match="Exp 'y': the rank of 'r' is unknown: If 'r' decides it in a run"
    ) as caught:
        export(path)
    assert str(caught.value).endswith("overrides={'N': SIZE} fixes sizes that are free")
    for key in ("N", "x.shape[0]"):
        (got,) = Runner(*_compiled(path, read_model(path, {key: 2}), WEB_BASELINE))(X)
        np.testing.assert_allclose(got, np.exp(-X), rtol=1e-5)
    with pytest.raises(OptionError, match="no input has a free dimension 'M'; the model has N"):
        export(path, overrides={"M": 1})


def test_a_number_that_a_kernel_needs_is_named_by_what_decides_it(tmp_path: Path) -> None:
    """An axis that is an input is no matter of shapes; one of a size is."""
    for text, error, reason in (
        (
            "int64[1] a",
            UnsupportedError,
            "the elements of 'a' decide the list of axes in a run, but it must be known before",
        ),
        (
            "float[N] s",
            FreeSizeError,
            "sizes that are free (N) decide the list of axes, but it must be known before a run",
        ),
    ):
        axes = "a = Shape (s)" if "s" in text else ""
        made = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 18]> g (float[2, 3] x, {text}) => (float[] y) {{
            {axes} y = ReduceSum (x, a) }}""")
        path = tmp_path / "model.onnx"
        onnx.save(made, path)
        with pytest.raises(UnsupportedError, match=re.escape(reason)) as caught:
            export(path)
        assert type(caught.value) is error
