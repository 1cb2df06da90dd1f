"""A compiled model carries what the bodies of its control flow are compiled to, which ONNX Runtime writes as they were."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.kept import folder
from onnxruntime_ep_wgpu.plugin.callbacks import held
from onnxruntime_ep_wgpu.plugin.node import ComputeInfo
from tests import patience, provider
from tests.store.test_sessions import LOOP, loops

from .compiling import compile_model, compiled_beside, settings, what_was_compiled

pytestmark = pytest.mark.skipif(
    tuple(map(int, ort.__version__.split(".")[:2])) < (1, 31),
    reason="ONNX Runtime before 1.31 writes no types of values that only bodies read",
)
F = np.float32
X = np.random.default_rng(4).standard_normal((5, 8)).astype(F)
FEEDS = {"x": X, "flag": np.array(True), "m": np.array(3), "c": np.array(True)}


def branched(then: str = "Relu") -> bytes:
    """y = flag ? relu(x * x) : x * x - 1, with a branch in a branch."""
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[n,8] x, bool flag) => (float[n,8] y) {'
        " a = Mul (x, x)"
        f" y = If (flag) <then_branch = yes () => (float[n,8] t) {{ u = {then} (a) t = If (flag)"
        "     <then_branch = again () => (float[n,8] v) { s = Abs (u) v = Neg (s) },"
        "      else_branch = not () => (float[n,8] w) { w = Neg (u) }> },"
        "   else_branch = no () => (float[n,8] e) { one = Constant <value = float {1.0}> () e = Sub (a, one) }>"
        " }"
    )
    model = onnx.parser.parse_model(text)
    model.graph.node[1].name = "choice"
    return model.SerializeToString()


def looped() -> bytes:
    return onnx.parser.parse_model(LOOP.replace("LAST", "Exp")).SerializeToString()


def by_compiler(path: Path, output: Path, embedded: bool) -> None:
    options = settings()
    options.add_provider_for_devices(list(provider.devices("ours")[:1]), {})
    ort.ModelCompiler(options, str(path), embed_compiled_data_into_model=embedded).compile_to_file(str(output))


def results(session: Any) -> list[np.ndarray]:
    flags = [True, False] if "flag" in {it.name for it in session.get_inputs()} else [True]
    given = [{**FEEDS, "flag": np.array(flag)} for flag in flags]
    return [session.run(None, {it.name: feeds[it.name] for it in session.get_inputs()})[0] for feeds in given]


@pytest.mark.parametrize("compiler", [False, True], ids=["session", "ModelCompiler"])
@pytest.mark.parametrize("embedded", [False, True], ids=["beside", "embedded"])
@pytest.mark.parametrize("model", [branched, looped])
def test_a_session_of_it_compiles_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], model: Callable[[], bytes], embedded: bool, compiler: bool
) -> None:
    path, output = tmp_path / "model.onnx", tmp_path / "compiled.onnx"
    path.write_bytes(model())
    if compiler:
        by_compiler(path, output, embedded)
    else:
        compile_model(path, output, embedded=embedded)
    plain, session = webgpu_ep.session(path), webgpu_ep.session(output)
    assert not what_was_compiled(session)
    for got, want in zip(results(session), results(plain), strict=True):
        np.testing.assert_array_equal(got, want)
    on_webgpu = {it.op_type for it in webgpu_ep.report(session).nodes if it.on_webgpu}
    assert on_webgpu >= {"EPContext", "Neg", "If" if model is branched else "Loop"}
    assert "bodies" not in capfd.readouterr().err


SCRIPT = """
import sys, numpy as np, onnxruntime_ep_wgpu as webgpu_ep
session = webgpu_ep.session(sys.argv[1])
session.run(None, {"x": np.ones((5, 8), np.float32), "flag": np.array(True)})
print(sum(name.split(".")[0] in ("onnx", "onnx_ir") or ".compiler" in name for name in sys.modules))
"""


def test_a_process_that_opens_it_imports_no_compiler(tmp_path: Path) -> None:
    compiled = compiled_beside(tmp_path, branched())
    done = patience.run([sys.executable, "-c", SCRIPT, str(compiled)])
    assert done.stdout.strip() == "0", done.stderr


def test_a_body_that_is_another_one_is_compiled(tmp_path: Path) -> None:
    """As of a compiled model that somebody has changed; what the others are compiled to stays."""
    compiled = compiled_beside(tmp_path, branched())
    model = onnx.load(compiled)
    (choice,) = (it for it in model.graph.node if it.name == "choice")
    (no,) = (it.g for it in choice.attribute if it.name == "else_branch")
    next(it for it in no.node if it.op_type == "Sub").op_type = "Add"
    onnx.save(model, compiled)
    session = webgpu_ep.session(compiled)
    assert len(what_was_compiled(session)) == 2  # a claim and a Program
    np.testing.assert_allclose(session.run(None, {"x": X, "flag": np.array(False)})[0], X * X + 1, rtol=1e-5)
    np.testing.assert_allclose(session.run(None, {"x": X, "flag": np.array(True)})[0], -X * X, rtol=1e-5)


def test_other_options_have_bodies_compiled(tmp_path: Path) -> None:
    compiled = compiled_beside(tmp_path, branched())
    session = webgpu_ep.session(compiled, validationMode="full")
    assert what_was_compiled(session)
    np.testing.assert_allclose(session.run(None, {"x": X, "flag": np.array(False)})[0], X * X - 1, rtol=1e-5)


def test_kernels_of_somebody_else_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(folder.VARIABLE, str(tmp_path / "cache"))
    compiled = compiled_beside(tmp_path, branched())
    tested = []
    for cache in ("cache", "of_another_user"):
        monkeypatch.setenv(folder.VARIABLE, str(tmp_path / cache))
        before = set(held.copy().values())
        session = webgpu_ep.session(compiled)
        groups = [it.group for it in held.copy().values() if isinstance(it, ComputeInfo) and it not in before]
        tested.append([bool(it._live.executable.settings.bounds_checks) for it in groups])
        assert len(groups) == 5 and results(session)
    assert tested == [[False] * 5, [True] * 5]


def test_bodies_with_types_of_the_whole_model_are_compiled_by_the_first_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The model's file was read for them, and the compiled one is another. A warning says so; the cache keeps them."""
    path = tmp_path / "model.onnx"
    path.write_bytes(loops())
    told = settings(enable=1)
    told.log_severity_level = 2
    webgpu_ep.session(path, sess_options=told)
    assert "no Programs for some of the bodies of ['If_" in capfd.readouterr().err
    monkeypatch.setenv(folder.VARIABLE, str(tmp_path / "cache"))
    for number in range(2):
        session = webgpu_ep.session(tmp_path / "model_ctx.onnx")
        assert bool(what_was_compiled(session)) == (number == 0)
        np.testing.assert_array_equal(results(session)[0], results(webgpu_ep.session(path))[0])
