"""The last row of logits alone is that of all rows, whatever a model calculates it with, and all before it is of one row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.helper import make_node as node

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.api.language import model_file
from onnxruntime_ep_wgpu.api.language.last_row import of_last_row
from onnxruntime_ep_wgpu.program.layout import Layouts
from onnxruntime_ep_wgpu.runtime.weight_sources import InFile, WeightSource
from tests.links import in_a_cache
from tests.support import compile_model, target

from .models import Decoder, graph_of, growing_graph_of, write

MICROSOFT = "com.microsoft"
BATCH, ROWS, WIDE, WORDS = 2, 5, 8, 12
_RANDOM = np.random.default_rng(0)
WEIGHTS = {
    "table": _RANDOM.standard_normal((WORDS, WIDE)), "w": _RANDOM.standard_normal((WIDE, WIDE)),
    "w2": _RANDOM.standard_normal((WIDE, 2 * WIDE)), "head": _RANDOM.standard_normal((WIDE, WORDS)),
    "turned": _RANDOM.standard_normal((WORDS, WIDE)), "gain": _RANDOM.standard_normal(WIDE), "bias": _RANDOM.standard_normal(WORDS),
    "cap": np.array(3.0), "two": np.array(2.0), "eps": np.array(1e-5), "by row": _RANDOM.standard_normal((1, ROWS, WIDE)),
    "one row": _RANDOM.standard_normal((1, 1, WIDE)), "of rows": _RANDOM.standard_normal(ROWS), "positive": np.full(ROWS, 2.0),
}  # fmt: skip
INDICES = {
    "-1": np.array([-1]),
    "1": np.array([1]),
    "0": np.array([0]),
    "at0": np.array(0),
    "at1": np.array(1),
    "wide": np.array([WIDE]),
}
NORM = [
    node("Pow", ["r", "two"], ["p"]), node("ReduceMean", ["p", "-1"], ["m"]), node("Add", ["m", "eps"], ["e"]),
    node("Sqrt", ["e"], ["s"]), node("Div", ["r", "s"], ["d"]), node("Mul", ["gain", "d"], ["n"]),
]  # fmt: skip
RESIDUAL = [node("MatMul", ["x", "w"], ["o"]), node("Add", ["x", "o"], ["r"])]
HEAD = [node("MatMul", ["n", "head"], ["logits"])]


def body(op: str) -> onnx.GraphProto:
    return helper.make_graph([node(op, ["logits"], [op])], op, [], [onnx.ValueInfoProto(name=op)])


# What is behind the embeddings x of ids, and how many of its nodes are for one row; 0: all are for all, and logits are cut.
FORMS: dict[str, tuple[list[onnx.NodeProto], int]] = {
    "product alone": ([node("MatMul", ["x", "head"], ["logits"])], 1),
    "transposed weights": ([node("Transpose", ["turned"], ["t"]), node("MatMul", ["x", "t"], ["logits"])], 1),
    "bias": ([node("MatMul", ["x", "head"], ["l"]), node("Add", ["bias", "l"], ["logits"])], 2),
    "softcap": (
        [node("MatMul", ["x", "head"], ["l"]), node("Div", ["l", "cap"], ["q"]), node("Tanh", ["q"], ["t"]),
         node("Mul", ["t", "cap"], ["logits"])], 4,
    ),
    "cast": (
        [node("Cast", ["x"], ["h"], to=11), node("Cast", ["head"], ["w64"], to=11), node("MatMul", ["h", "w64"], ["l"]),
         node("Cast", ["l"], ["logits"], to=1)], 3,
    ),
    "norm of a sum": ([*RESIDUAL, *NORM, *HEAD], 9),
    "heads put together": (
        [node("Shape", ["ids"], ["all"]), node("Gather", ["all", "at0"], ["n0"]), node("Gather", ["all", "at1"], ["n1"]),
         node("Unsqueeze", ["n0", "0"], ["u0"]), node("Unsqueeze", ["n1", "0"], ["u1"]),
         node("Concat", ["u0", "u1", "wide"], ["shape"], axis=0), node("Softmax", ["x"], ["a"], axis=1),
         node("Reshape", ["a", "shape"], ["h"]), node("MatMul", ["h", "w"], ["o"]), node("Add", ["o", "x"], ["r"]), *NORM,
         *HEAD], 9,
    ),
    "layer norm": ([*RESIDUAL, node("LayerNormalization", ["r", "gain"], ["n"], axis=2), *HEAD], 4),
    "skip norm": (
        [node("MatMul", ["x", "w"], ["o"]),
         node("SkipSimplifiedLayerNormalization", ["x", "o", "gain"], ["n"], domain=MICROSOFT), *HEAD], 3,
    ),
    "gate and up in one product": (
        [node("MatMul", ["x", "w2"], ["gu"]), node("Split", ["gu"], ["g", "u"], axis=-1, num_outputs=2),
         node("Sigmoid", ["g"], ["s"]), node("Mul", ["s", "u"], ["n"]), *HEAD], 5,
    ),
    "fused": ([node("FusedMatMul", ["x", "turned"], ["logits"], domain=MICROSOFT, transB=1, alpha=0.5)], 1),
    "a choice of elements": (
        [node("Greater", ["x", "eps"], ["c"]), node("Where", ["c", "x", "two"], ["s"]), node("PRelu", ["s", "gain"], ["n"]), *HEAD],
        4,
    ),
    "a factor for each row": (
        [node("BatchNormalization", ["x", "of rows", "of rows", "of rows", "positive"], ["n"]), *HEAD], 1,
    ),
    "a constant of one row": ([node("Mul", ["x", "one row"], ["n"]), *HEAD], 2),
    "a constant for each row": ([node("Mul", ["x", "by row"], ["n"]), *HEAD], 1),
    "another mean": ([node("ReduceMean", ["x", "1"], ["m"]), node("Sub", ["x", "m"], ["n"]), *HEAD], 2),
    "sums of rows": ([node("CumSum", ["x", "1"], ["n"]), *HEAD], 1),
    "an operand of unknown rank": (
        [node("NonZero", ["flags"], ["z"]), node("Squeeze", ["z"], ["k"]), node("Gather", ["gain", "k"], ["v"], axis=0),
         node("Mul", ["x", "v"], ["n"]), *HEAD], 1,
    ),
    "another output": ([node("Mul", ["x", "gain"], ["n"]), node("Identity", ["n"], ["hidden"]), *HEAD], 1),
    "another reader of logits": ([node("MatMul", ["x", "head"], ["logits"]), node("ReduceMax", ["logits"], ["hidden"])], 0),
    "another reader of logits in a body": (
        [node("MatMul", ["x", "head"], ["logits"]),
         node("If", ["true"], ["hidden"], then_branch=body("Identity"), else_branch=body("Neg"))], 0,
    ),
    "logits of nothing row by row": ([node("MatMul", ["x", "head"], ["l"]), node("Softmax", ["l"], ["logits"], axis=1)], 0),
}  # fmt: skip


def model_of(nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    read, made = {it for n in nodes for it in n.input}, {it for n in nodes for it in n.output}
    weights = {name: it.astype(np.float32) for name, it in WEIGHTS.items()} | INDICES
    weights |= {"flags": np.ones(WIDE, np.float32), "true": np.array(True)}
    outputs = [value("logits", 1, ["batch", "rows", WORDS])]
    outputs += [onnx.ValueInfoProto(name="hidden")] if "hidden" in made else []
    graph = helper.make_graph(
        [node("Gather", ["table", "ids"], ["x"]), *nodes], "g", [value("ids", 7, ["batch", "rows"])], outputs,
        [numpy_helper.from_array(it, name) for name, it in weights.items() if name in read | {"table"}],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(MICROSOFT, 1)]
    copy = onnx.ModelProto()
    copy.CopyFrom(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    return copy


def of_one_row(model: onnx.ModelProto) -> int:
    """How many nodes are calculated for one row: those behind a Slice."""
    behind, count = {it.output[0] for it in model.graph.node if it.op_type == "Slice"}, 0
    for it in model.graph.node:
        if it.op_type != "Slice" and behind.intersection(it.input):
            behind.update(it.output)
            count += 1
    return count


@pytest.mark.costly
@pytest.mark.parametrize("name", FORMS)
def test_logits_of_the_last_row(name: str) -> None:
    nodes, count = FORMS[name]
    model, changed = model_of(nodes), model_of(nodes)
    of_last_row(changed, "logits")
    assert of_one_row(changed) == count
    feeds = {"ids": np.random.default_rng(1).integers(0, WORDS, (BATCH, ROWS))}
    wanted, got = (
        ort.InferenceSession(it.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
        for it in (model, changed)
    )
    assert got[0].shape == (BATCH, 1, WORDS)
    np.testing.assert_allclose(got[0], wanted[0][:, -1:], rtol=1e-5, atol=1e-6)
    for mine, theirs in zip(got[1:], wanted[1:], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    ours = webgpu_ep.session(changed.SerializeToString()).run(None, feeds)
    np.testing.assert_allclose(ours[0], wanted[0][:, -1:], rtol=1e-4, atol=1e-5)


def test_one_row_of_logits_stays_as_it_is() -> None:
    model = model_of(FORMS["product alone"][0])
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 1
    before = model.SerializeToString()
    of_last_row(model, "logits")
    assert model.SerializeToString() == before


@pytest.mark.costly
@pytest.mark.parametrize("make", [graph_of, growing_graph_of])
def test_no_value_has_a_row_of_logits_for_each_id(make: Callable[[Decoder], onnx.ModelProto]) -> None:
    largest = []
    for changed in (False, True):
        model = make(Decoder(groups=4, vocabulary=4096))
        if changed:
            of_last_row(model, "logits")
        program = compile_model(model, target())
        sizes = {
            it.name: 0 if it.name.startswith("past") else 1 if it.name.startswith("batch") else 40
            for it in program.symbols
        }
        layout = Layouts(program).layout(list(sizes.values()))
        largest.append(max(n for value, n in zip(program.values, layout.nbytes, strict=True) if value.weight < 0))
    assert largest[0] == 40 * 4096 * 4 > 10 * largest[1]


@pytest.mark.costly
@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("linked", [False, True])
def test_weights_stay_where_they_are(
    external: bool, linked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In their file, which Hugging Face's cache has in another folder, behind a link."""
    folder = write(Decoder(layers=1), tmp_path / "model")
    path = folder / "model.onnx"
    if external:
        how = {"location": "model.onnx.data", "size_threshold": 1024}
        onnx.save(onnx.load(path), path, save_as_external_data=True, **how)
    large = {it.name for it in onnx.load(path).graph.initializer if len(it.raw_data) >= 1024}
    if linked:
        in_a_cache(folder)
    sources: dict[str, WeightSource] = {}
    from onnxruntime_ep_wgpu.plugin import session as plugin_session

    class Noted(plugin_session.FromModel):
        def __call__(self, name: str, array: np.ndarray) -> WeightSource:
            sources[name] = found = super().__call__(name, array)
            return found

    monkeypatch.setattr(plugin_session, "FromModel", Noted)
    model = webgpu_ep.LanguageModel(folder)
    assert next(iter(model.tokens([[5, 6, 7]])))
    assert len(large) > 5 and all(isinstance(sources[it], InFile) for it in large)


def test_what_is_no_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\xff\xff no model")
    with pytest.raises(webgpu_ep.ModelError, match=r"model\.onnx is not an ONNX model"):
        model_file.read(tmp_path / "model.onnx")


def test_the_type_of_weights_that_are_left_in_a_file_does_not_matter(tmp_path: Path) -> None:
    tensors = [
        numpy_helper.from_array(np.arange(600, dtype=np.float32), "raw"),
        helper.make_tensor("typed", TensorProto.FLOAT, [600], list(range(600))),
        numpy_helper.from_array(np.ones(3, np.float32), "small"),
    ]
    value = helper.make_tensor_value_info
    nodes = [
        node("Add", ["x", "raw"], ["a"]),
        node("Mul", ["a", "typed"], ["b"]),
        node("Concat", ["b", "small"], ["y"], axis=0),
    ]
    graph = helper.make_graph(nodes, "g", [value("x", 1, [600])], [value("y", 1, [603])], tensors)
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    model = model_file.read(path)
    session = model_file.session_of(model, path, {})
    assert [bool(it.external_data) for it in model.graph.initializer] == [True, False, False]
    x = np.random.default_rng(0).standard_normal(600).astype(np.float32)
    (y,) = session.run(None, {"x": x})
    numbers = np.arange(600, dtype=np.float32)
    np.testing.assert_allclose(y, np.append((x + numbers) * numbers, np.ones(3, np.float32)), rtol=1e-6)
