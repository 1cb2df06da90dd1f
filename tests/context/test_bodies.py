"""Bodies of control flow in a compiled model: ONNX Runtime writes them, and some it would write wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.errors import UnsupportedError
from tests import provider
from tests.plugin import models

from .compiling import compile_model, compiled_beside, settings, what_was_compiled

pytestmark = pytest.mark.skipif(
    tuple(map(int, ort.__version__.split(".")[:2])) < (1, 31),
    reason="ONNX Runtime before 1.31 writes no types of values that only bodies read",
)

F = np.float32
X = np.random.default_rng(8).standard_normal((4, 64)).astype(F)
WIDE = "{" + ", ".join(f"{k}.0" for k in range(256)) + "}"
SQUARE = "{" + ", ".join(f"{k}.0" for k in range(16)) + "}"
WAY_OUT = r"ort\.ModelCompiler.*SessionOptions\.graph_optimization_level"


def branched(then: str, initializers: str = "", body_initializers: str = "", shape: str = "4,64") -> onnx.ModelProto:
    """y = flag ? what `then` makes of a = x * x as t : -a."""
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g (float[{shape}] x, bool flag) => (float[{shape}] y) {initializers} {{'
        f" a = Mul (x, x)"
        f" y = If (flag) <then_branch = yes () => (float[{shape}] t) {body_initializers} {{ {then} }},"
        f"   else_branch = no () => (float[{shape}] e) {{ e = Neg (a) }}>"
        f" }}"
    )


CALLED = """<ir_version: 10, opset_import: ["" : 21, "of.us" : 1]> g (float[4,64] x, bool flag) => (float[4,64] y) {
  a = Mul (x, x)
  y = of.us.choose (a, flag)
}
<domain: "of.us", opset_import: ["" : 21]> choose (a, flag) => (y) {
  y = If (flag) <then_branch = yes () => (t) { c = Constant <value = float {3.0}> () t = Add (a, c) },
    else_branch = no () => (e) { e = Neg (a) }>
}"""


def check(model: onnx.ModelProto, compiled: Path) -> None:
    """The compiled model gives what the CPU provider gives."""
    session = webgpu_ep.session(compiled)
    cpu = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = X if cpu.get_inputs()[0].shape[-1] == 64 else X[:, :4].copy()
    for flag in (True, False):
        feeds = {"x": x, "flag": np.array(flag)}
        np.testing.assert_allclose(session.run(None, feeds)[0], cpu.run(None, feeds)[0], rtol=1e-5)


def by_compiler(model: Path | bytes, output: Path, level: str = "ORT_DISABLE_ALL") -> None:
    options = settings()
    options.add_provider_for_devices(list(provider.devices("ours")[:1]), {})
    ort.ModelCompiler(
        options,
        model if isinstance(model, bytes) else str(model),
        embed_compiled_data_into_model=True,
        graph_optimization_level=getattr(ort.GraphOptimizationLevel, level),
    ).compile_to_file(str(output))


LOOPED = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["" : 21]> g (float[4,64] x, bool flag) => (float[4,64] y)'
    f" <float[4,64] w = {WIDE}, int64 three = {{3}}, bool on = {{1}}> {{"
    " a = Add (x, w)"
    " y = Loop (three, on, a) <body = round (int64 i, bool c, float[4,64] s) => (bool c2, float[4,64] s2) {"
    "   c2 = Identity (c) s2 = If (flag) <then_branch = yes () => (float[4,64] t) { t = Add (s, w) },"
    "   else_branch = no () => (float[4,64] e) { e = Sub (s, w) }> }>"
    " }"
)


@pytest.mark.parametrize(
    "model",
    [
        branched("t = Add (a, c)", "<float[1] c = {3.0}>"),
        branched("t = Add (a, c)", f"<float[4,64] c = {WIDE}>"),
        branched("t = Add (a, c)", body_initializers="<float[1] c = {3.0}>"),
        LOOPED,
    ],
    ids=["of the main graph", "large", "of the body", "of bodies in bodies"],
)
def test_bodies_have_their_constants(tmp_path: Path, model: onnx.ModelProto) -> None:
    check(model, compiled_beside(tmp_path, model.SerializeToString()))


TRANSPOSED = "q = Transpose <perm = [1, 0]> (a) r = Add (q, c) t = Transpose <perm = [1, 0]> (r)"


@pytest.mark.parametrize(
    ("model", "constant"),
    [
        (branched("d = Add (c, c) t = Add (a, d)", body_initializers="<float[1] c = {3.0}>"), "d"),
        (branched(TRANSPOSED, "", f"<float[4,4] c = {SQUARE}>", "4,4"), "c"),
        (branched("t = Add (c, c)", "", f"<float[4,4] c = {SQUARE}>", "4,4"), "t"),
    ],
    ids=["folded", "transposed in place", "folded whole"],
)
def test_a_body_whose_constants_the_optimiser_changed_is_refused(
    tmp_path: Path, model: onnx.ModelProto, constant: str
) -> None:
    """ONNX Runtime writes the nodes of before the optimiser: a session of the second gives other numbers, without an error."""
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    with pytest.raises(
        UnsupportedError, match=rf"(the node that makes 'y'|'If_1') \(If\).* constant '{constant}' .*{WAY_OUT}"
    ):
        compile_model(path)
    plain = settings(enable=1)
    plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    webgpu_ep.session(path, sess_options=plain)
    check(model, tmp_path / "model_ctx.onnx")
    by_compiler(path, tmp_path / "compiled.onnx")
    check(model, tmp_path / "compiled.onnx")
    with pytest.raises(Exception, match=rf"UnsupportedError: .* constant '{constant}' "):
        by_compiler(path, tmp_path / "another.onnx", "ORT_ENABLE_ALL")


def test_a_body_with_constants_that_is_not_in_the_model_is_refused(tmp_path: Path) -> None:
    """It is that of a function, which ONNX Runtime puts into the graph under other names, or there is no model to look into."""
    way_out = r"constant 'c' .* from a file, .*SessionOptions\.optimized_model_filepath"
    plain = branched("t = Add (a, c)", body_initializers="<float[1] c = {3.0}>")
    with pytest.raises(Exception, match=way_out):
        by_compiler(plain.SerializeToString(), tmp_path / "compiled.onnx")
    bare = branched("t = Relu (a)")
    by_compiler(bare.SerializeToString(), tmp_path / "bare.onnx")
    check(bare, tmp_path / "bare.onnx")
    model = onnx.parser.parse_model(CALLED)
    path, written = tmp_path / "model.onnx", tmp_path / "written.onnx"
    onnx.save(model, path)
    with pytest.raises(UnsupportedError, match=way_out.replace("'c'", "'.*c'")):
        compile_model(path)
    writing = ort.SessionOptions()
    writing.optimized_model_filepath = str(written)
    ort.InferenceSession(path, writing, providers=["CPUExecutionProvider"])
    compile_model(written)
    check(model, tmp_path / "written_ctx.onnx")


def test_a_body_with_a_large_constant_is_written_right_or_refused_with_the_way_out(tmp_path: Path) -> None:
    model = branched("t = Add (a, c)", body_initializers=f"<float[4,64] c = {WIDE}>")
    try:
        compiled = compiled_beside(tmp_path, model.SerializeToString())
    except UnsupportedError as error:
        assert "no constant of more than 127 bytes" in str(error) and "as 'c' does; move it" in str(error)
    else:
        check(model, compiled)


def test_an_output_of_a_context_that_nothing_reads_may_be_missing(tmp_path: Path) -> None:
    """ONNX Runtime leaves it out where its reader is gone, as when the optimiser took that out."""
    nodes = [models.node("Neg", ["x"], ["n"]), models.node("Exp", ["n"], ["e"]), models.node("Selu", ["n"], ["more"])]
    shapes = [("x", models.FLOAT, ["n", 64])], [(it, models.FLOAT, ["n", 64]) for it in ("n", "e", "more")]
    compiled = compiled_beside(tmp_path, models.model(nodes, *shapes))
    model = onnx.load(compiled)
    model.graph.value_info.append(model.graph.output.pop(0))  # which says its type
    onnx.save(model, compiled)
    session = webgpu_ep.session(compiled)
    np.testing.assert_allclose(session.run(["e"], {"x": X})[0], np.exp(-X), rtol=1e-5)
    assert what_was_compiled(session)
