"""Sessions whose claims and Programs an earlier process has compiled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.api.reports import state_of
from onnxruntime_ep_wgpu.kept import entry, folder
from onnxruntime_ep_wgpu.kept.folder import Folder
from tests import patience
from tests.plugin import models
from tests.plugin.loss import device_of, lose

from .changes import tied

F = np.float32
RNG = np.random.default_rng(8)
X = RNG.standard_normal((5, 8)).astype(F)


def compiled(session: Any) -> list[str]:
    """What of a session the compiler made."""
    return state_of(session)._compiler.compiled


def twice(model: Any, **options: Any) -> Any:
    """A session of which everything comes from the store, and before it the one that leaves it there."""
    first = webgpu_ep.session(model, **options)
    assert compiled(first)
    second = webgpu_ep.session(model, **options)
    assert not compiled(second)
    return second


SCRIPT = """
import sys, numpy as np, onnxruntime_ep_wgpu as webgpu_ep
session = webgpu_ep.session(sys.argv[1])
given = {"x": np.arange(40, dtype=np.float32).reshape(5, 8) / 40, "m": np.array(3), "c": np.array(True)}
y = session.run(None, {it.name: given[it.name] for it in session.get_inputs()})[0]
heavy = {"onnx", "onnx_ir", "sympy", "onnxscript", "google.protobuf"} & {name for name in sys.modules}
ours = [name for name in sys.modules if name.startswith("onnxruntime_ep_wgpu.compiler")]
print(len(heavy), len(ours), y.tobytes().hex(), len(webgpu_ep.report(session).nodes))
"""
# Loops of which the inner one has a state that ONNX Runtime knows no rank of, in a branch.
LOOPS = """<ir_version: 10, opset_import: ["" : 21]> g (float[n,8] x, int64 m, bool c) => (float[] y) {
 r = Tanh (x) two = Constant <value = int64 {2}> ()
 y = If (c) <then_branch = t () => (float[] a) {
   s, o = Loop (m, c, r) <body = b (int64 i, bool c0, float[] s0) => (bool c1, float[] s2, float[] p) {
     c1 = Identity (c0)
     u = Loop (two, c0, s0) <body = inner (int64 j, bool d0, float[] u0) => (bool d1, float[] u1) {
       d1 = Identity (d0) h = Sin (u0) u1 = Mul (h, r) }>
     s2 = Add (u, r) p = Neg (s2) }>
   a = LAST (o) },
 else_branch = e () => (float[n,8] b) { b = Neg (r) }> }"""


def loops(last: str = "Exp") -> bytes:
    return onnx.parser.parse_model(LOOPS.replace("LAST", last)).SerializeToString()


@pytest.mark.parametrize("model", [models.chain, loops], ids=["a graph", "graphs in graphs"])
def test_a_second_process_imports_no_compiler(place: Folder, tmp_path: Path, model: Any) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model())
    found = []
    for _ in range(2):
        done = patience.run([sys.executable, "-c", SCRIPT, str(path)])
        assert done.returncode == 0, done.stderr
        found.append(done.stdout.split())
    (heavy, ours, y, nodes), second = found
    assert int(heavy) >= 2 and int(ours) > 50
    assert second == ["0", "0", y, nodes]
    kinds = sorted(entry.read(place.read(it.name) or b"", None).kind for it in place.entries())
    assert kinds == (
        ["claim", "compiled model", "program"]
        if model is models.chain
        else ["claim"] * 7 + ["no compiled model"] + ["program"] * 5
    )


def sized() -> bytes:
    """Data decides a size, with which the next group goes on."""
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[a,b] x) => (float[n] y)'
        " { r = Relu (x) z = NonZero (r) t = Transpose (z) y = GatherND (x, t) }"
    )
    return onnx.parser.parse_model(text).SerializeToString()


@pytest.mark.parametrize("model", [models.chain, models.mixed, sized], ids=["whole", "divided", "sized"])
def test_reports_and_results_are_the_same(place: Folder, model: Any) -> None:
    first = webgpu_ep.session(model())
    second = twice_or_known(model())
    assert webgpu_ep.report(first).nodes == webgpu_ep.report(second).nodes
    np.testing.assert_array_equal(first.run(None, {"x": X})[0], second.run(None, {"x": X})[0])


def twice_or_known(model: bytes) -> Any:
    session = webgpu_ep.session(model)
    assert not compiled(session)
    return session


def test_scales_that_are_inputs_are_known(place: Folder) -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 21]> g (float[1,1,2,2] x, float[4] s) => (float[a,b,c,d] y)'
        ' { y = Resize <mode = "nearest"> (x, , s) }'
    )
    model = onnx.parser.parse_model(text).SerializeToString()
    webgpu_ep.session(model)
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    for factor in (2, 3):
        (y,) = twice_or_known(model).run(None, {"x": x, "s": np.array([1, 1, factor, 1], np.float32)})
        np.testing.assert_array_equal(y, x.repeat(factor, 2))


def test_weights_are_those_of_the_model(place: Folder) -> None:
    """They are no part of an entry: a model with others has the same Program."""
    model = onnx.load_from_string(models.chain())
    twice(model.SerializeToString())
    for it in model.graph.initializer:
        if it.name == "w":
            w = RNG.standard_normal((8, 8)).astype(F)
            it.CopyFrom(onnx.numpy_helper.from_array(w, "w"))
    assert 8 * 8 * 4 <= 4096  # so small a constant is part of the key
    session = webgpu_ep.session(model.SerializeToString())
    assert compiled(session)

    def wide(seed: int) -> tuple[bytes, np.ndarray]:
        w = np.random.default_rng(seed).standard_normal((8, 300)).astype(F)
        shapes = [("x", models.FLOAT, ["n", 8])], [("y", models.FLOAT, ["n", 300])]
        return models.model([models.node("MatMul", ["x", "w"], ["y"])], *shapes, [("w", w)]), w

    for seed in range(3):
        made, w = wide(seed)
        session = webgpu_ep.session(made)
        assert bool(compiled(session)) == (seed == 0)
        np.testing.assert_allclose(session.run(None, {"x": X})[0], X @ w, rtol=1e-4, atol=1e-5)


def folded(seed: int) -> tuple[bytes, np.ndarray]:
    """A model in which a constant of 16 KB is folded."""
    w = np.random.default_rng(seed).standard_normal((64, 64)).astype(F)
    nodes = [models.node("Transpose", ["w"], ["t"], perm=[1, 0]), models.node("Mul", ["x", "t"], ["y"])]
    shapes = [("x", models.FLOAT, ["n", 64, 64])], [("y", models.FLOAT, ["n", 64, 64])]
    return models.model(nodes, *shapes, [("w", w)]), w


def test_a_constant_that_was_looked_at_is_looked_at_again(place: Folder) -> None:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    x = RNG.standard_normal((2, 64, 64)).astype(F)
    for seed in (1, 1, 2, 2, 1):
        model, w = folded(seed)
        session = webgpu_ep.session(model, sess_options=options)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], x * w.T)


def test_options_have_entries_of_their_own(place: Folder) -> None:
    twice(models.chain())
    twice(models.chain(), validationMode="full")
    session = webgpu_ep.session(models.chain(), validationMode="basic")
    assert not compiled(session)
    named = webgpu_ep.session(models.chain(), forceCpuNodeNames=["relu"])
    assert compiled(named)
    for it in (session, named):
        np.testing.assert_allclose(it.run(None, {"x": X})[0], models.chain_reference(X), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["inside the file", "in external data", "given as bytes"])
def test_a_lost_device_is_replaced(place: Folder, tmp_path: Path, kind: str) -> None:
    model: Any = models.chain()
    if kind != "given as bytes":
        external = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
        onnx.save(onnx.load_from_string(model), tmp_path / "m.onnx", **(external if "external" in kind else {}))
        model = tmp_path / "m.onnx"
    session = twice(model, deviceId=61)
    session.run(None, {"x": X})
    lose(device_of(61))
    with pytest.raises(Exception, match="lost"):
        session.run(None, {"x": X})
    np.testing.assert_allclose(session.run(None, {"x": X})[0], models.chain_reference(X), rtol=1e-4, atol=1e-5)


def test_a_name_that_a_run_contradicts_is_compiled_without(place: Folder) -> None:
    """With the compiler, which is loaded then, and the graph that the store did not have to read."""
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[n,2] a, float[n,2] b) => (float[n,2] y, float[n,2] z)'
    model = onnx.parser.parse_model(text + " { y = Relu (a) t = Neg (b) z = Exp (t) }").SerializeToString()
    session = twice(model)
    for rows in ((3, 3), (3, 5), (1, 4)):
        a, b = (RNG.standard_normal((it, 2)).astype(F) for it in rows)
        y, z = session.run(None, {"a": a, "b": b})
        np.testing.assert_array_equal(y, np.maximum(a, 0))
        np.testing.assert_allclose(z, np.exp(-b), rtol=1e-5)


def test_sizes_beyond_a_limit_are_compiled(place: Folder) -> None:
    """With constants that are tied, folded, and packed as they lie in the model."""
    model = tied(np.random.default_rng(0))
    graph, make, value = model.graph, onnx.helper.make_node, onnx.helper.make_tensor_value_info
    graph.input.extend([value("a", 1, ["k", 3]), value("b", 1, [2, "k"])])
    graph.node.extend(
        [
            make("MatMul", ["b", "a"], ["p"], "product"),
            make("DequantizeLinear", ["packed", "scale"], ["u"], "dequantised"),
            make("Mul", ["p", "u"], ["v"], "mul"),
        ]
    )
    codes = RNG.integers(-8, 8, (2, 3))
    graph.initializer.append(
        onnx.helper.make_tensor("packed", onnx.TensorProto.INT4, (2, 3), codes.reshape(-1).tolist())
    )
    graph.initializer.append(onnx.numpy_helper.from_array(np.array(0.5, F), "scale"))
    graph.output.append(value("v", 1, [2, 3]))
    model.opset_import[0].version = 21
    session = twice(model.SerializeToString())
    table = onnx.numpy_helper.to_array(graph.initializer[0])
    for k in (4, 70_000, 5):  # exceeds the loop limit of software adapters
        feeds = {"a": RNG.integers(-3, 4, (k, 3)).astype(F), "b": RNG.integers(-3, 4, (2, k)).astype(F)}
        feeds["ids"] = RNG.integers(0, 160, 3)
        y, v = session.run(None, feeds)
        np.testing.assert_allclose(y, table[feeds["ids"]] @ table.T, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(v, feeds["b"] @ feeds["a"] * codes * F(0.5))


LOOP = """<ir_version: 10, opset_import: ["" : 21]> g (float[n,8] x, int64 m, bool c) => (float[] y) {
 r = Tanh (x)
 s, o = Loop (m, c, r) <body = b (int64 i, bool c0, float[] s0) => (bool c1, float[] s1, float[] p) {
   c1 = Identity (c0) s1 = Add (s0, r) p = Neg (s1) }>
 t = LAST (o) y = Mul (t, s) }"""


@pytest.mark.parametrize("text", [LOOP, LOOPS], ids=["known", "of the model"])
def test_what_a_body_makes_is_known_though_it_comes_from_the_store(
    place: Folder, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """The graph around it is another one, and is decided on with types that ONNX Runtime does not know. Where the whole model was
    read for those of the body, that is another one too."""
    first, other = (onnx.parser.parse_model(text.replace("LAST", it)).SerializeToString() for it in ("Exp", "Cos"))
    webgpu_ep.session(first)
    session = webgpu_ep.session(other)
    assert compiled(session).count("") == (1 if text is LOOP else 7)
    monkeypatch.setenv(folder.VARIABLE, folder.OFF)
    fresh = webgpu_ep.session(other)
    assert webgpu_ep.report(session).nodes == webgpu_ep.report(fresh).nodes
    assert {it.op_type for it in webgpu_ep.report(session).nodes if it.on_webgpu} >= {"Cos", "Add", "Mul", "Loop"}
    for trips, go in ((3, True), (1, True)):
        feeds = {"x": X, "m": np.array(trips), "c": np.array(go)}
        np.testing.assert_array_equal(session.run(None, feeds)[0], fresh.run(None, feeds)[0])


def test_code_that_changed_after_the_process_began_is_not_trusted(
    place: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxruntime_ep_wgpu.version.BEGAN", 0)
    for _ in range(2):
        assert compiled(webgpu_ep.session(models.chain()))
    assert not place.entries()


def test_code_that_changes_while_it_compiles_leaves_nothing(place: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    real, asked = "a", []

    def identity(*_: Any) -> str:
        asked.append(real)
        return str(len(asked))

    monkeypatch.setattr("onnxruntime_ep_wgpu.plugin.store.stored.identity_of", identity)
    webgpu_ep.session(models.chain())
    assert len(asked) == 2 and not place.entries()


WRITER = """
import sys
from onnxruntime_ep_wgpu.kept import entry
from onnxruntime_ep_wgpu.kept.folder import Folder
place, number = Folder(sys.argv[1], most=400_000), int(sys.argv[2])
print("begun", flush=True)
for turn in range(10_000):
    key = f"{turn % 7:064}"
    place.write(key, entry.written(key, entry.Entry("claim", {}, {"by": number}, {}, bytes([number]) * 100_000)))
    found = place.read(key)
    assert found is None or entry.read(found, key, "claim").content["by"] in range(9)
"""


def test_processes_that_write_at_once_and_are_killed_leave_whole_entries(place: Folder) -> None:
    for part in range(2):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, place.path, str(3 * part + number)],
                stdout=subprocess.PIPE,
                env=patience.here(),
            )
            for number in range(3)
        ]
        for it in writers:
            assert it.stdout is not None and it.stdout.readline() == b"begun\n"
        for _ in range(50):
            for kept in place.entries():
                data = place.read(kept.name)
                if data is not None:
                    found = entry.read(data, kept.name, "claim")
                    assert bytes(found.data) == bytes([found.content["by"]]) * 100_000
        for it in writers:
            assert it.poll() is None, "a writer failed"
            it.send_signal(signal.SIGKILL)
            it.communicate()
    assert place.entries()
    place.clear()
    assert os.listdir(place.path) == []
