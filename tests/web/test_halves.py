"""Models in halves: every operator that stays float32 behind and before every other, whoever reads or makes what it does."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto as T
from onnx import helper
from onnx.helper import make_node as op
from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST

from onnxruntime_ep_wgpu import cli
from onnxruntime_ep_wgpu.api.model_file import read_model
from onnxruntime_ep_wgpu.api.precision import Precision, Reduced, reduce
from onnxruntime_ep_wgpu.api.web_export import _compiled
from onnxruntime_ep_wgpu.compiler.graph.schemas import schema_of
from onnxruntime_ep_wgpu.errors import ProgramError
from onnxruntime_ep_wgpu.program.target import WEB_BASELINE
from tests.graphs.generate import generate
from tests.support import Runner, make_model

F, I64 = np.float32, np.int64
RNG = np.random.default_rng(5)
SQUARE = RNG.normal(size=(4, 4)).astype(F)

# By operator: nodes that make y of x, 4 by 4 of float32; weights; opset. The operators are those that ONNX Runtime's converter
# keeps, of which ONNX has a definition.
STAY = {
    "Range": ([op("Abs", ["x"], ["m"]), op("ReduceMax", ["m"], ["e"], keepdims=0), op("Range", ["zero", "e", "one"], ["y"])],
              {"zero": np.array(0, F), "one": np.array(0.5, F)}, 17),
    "CumSum": ([op("CumSum", ["x", "axis"], ["y"])], {"axis": np.array(1, I64)}, 17),
    "Min": ([op("Min", ["x", "w"], ["y"])], {"w": SQUARE}, 17),
    "Max": ([op("Max", ["x", "w", "x"], ["y"])], {"w": SQUARE}, 17),
    "TopK": ([op("TopK", ["x", "k"], ["y", "index"])], {"k": np.array([2], I64)}, 17),
    "Upsample": ([op("Upsample", ["x", "scales"], ["y"])], {"scales": np.array([2, 2], F)}, 9),
    "RoiAlign": ([op("Reshape", ["x", "image"], ["i"]),
                  op("RoiAlign", ["i", "rois", "which"], ["y"], output_height=2, output_width=2)],
                 {"image": np.array([1, 1, 4, 4], I64), "rois": np.array([[0, 0, 3, 3]], F), "which": np.array([0], I64)}, 17),
    "NonMaxSuppression": ([op("Reshape", ["x", "boxes"], ["b"]), op("ReduceMax", ["x"], ["m"], axes=[1], keepdims=0),
                           op("Reshape", ["m", "scored"], ["s"]), op("NonMaxSuppression", ["b", "s", "n"], ["chosen"]),
                           op("Cast", ["chosen"], ["y"], to=T.FLOAT)],
                          {"boxes": np.array([1, 4, 4], I64), "scored": np.array([1, 1, 4], I64), "n": np.array([4], I64)}, 17),
}  # fmt: skip
RANDOM = {"RandomUniformLike"}


def test_no_operator_of_the_list_is_left_out() -> None:
    known = {name for name in DEFAULT_OP_BLOCK_LIST if schema_of(name, "", 17) or schema_of(name, "", 9)}
    assert known - RANDOM == set(STAY)


def halves_of(model: onnx.ModelProto, tmp_path: Path, **samples: np.ndarray) -> tuple[Reduced, list[np.ndarray]]:
    """The model in halves, and its outputs of ONNX Runtime: types fit everywhere, or it would not load it."""
    onnx.save(model, tmp_path / "m.onnx")
    (tmp_path / "out").mkdir(exist_ok=True)
    found = reduce(tmp_path / "m.onnx", Precision(halves=True), samples, tmp_path / "out")
    made = onnx.load(found.path)
    bodies = [it.g for node in made.graph.node for it in node.attribute if it.HasField("g")]
    read = {name for graph in (made.graph, *bodies) for node in graph.node for name in node.input}
    read |= {it.name for it in made.graph.output}
    assert not [node.name for node in made.graph.node if node.op_type == "Cast" and not read & {*node.output}]
    session = ort.InferenceSession(found.path, providers=["CPUExecutionProvider"])
    exact = ort.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    assert [it.type for it in session.get_outputs()] == [it.type for it in exact.get_outputs()]
    return found, session.run(None, samples)


@pytest.mark.costly
@pytest.mark.parametrize("source", ["int64", "int32", "bool", "uint8", "float32"])
@pytest.mark.parametrize("name", STAY)
def test_what_stays_float32_reads_what_was_cast(name: str, source: str, tmp_path: Path) -> None:
    """From integers, behind a node of halves, and from an input; made for an output, for a node of halves, and for both."""
    nodes, weights, opset = STAY[name]
    x = np.abs(SQUARE * 3).astype(source)
    for way, behind in itertools.product(("as it is", "halved", "both"), ("output", "relu", "both")):
        if name == "NonMaxSuppression" and source == "float32" and way == "both":
            continue  # overlaps of the same boxes
        before = [op("Cast", ["a"], ["c"], to=T.FLOAT)] if source != "float32" else [op("Identity", ["a"], ["c"])]
        before += {
            "as it is": [op("Identity", ["c"], ["x"])],
            "halved": [op("Neg", ["c"], ["x"])],
            "both": [op("Neg", ["c"], ["d"]), op("Add", ["c", "d"], ["e0"]), op("Sub", ["c", "e0"], ["x"])],
        }[way]
        after = [op("Relu", ["y"], ["z"])] if behind != "output" else []
        model = make_model([*before, *nodes, *after], {"a": (source, [4, 4])}, weights, opset)
        if behind == "both":
            model.graph.output.append(onnx.ValueInfoProto(name="y"))
        exact = model.SerializeToString()
        found, got = halves_of(model, tmp_path, a=x)
        wanted = ort.InferenceSession(exact, providers=["CPUExecutionProvider"]).run(None, {"a": x})
        assert not found.kept
        for a, b in zip(wanted, got, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=4e-3, atol=4e-3 * max(1, np.abs(a).max(initial=0)))


OVER = {"w": SQUARE, "large": np.array(1e6, F), "small": np.array(1e-6, F)}
OUTPUTS = {
    "made by a node that stays": ([op("MatMul", ["a", "w"], ["m"]), op("Mul", ["m", "large"], ["y"])], OVER),
    "and read by one": (
        [op("MatMul", ["a", "w"], ["m"]), op("Mul", ["m", "large"], ["y"]), op("Mul", ["y", "small"], ["z"])], OVER,
    ),
    "behind a chain of them": (
        [op("Mul", ["a", "large"], ["m"]), op("MatMul", ["m", "w"], ["n"]), op("Identity", ["n"], ["y"])], OVER,
    ),
    "scaled by a constant": (
        [op("Constant", [], ["c"], value=onnx.numpy_helper.from_array(np.array(1e6, F))), op("Mul", ["a", "c"], ["y"])], {},
    ),
    "scaled by a number": ([op("Constant", [], ["c"], value_float=1e6), op("Mul", ["a", "c"], ["y"])], {}),
    "filled": (
        [op("Shape", ["a"], ["s"]), op("ConstantOfShape", ["s"], ["f"]), op("Add", ["a", "f"], ["m"]),
         op("Mul", ["m", "large"], ["y"])],
        OVER,
    ),
    "divided by what vanishes": (
        [op("Mul", ["a", "small"], ["m"]), op("Mul", ["m", "small"], ["n"]), op("Mul", ["a", "small"], ["o"]),
         op("Mul", ["o", "small"], ["p"]), op("Add", ["n", "p"], ["q"]), op("Div", ["n", "q"], ["y"])], OVER,
    ),
    "an input and a weight as they are": ([op("Mul", ["a", "large"], ["y"])], OVER),
}  # fmt: skip


@pytest.mark.costly
@pytest.mark.parametrize("name", OUTPUTS)
def test_what_is_finite_in_float32_is_finite_and_as_near_as_halves_are(name: str, tmp_path: Path) -> None:
    nodes, weights = OUTPUTS[name]
    model = make_model(nodes, {"a": (F, ["n", 4])}, weights)
    model.graph.output[-1].CopyFrom(helper.make_tensor_value_info(model.graph.output[-1].name, T.FLOAT, None))
    if name == "and read by one":
        model.graph.output.append(onnx.ValueInfoProto(name="y"))
    if name.startswith("an input"):
        model.graph.output.extend(helper.make_tensor_value_info(it, T.FLOAT, [None, 4]) for it in ("a", "w"))
    a = np.abs(SQUARE) + 1
    exact = model.SerializeToString()
    found, got = halves_of(model, tmp_path, a=a)
    wanted = ort.InferenceSession(exact, providers=["CPUExecutionProvider"]).run(None, {"a": a})
    assert found.kept
    ours = Runner(_compiled(found.path, read_model(found.path), WEB_BASELINE)[0])(a)
    for exact_value, by_cpu, by_us in zip(wanted, got, ours, strict=True):
        np.testing.assert_allclose(by_cpu, exact_value, rtol=1e-2, atol=2e-3 * np.abs(exact_value).max())
        np.testing.assert_allclose(by_us, exact_value, rtol=1e-2, atol=2e-3 * np.abs(exact_value).max())


def test_an_export_that_is_not_finite_where_float32_is_fails_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Weights that vanish beside larger ones of their block, in a product that is divided by."""
    weight = np.full((32, 4), 1e-4, F)
    weight[0] = 10
    model = make_model(
        [op("MatMul", ["x", "w"], ["m"]), op("Reciprocal", ["m"], ["y"])], {"x": (F, [1, 32])}, {"w": weight}
    )
    onnx.save(model, tmp_path / "m.onnx")
    x = np.ones((1, 32), F)
    x[0, 0] = 0
    np.save(tmp_path / "x.npy", x)
    assert cli.main(["export", str(tmp_path / "m.onnx"), "--int4", "--input", str(tmp_path / "x.npy")]) != 0
    assert "'y' is finite in float32, but not with smaller numbers" in capsys.readouterr().err
    assert sorted(it.name for it in tmp_path.iterdir()) == ["m.onnx", "x.npy"]


def test_names_that_converters_give_are_names_like_others(tmp_path: Path) -> None:
    """A model that was converted before has them; and a name is only a name."""
    nodes = [
        op("Cast", ["x"], ["graph_input_cast_0"], to=T.FLOAT16, name="graph_input_cast0"),
        op("Neg", ["graph_input_cast_0"], ["h"]),
        op("Cast", ["h"], ["x as half"], to=T.FLOAT, name="Neg_1"),
        op("Cast", ["x as half"], ["c"], to=T.FLOAT),
        op("Mul", ["c", "x"], ["y"], name="graph_output_cast0"),
    ]
    found, (got,) = halves_of(make_model(nodes, {"x": (F, [4, 4])}), tmp_path, x=SQUARE)
    np.testing.assert_allclose(got, -SQUARE * SQUARE, rtol=5e-3, atol=1e-4)
    assert len(onnx.load(found.path).graph.node) <= len(nodes) + 3


def test_bodies_read_what_they_read(tmp_path: Path) -> None:
    body = {
        name: helper.make_graph(
            [op(kind, ["r"], ["out"])], name, [], [helper.make_tensor_value_info("out", T.FLOAT, None)]
        )
        for name, kind in (("then_branch", "Neg"), ("else_branch", "Abs"))
    }
    nodes = [op("Relu", ["x"], ["r"]), op("If", ["b"], ["i"], **body), op("Add", ["i", "r"], ["y"])]
    model = make_model(nodes, {"x": (F, [4, 4]), "b": (np.bool_, [])})
    _, (got,) = halves_of(model, tmp_path, x=SQUARE, b=np.array(True))
    np.testing.assert_array_equal(got, np.zeros((4, 4), F))


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs_in_halves_fit_together(seed: int, tmp_path: Path) -> None:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case, _ = generate(seed)
        samples = case.feeds(0)
        model = case.model()
        try:
            session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            wanted = session.run(None, samples)
        except Exception as error:
            pytest.skip(f"the CPU provider does not run it: {error}")
        onnx.save(model, tmp_path / "m.onnx")
        (tmp_path / "out").mkdir()
        if not any(it.size for it in wanted):
            pytest.skip("its outputs are empty")
        found = reduce(tmp_path / "m.onnx", Precision(halves=True), samples, tmp_path / "out")
    assert all(np.isfinite(it.largest) for it in found.errors)


def test_a_run_that_fails_is_told_with_the_way_out(tmp_path: Path) -> None:
    onnx.save(make_model([op("Relu", ["x"], ["y"])], {"x": (F, ["n", 3])}), tmp_path / "m.onnx")
    with pytest.raises(
        ProgramError,
        match=r"(?s)the run on the CPU provider that checks smaller numbers failed: .*without smaller numbers",
    ):
        reduce(tmp_path / "m.onnx", Precision(halves=True), {"x": SQUARE}, tmp_path)
