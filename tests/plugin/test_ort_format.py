"""Models in ONNX Runtime's own format, `.ort`, and models saved after its optimisations.

They hold the fused operators of ONNX Runtime's extended optimisations, and for `.ort` it copies no tensors between
providers: such a model runs whole on WebGPU or says why not.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto
from onnxruntime.tools.convert_onnx_models_to_ort import OptimizationStyle, convert_onnx_models_to_ort

import onnxruntime_ep_wgpu as webgpu_ep
from tests import patience, zoo

from . import models, ort_bodies

OpenSession = Callable[..., ort.InferenceSession]
RNG = np.random.default_rng(5)
F = TensorProto.FLOAT


def weight(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def optimised(model: bytes | str, path: Path) -> Path:
    """The model as ONNX Runtime saves it after its extended optimisations; the suffix of `path` is its format."""
    settings = ort.SessionOptions()
    settings.log_severity_level = 3
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    settings.optimized_model_filepath = str(path)
    ort.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    return path


def images() -> bytes:
    """Convolutions with what follows them: activations, a residual."""
    nodes = [
        models.node("Conv", ["x", "w0", "b0"], ["c0"], "conv0", pads=[1, 1, 1, 1]),
        models.node("Relu", ["c0"], ["r0"], "relu0"),
        models.node("Conv", ["r0", "w1", "b1"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
        models.node("Add", ["c1", "r0"], ["s"], "residual"),
        models.node("Relu", ["s"], ["r1"], "relu1"),
        models.node("Conv", ["r1", "w1"], ["c2"], "conv2"),
        models.node("LeakyRelu", ["c2"], ["l"], "leaky", alpha=0.3),
        models.node("Conv", ["l", "w1"], ["c3"], "conv3"),
        models.node("Clip", ["c3", "low", "high"], ["y"], "clip"),
    ]
    weights = [("w0", weight(8, 3, 3, 3)), ("b0", weight(8)), ("w1", weight(8, 8, 3, 3)), ("b1", weight(8))]
    limits = [("low", np.float32(-0.1)), ("high", np.float32(0.2))]
    return models.model(
        nodes, [("x", F, ["N", 3, 12, 10])], [("y", F, ["N", 8, 8, 6])], [*weights, *limits], check=False
    )


def sentences() -> bytes:
    """A block of a transformer: projections, scaled scores, a residual with its norm, three kinds of GELU."""
    tensors = [(f"w{k}", weight(16, 16)) for k in range(4)] + [(f"b{k}", weight(16)) for k in range(3)]
    tensors += [("scale", np.float32(0.25)), ("k", np.float32(1.702)), ("ones", np.ones(16, np.float32))]
    nodes = [
        models.node("MatMul", ["x", "w0"], ["q"], "query"),
        models.node("MatMul", ["x", "w1"], ["t"], "key"),
        models.node("Transpose", ["t"], ["tt"], "turn", perm=[0, 2, 1]),
        models.node("MatMul", ["q", "tt"], ["scores"], "scores"),
        models.node("Mul", ["scores", "scale"], ["scaled"], "scaling"),
        models.node("Softmax", ["scaled"], ["p"], "softmax"),
        models.node("MatMul", ["p", "x"], ["o"], "values"),
        models.node("MatMul", ["o", "w2"], ["m"], "out"),
        models.node("Add", ["m", "b0"], ["a"], "out_bias"),
        models.node("Add", ["x", "a"], ["sum"], "residual"),
        models.node("LayerNormalization", ["sum", "ones", "b1"], ["n"], "norm"),
        models.node("MatMul", ["n", "w3"], ["u"], "up"),
        models.node("Add", ["u", "b2"], ["ub"], "up_bias"),
        models.node("Gelu", ["ub"], ["g"], "gelu"),
        models.node("Mul", ["g", "k"], ["gk"], "quick_scale"),
        models.node("Sigmoid", ["gk"], ["gs"], "quick_sigmoid"),
        models.node("Mul", ["g", "gs"], ["y"], "quick"),
    ]
    return models.model(nodes, [("x", F, ["N", 5, 16])], [("y", F, ["N", 5, 16])], tensors, opset=20)


def refused(message: str) -> AbstractContextManager[object]:
    """Expects a session to be refused: when it is made, or by an ONNX Runtime that does not say when it is, at its first run."""
    return pytest.raises(Exception, match=message)


MODELS = {
    "images": (images, (3, 12, 10), {"FusedConv"}),
    "sentences": (sentences, (5, 16), {"FusedMatMul", "QuickGelu"}),
}


@pytest.mark.costly
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("suffix", [".onnx", ".ort"])
def test_a_model_saved_after_the_extended_optimisations_runs_whole(tmp_path: Path, name: str, suffix: str) -> None:
    build, shape, fused = MODELS[name]
    model = build()
    path = optimised(model, tmp_path / f"{name}{suffix}")
    if suffix == ".onnx":
        assert fused <= {node.op_type for node in onnx.load(path).graph.node}
    session = webgpu_ep.session(path)
    assert not webgpu_ep.report(session).on_cpu
    for batch in (2, 1, 2):
        x = RNG.standard_normal((batch, *shape)).astype(np.float32)
        want = ort.InferenceSession(model).run(None, {"x": x})[0]
        np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=1e-4, atol=1e-5)


@pytest.mark.costly
@pytest.mark.parametrize("as_bytes", [False, True], ids=["file", "bytes"])
def test_the_converters_files_run_whole(tmp_path: Path, as_bytes: bool) -> None:
    """Both of its styles: fully optimised, and with optimisations left to be replayed."""
    case = zoo.load("tiny")
    (tmp_path / "tiny.onnx").write_bytes(case.path.read_bytes())
    convert_onnx_models_to_ort(
        tmp_path, optimization_styles=[OptimizationStyle.Fixed, OptimizationStyle.Runtime], target_platform="arm"
    )
    feeds = case.inputs(0)
    want = ort.InferenceSession(str(case.path)).run(None, feeds)[0]
    files = sorted(tmp_path.glob("*.ort"))
    assert len(files) == 2
    for path in files:
        session = webgpu_ep.session(path.read_bytes() if as_bytes else path)
        assert not webgpu_ep.report(session).on_cpu
        np.testing.assert_allclose(session.run(None, feeds)[0], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shared", ["r", "x"], ids=["result", "input"])
def test_a_model_in_that_format_with_a_node_on_the_cpu_is_refused(
    open_session: OpenSession, tmp_path: Path, shared: str
) -> None:
    nodes = [
        models.node("Relu", ["x"], ["r"], "relu"),
        models.node("Cast", [shared], ["i"], "indices", to=TensorProto.STRING),
    ]
    outputs = [("r", F, ["N", 8]), ("i", TensorProto.STRING, ["N", 8])]
    model = models.model(nodes, [("x", F, ["N", 8])], outputs)
    x = RNG.standard_normal((3, 8)).astype(np.float32)
    np.testing.assert_array_equal(open_session(model).run(None, {"x": x})[0], np.maximum(x, 0))
    message = r"Cast 'indices' cannot run .* use the .onnx file instead"
    if shared == "x":
        message += "|multiple nodes on different devices"  # ONNX Runtime's own check
    with refused(message):
        open_session(str(optimised(model, tmp_path / "model.ort"))).run(None, {"x": x})


def test_what_other_sessions_do_meanwhile_does_not_let_a_node_read_device_memory(
    open_session: OpenSession, tmp_path: Path
) -> None:
    """Sessions that live beside it run a node of that name here, and have tensors copied, before and after."""
    nodes = [
        models.node("Relu", ["x"], ["r"], "relu"),
        models.node("Cast", ["r"], ["i"], "indices", to=TensorProto.STRING),
    ]
    outputs = [("r", F, ["N", 8]), ("i", TensorProto.STRING, ["N", 8])]
    copied = models.model(nodes, [("x", F, ["N", 8])], outputs)
    path = optimised(copied, tmp_path / "model.ort")
    named = models.model([models.node("Abs", ["x"], ["y"], "indices")], [("x", F, ["N", 8])], [("y", F, ["N", 8])])
    x = RNG.standard_normal((3, 8)).astype(np.float32)
    before = [open_session(model) for model in (named, copied)]
    after = []
    with refused(r"Cast 'indices' cannot run .* use the .onnx file instead"):
        session = open_session(str(path))
        after += [open_session(model) for model in (named, copied)]
        session.run(None, {"x": x})
    after = after or [open_session(model) for model in (named, copied)]
    for plain, having in (before, after):
        np.testing.assert_array_equal(plain.run(None, {"x": x})[0], np.abs(x))
        texts = having.run(None, {"x": x})[1]
        np.testing.assert_allclose(texts.astype(np.float32), np.maximum(x, 0), rtol=1e-6)


@pytest.mark.parametrize("taken", ["then", "else", "neither"])
def test_an_equal_name_in_a_body_does_not_let_a_node_read_device_memory(
    open_session: OpenSession, tmp_path: Path, taken: str
) -> None:
    """Bodies may name nodes as the main graph does, and each other: graphs, results and nodes."""

    def body(name: str, operator: str) -> onnx.GraphProto:
        nodes = [onnx.helper.make_node(operator, ["z"], ["o_"], name="indices" if name == taken else name)]
        return onnx.helper.make_graph(nodes, "body", [], [onnx.helper.make_tensor_value_info("o_", F, ["N", 8])])

    nodes = [
        models.node("Relu", ["x"], ["r"], "relu"),
        models.node("Cast", ["r"], ["i"], "indices", to=TensorProto.STRING),
        models.node("If", ["c"], ["o"], "if", then_branch=body("then", "Abs"), else_branch=body("else", "Neg")),
    ]
    inputs = [("x", F, ["N", 8]), ("z", F, ["N", 8]), ("c", TensorProto.BOOL, [])]
    outputs = [("r", F, ["N", 8]), ("i", TensorProto.STRING, ["N", 8]), ("o", F, ["N", 8])]
    # One body runs here, the other does not.
    path = optimised(models.model(nodes, inputs, outputs), tmp_path / "model.ort")
    x = RNG.standard_normal((3, 8)).astype(np.float32)
    with refused(r"'indices'.* cannot run .* use the .onnx file instead"):
        session = open_session(str(path), {"forceCpuNodeNames": "else" if taken == "then" else "then"})
        session.run(None, {"x": x, "z": x, "c": np.array(False)})


# What needs no tensor of the other side, whichever body runs: in these no value is read both here and on the CPU.
RUNS = (
    {
        f"{before}: if {one} else {two}"
        for before in ("here", "cpu")
        for one in ("here", "cpu")
        for two in ("here", "cpu")
    }
    | {f"nested{own} {body}" for own in ("", " own") for body in ("here", "cpu")}
    | {"loop here", "loop cpu"}
)


@pytest.mark.parametrize("maker", ["stock", pytest.param("ours", marks=pytest.mark.exhaustive)])
def test_control_flow_with_nodes_here_and_on_the_cpu_runs_or_is_refused(tmp_path: Path, maker: str) -> None:
    """In a process of their own: what comes before our first node may be a node on the CPU that reads device memory."""
    done = patience.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.plugin.ort_bodies", str(tmp_path), maker],
        cwd=Path(__file__).resolve().parents[2],
    )
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert done.returncode == 0, (lines[-1], done.stderr[-2000:])
    assert [line[0] for line in lines] == list(ort_bodies.models())
    assert {name for name, outcome, _ in lines if outcome == "equal"} == RUNS
    for name, outcome, message in lines:
        if outcome == "refused":
            named = re.findall(r"(?:\w+ '(\w+)')+", message.split(" cannot run ")[0])
            assert named and all(node.startswith("c") or node.startswith("Loop") for node in named), (name, message)
