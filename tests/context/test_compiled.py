"""A compiled model gives the results of the model that it was made from, and nothing is compiled for it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.api.verify import compared
from onnxruntime_ep_wgpu.errors import ModelError, OptionError, UnsupportedError
from tests import patience, provider
from tests.plugin import models
from tests.plugin.loss import device_of, lose

from .compiling import (
    WIDE,
    attributes_in,
    compile_model,
    compiled_beside,
    contexts_in,
    settings,
    what_was_compiled,
    wide,
    wide_reference,
)

F = np.float32
RNG = np.random.default_rng(4)
X = RNG.standard_normal((5, 8)).astype(F)

SCRIPT = """
import sys, numpy as np, onnxruntime_ep_wgpu as webgpu_ep
session = webgpu_ep.session(sys.argv[1])
y = session.run(None, {"x": np.arange(40, dtype=np.float32).reshape(5, 8) / 40})[0]
heavy = {"onnx", "onnx_ir", "sympy", "onnxscript", "google.protobuf"} & {name for name in sys.modules}
ours = [name for name in sys.modules if name.startswith("onnxruntime_ep_wgpu.compiler")]
print(len(heavy), len(ours), y.tobytes().hex())
"""


@pytest.mark.parametrize(
    ("model", "forced", "embedded"),
    [(models.chain, "", True), (models.mixed, "", False), (models.chain, "relu", False)],
    ids=["whole", "some on the CPU", "divided"],
)
def test_results_are_those_of_the_model(
    tmp_path: Path, model: Callable[[], bytes], forced: str, embedded: bool
) -> None:
    options = {"forceCpuNodeNames": forced} if forced else {}
    compiled = compiled_beside(tmp_path, model(), embedded=embedded, **options)
    plain, session = webgpu_ep.session(model(), **options), webgpu_ep.session(compiled)
    assert not what_was_compiled(session)
    kernels = {it.kernels for it in webgpu_ep.report(session).nodes if it.op_type == "EPContext"}
    assert {label for labels in kernels for label in labels} == {
        label for it in webgpu_ep.report(plain).nodes for label in it.kernels
    }
    for rows in (5, 1, 33):
        x = RNG.standard_normal((rows, 8)).astype(F)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], plain.run(None, {"x": x})[0])
    files = {it.name for it in tmp_path.iterdir()}
    groups = len(contexts_in(compiled))
    assert groups == len({it.partition for it in webgpu_ep.report(plain).nodes} - {None})
    beside = set() if embedded else {f"model_ctx_{k}.wgpucontext" for k in range(groups)}
    assert files == {"model.onnx", "model_ctx.onnx", *beside}


def test_a_process_that_opens_one_imports_no_compiler(tmp_path: Path) -> None:
    compiled = compiled_beside(tmp_path, models.mixed())
    found = []
    for path in (tmp_path / "model.onnx", compiled):
        done = patience.run([sys.executable, "-c", SCRIPT, str(path)])
        assert done.returncode == 0, done.stderr
        found.append(done.stdout.split())
    (heavy, ours, y), second = found
    assert int(heavy) >= 2 and int(ours) > 50
    assert second == ["0", "0", y]


@pytest.mark.parametrize(("level", "embedded"), [("ORT_DISABLE_ALL", False), ("ORT_ENABLE_ALL", True)])
def test_the_model_compiler_writes_one(tmp_path: Path, embedded: bool, level: str) -> None:
    (tmp_path / "model.onnx").write_bytes(models.mixed())
    options = settings()
    options.add_provider_for_devices(list(provider.devices("ours")[:1]), {})
    compiler = ort.ModelCompiler(
        options,
        str(tmp_path / "model.onnx"),
        embed_compiled_data_into_model=embedded,
        graph_optimization_level=getattr(ort.GraphOptimizationLevel, level),
    )
    compiler.compile_to_file(str(tmp_path / "out.onnx"))
    session = webgpu_ep.session(tmp_path / "out.onnx")
    np.testing.assert_allclose(session.run(None, {"x": X})[0], models.mixed_reference(X), rtol=1e-4, atol=1e-5)


def test_a_node_says_what_it_is_of(tmp_path: Path) -> None:
    (node,) = contexts_in(compiled_beside(tmp_path, models.chain()))
    found = attributes_in(node)
    assert found["source"] == b"onnxruntime-ep-wgpu"
    assert found["ep_sdk_version"].decode() == webgpu_ep.__version__
    assert found["onnx_model_filename"] == b"model.onnx"
    assert found["hardware_architecture"].decode().startswith(webgpu_ep.devices()[0].ep_metadata["name"])
    assert (found["main_context"], found["embed_mode"]) == (1, 0)


# ---- weights


def test_weights_are_referred_to_where_the_model_has_them(tmp_path: Path) -> None:
    compiled_beside(tmp_path, wide())
    data = (tmp_path / "model_ctx_0.wgpucontext").read_bytes()
    weight, bias = (it.raw_data for it in onnx.load_from_string(wide()).graph.initializer)
    assert weight not in data and bias in data


def test_weights_are_referred_to_in_external_data(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    model = onnx.load_from_string(wide())
    onnx.save_model(
        model, tmp_path / "model.onnx", save_as_external_data=True, location="data/weights.bin", size_threshold=1024
    )
    compile_model(tmp_path / "model.onnx")
    moved = tmp_path / "elsewhere"
    shutil.copytree(tmp_path / "data", moved / "data")
    for it in tmp_path.glob("model_ctx*"):
        shutil.move(it, moved / it.name)
    # The model itself is not needed: its weights are in the other file.
    session = webgpu_ep.session(moved / "model_ctx.onnx")
    np.testing.assert_allclose(session.run(None, {"x": X})[0], wide_reference(X), rtol=1e-4, atol=1e-5)
    assert not what_was_compiled(session)


@pytest.mark.parametrize("kind", ["folder", "bytes"])
def test_a_context_has_the_weights_that_no_file_beside_it_has(tmp_path: Path, kind: str) -> None:
    """The model is in memory, or the compiled model goes into another folder."""
    (tmp_path / "out").mkdir()
    (tmp_path / "model.onnx").write_bytes(wide())
    compile_model(tmp_path / "model.onnx" if kind == "folder" else wide(), tmp_path / "out" / "compiled.onnx")
    (tmp_path / "model.onnx").unlink()
    session = webgpu_ep.session(tmp_path / "out" / "compiled.onnx")
    np.testing.assert_allclose(session.run(None, {"x": X})[0], wide_reference(X), rtol=1e-4, atol=1e-5)


def test_a_compiled_model_in_memory(tmp_path: Path) -> None:
    """Its weights are found beside the place where it would lie."""
    compiled = compiled_beside(tmp_path, wide(), embedded=True)
    content = compiled.read_bytes()
    with pytest.raises(ModelError, match=r"ep\.context_file_path"):
        webgpu_ep.session(content)
    session = webgpu_ep.session(content, sess_options=settings(file_path=compiled))
    np.testing.assert_allclose(session.run(None, {"x": X})[0], wide_reference(X), rtol=1e-4, atol=1e-5)
    whole = tmp_path / "whole.onnx"
    compile_model(wide(), whole, embedded=True)
    session = webgpu_ep.session(whole.read_bytes())
    np.testing.assert_allclose(session.run(None, {"x": X})[0], wide_reference(X), rtol=1e-4, atol=1e-5)


def test_weights_are_read_again_after_a_loss(tmp_path: Path) -> None:
    session = webgpu_ep.session(compiled_beside(tmp_path, wide()), deviceId="61")
    first = session.run(None, {"x": X})[0]
    lose(device_of(61))
    with pytest.raises(webgpu_ep.DeviceLostError):
        while True:
            session.run(None, {"x": X})
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], first)


def test_sessions_that_share_have_a_weight_once_on_a_device(tmp_path: Path) -> None:
    """Two models with one file of weights, of which the second multiplies what the first gives."""
    w = RNG.standard_normal((256, 256)).astype(F)
    for name, last in (("first", "Relu"), ("second", "Exp")):
        nodes = [models.node("MatMul", ["x", "w"], ["m"], "product"), models.node(last, ["m"], ["y"], "last")]
        shapes = [("x", models.FLOAT, ["n", 256])], [("y", models.FLOAT, ["n", 256])]
        model = onnx.load_from_string(models.model(nodes, *shapes, [("w", w)]))
        path = tmp_path / f"{name}.onnx"
        weights = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 1024}
        (tmp_path / "weights.bin").unlink(missing_ok=True)
        onnx.save_model(model, path, **weights)
    for name in ("first", "second"):
        compile_model(tmp_path / f"{name}.onnx")

    x = RNG.standard_normal((3, 256)).astype(F) / 16
    for context, entries in ((62, {}), (63, {"shared": 1})):
        held = []
        for name in ("first", "second"):
            path = tmp_path / f"{name}_ctx.onnx"
            session = webgpu_ep.session(path, sess_options=settings(**entries), deviceId=str(context))
            session.run(None, {"x": x})
            held.append((session, device_of(context).counters["buffer_bytes"]))
        (first, alone), (second, together) = held
        assert (together - alone >= w.nbytes) == (not entries)
        del first, held
        np.testing.assert_allclose(second.run(None, {"x": x})[0], np.exp(x @ w), rtol=1e-3, atol=1e-4)


# ---- beyond a Program


def test_extents_of_one_name_may_differ(tmp_path: Path) -> None:
    """The Program relies on the name: the graph in the context is compiled without it."""
    nodes = [models.node("MatMul", ["x", "w"], ["a"], "left"), models.node("MatMul", ["z", "w"], ["b"], "right")]
    inputs = [("x", models.FLOAT, ["n", 8]), ("z", models.FLOAT, ["n", 8])]
    outputs = [("a", models.FLOAT, ["n", WIDE]), ("b", models.FLOAT, ["m", WIDE])]
    w = RNG.standard_normal((8, WIDE)).astype(F)
    session = webgpu_ep.session(compiled_beside(tmp_path, models.model(nodes, inputs, outputs, [("w", w)])))
    for rows in (5, 3):
        z = RNG.standard_normal((rows, 8)).astype(F)
        for got, want in zip(session.run(None, {"x": X, "z": z}), (X @ w, z @ w), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_nodes_that_are_added_to_a_compiled_model_run_too(tmp_path: Path) -> None:
    """Of nodes that ran elsewhere when the model was compiled nothing is asked; others are decided on."""
    compiled = compiled_beside(tmp_path, wide())
    model = onnx.load(compiled)
    model.graph.value_info.append(model.graph.output[0])
    model.graph.output[0].name = "more"
    model.graph.node.append(models.node("Exp", ["y"], ["more"], "more"))
    onnx.save(model, compiled)
    session = webgpu_ep.session(compiled)
    assert {it.op_type: it.on_webgpu for it in webgpu_ep.report(session).nodes} == {"EPContext": True, "Exp": True}
    np.testing.assert_allclose(session.run(None, {"x": X})[0], np.exp(wide_reference(X)), rtol=1e-3, atol=1e-5)


# ---- what is refused


def test_a_compiled_model_is_not_compiled(tmp_path: Path) -> None:
    compiled = compiled_beside(tmp_path, models.chain())
    with pytest.raises(ModelError, match="compiled already"):
        compile_model(compiled, tmp_path / "again.onnx")


def test_a_place_is_needed_for_what_lies_beside_a_model_in_memory() -> None:
    options = settings()
    options.add_provider_for_devices(list(provider.devices("ours")[:1]), {})
    compiler = ort.ModelCompiler(options, models.chain())
    with pytest.raises(Exception, match=r"OptionError: the contexts of a model in memory .*ep\.context_embed_mode=1"):
        compiler.compile_to_bytes()
    assert issubclass(OptionError, ValueError)


def test_tools_that_run_nodes_want_the_model(tmp_path: Path) -> None:
    compiled = compiled_beside(tmp_path, models.chain())
    with pytest.raises(UnsupportedError, match="use the original model"):
        compared(lambda: webgpu_ep.session(compiled), lambda _session: {"x": X}, lambda _step: None)


def test_functions_that_are_expanded_late_are_an_error_with_the_way_out(tmp_path: Path) -> None:
    path, expanded = tmp_path / "model.onnx", tmp_path / "expanded.onnx"
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, [4]) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("HardSwish", ["x"], ["y"])], "swish", [x], [y])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9), path)
    with pytest.raises(UnsupportedError, match=r"expanded an operator.*SessionOptions\.optimized_model_filepath"):
        compile_model(path)
    writing = ort.SessionOptions()
    writing.optimized_model_filepath = str(expanded)
    writing.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    cpu = ort.InferenceSession(path, writing, providers=["CPUExecutionProvider"])
    compile_model(expanded)
    feeds = {"x": np.linspace(-4, 4, 4)}
    found = webgpu_ep.session(tmp_path / "expanded_ctx.onnx").run(None, feeds)[0]
    np.testing.assert_allclose(found, cpu.run(None, feeds)[0], rtol=1e-12)
