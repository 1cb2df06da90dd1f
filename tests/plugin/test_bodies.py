"""Control flow, which runs on the CPU, between nodes that run here and bodies whose nodes run here, there or both.

ONNX Runtime hands a body what it takes from outside as it hands a model its inputs: copied to where the body's nodes read
it, without a kernel of its own, also in a model in its own format.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

OpenSession = Callable[..., ort.InferenceSession]
# Bodies that make {0} of r, which is made outside; nodes named cpu... are to stay on the CPU.
HERE, THERE = "[n{0}] {0} = Mul (r, r)", "[cpu{0}] {0} = Mul (r, r)"
MIXED = "[n{0}] {0}1 = Mul (r, r) [cpu{0}] {0}2 = Neg (r) [m{0}] {0} = Add ({0}1, {0}2)"
KINDS = {"here": HERE, "there": THERE, "mixed": MIXED}
IF = "If (c) <then_branch = t{2} () => (float[N,4] a{2}) {{ {0} }}, else_branch = e{2} () => (float[N,4] b{2}) {{ {1} }}>"


def choice(first: str, second: str, mark: str = "") -> str:
    return IF.format(first.format(f"a{mark}"), second.format(f"b{mark}"), mark)


def graph(lines: str, outputs: str = "float[N,4] y") -> onnx.ModelProto:
    text = f'<ir_version: 10, opset_import: ["" : 21]> g (float[N,4] x, bool c) => ({outputs}) {{ {lines} }}'
    model = onnx.parser.parse_model(text)
    onnx.checker.check_model(model)
    return model


def models() -> dict[str, onnx.ModelProto]:
    found = {}
    for (first, one), (second, other) in itertools.product(KINDS.items(), repeat=2):
        found[f"if-{first}-{second}"] = graph(f"[r] r = Tanh (x) y = {choice(one, other)}")
    loop = (
        "[r] r = Tanh (x) n = Constant <value = int64 {{3}}> () y = Loop (n, c, x) <body = b (int64 i, bool c0, float[N,4] s)"
        " => (bool c1, float[N,4] s1) {{ c1 = Identity (c0) {0} [sum] s1 = Add (s, v) }}>"
    )
    scan = (
        "[r] r = Tanh (x) zero = Constant <value = float {{0}}> () [first] z = Mul (x, zero)"
        " s, y = Scan <num_scan_inputs = 1, body = b (float[N,4] h, float[4] row) => (float[N,4] h1, float[4] o)"
        " {{ {0} [sum] h1 = Add (h, v) [o] o = Neg (row) }}> (z, r)"
    )
    for kind, lines in KINDS.items():
        found[f"loop-{kind}"] = graph(loop.format(lines.format("v")))
        found[f"scan-{kind}"] = graph(scan.format(lines.format("v")), "float[N,4] s, float[N,4] y")
        inner = f"y1 = {choice(lines, HERE, '_in')}"
        outer = "y = If (c) <then_branch = t () => (float[N,4] y1) {{ {0} }}, else_branch = e () => (float[N,4] d) {{ {1} }}>"
        found[f"nested-{kind}"] = graph("[r] r = Tanh (x) " + outer.format(inner, "[d] d = Abs (r)"))
        found[f"nested-inside-{kind}"] = graph(outer.format("[r] r = Tanh (x) " + inner, "[d] d = Abs (x)"))
    # An input of the model that a body reads and a group beside it.
    body = "[n{0}] {0} = Mul (x, x)"
    found["input"] = graph(f"[z] z = Tanh (x) y = {choice(body, body)}", "float[N,4] y, float[N,4] z")
    return found


MODELS = models()


def on_cpu(model: onnx.ModelProto) -> str:
    """The names for `forceCpuNodeNames`, of bodies in bodies too."""

    def of(nodes: onnx.GraphProto) -> list[str]:
        bodies = [it.g for node in nodes.node for it in node.attribute if it.type == onnx.AttributeProto.GRAPH]
        named = [node.name for node in nodes.node if node.name.startswith("cpu")]
        return named + [name for body in bodies for name in of(body)]

    return "\n".join(of(model.graph))


def check_runs(session: ort.InferenceSession, model: onnx.ModelProto) -> None:
    reference = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(3).standard_normal((3, 4)).astype(np.float32)
    for condition in (True, False):
        given = {"x": x, "c": np.array(condition)}
        feeds = {it.name: given[it.name] for it in reference.get_inputs()}
        for got, want in zip(session.run(None, feeds), reference.run(None, feeds), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.costly
@pytest.mark.parametrize("name", MODELS)
def test_bodies_read_what_is_made_here(open_session: OpenSession, name: str) -> None:
    model = MODELS[name]
    session = open_session(model.SerializeToString(), {"forceCpuNodeNames": on_cpu(model)})
    check_runs(session, model)


@pytest.mark.parametrize("name", [name for name in MODELS if not name.startswith(("loop", "scan"))])
def test_in_onnx_runtimes_own_format_only_a_node_that_shares_a_value_within_its_graph_is_refused(
    open_session: OpenSession, tmp_path: Path, name: str
) -> None:
    model, path = MODELS[name], str(tmp_path / "model.ort")
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.optimized_model_filepath = path
    ort.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    options = {"forceCpuNodeNames": on_cpu(model)}
    if "mixed" not in name:
        check_runs(open_session(path, options), model)
        return
    # From onnxruntime 1.27 on when the session is made, before that when it runs.
    with pytest.raises(Exception, match=r"Neg 'cpu.*' cannot run .* use the .onnx file instead"):
        check_runs(open_session(path, options), model)
