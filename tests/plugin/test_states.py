"""States of loops that the body declares without a shape, in every nesting: nodes that read them run here where their rank is
kept, and are right where it is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from string import Template

import numpy as np
import onnx.parser
import onnx_ir as ir
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.plugin.assign.forced import names_in_model
from onnxruntime_ep_wgpu.plugin.assign.inferred import GraphPlace
from onnxruntime_ep_wgpu.plugin.assign.types import Types
from onnxruntime_ep_wgpu.program.settings import CompileSettings
from onnxruntime_ep_wgpu.program.target import WEB_BASELINE

OpenSession = Callable[..., ort.InferenceSession]
Step = Callable[[str, str, str], str]
"""Text of nodes that make of a value another one, by their names; the last argument is a mark for other names."""

GROWS = "grows"
# What a step makes of the state $s, as $e. $m is the mark; x is float[N,4], cube float[2,N,4].
KEPT = {
    "same": "[a$m] $e = Mul ($s, $s)",
    "of outside": "[a$m] t$m = Tanh ($s) [b$m] $e = Add (t$m, x)",
    GROWS: "[a$m] $e = Concat <axis = 0> ($s, x)",
    "turned": "[a$m] t$m = Exp ($s) [b$m] $e = Transpose (t$m)",
    "elsewhere": "[a$m] t$m = Neg ($s) [cpu$m] u$m = Tanh (t$m) [b$m] $e = Mul (u$m, t$m)",
    "unfolded": "[a$m] t$m = Unsqueeze ($s, zero) [b$m] u$m = Tanh (t$m) [c$m] $e = Squeeze (u$m, zero)",
    "of a scaler": "[a$m] $e = Mul ($s, scaled)",
}
CHANGED = {
    "deeper": "[a$m] t$m = Tanh ($s) [b$m] $e = Unsqueeze (t$m, zero)",
    "broadcast": "[a$m] $e = Add ($s, cube)",
    "summed": "[a$m] $e = ReduceSum <keepdims = 0> ($s)",
}


def plain(text: str) -> Step:
    return lambda state, result, mark: Template(text).substitute(s=state, e=result, m=mark)


def looped(step: Step, steady: bool) -> Step:
    """A loop over a step. It collects its states where they are of one size, as what is collected has to be."""
    return lambda state, result, mark: (
        f"{result}, all{mark} = Loop (n, yes, {state}) <body = body{mark} (int64 i{mark}, bool c{mark}, float[] s{mark}) =>"
        f" (bool d{mark}, float[] e{mark}, float[] o{mark}) {{ d{mark} = Identity (c{mark})"
        f" {step(f's{mark}', f'e{mark}', f'{mark}l')} [o{mark}] o{mark} = Neg ({f's{mark}' if steady else 'x'}) }}>"
    )


def chosen(step: Step) -> Step:
    return lambda state, result, mark: (
        f"{result} = If (c) <then_branch = then{mark} () => (float[] p{mark}) {{ {step(state, f'p{mark}', f'{mark}i')} }},"
        f" else_branch = else{mark} () => (float[] q{mark}) {{ [z{mark}] q{mark} = Neg ({state}) }}>"
    )


NESTINGS: dict[str, Callable[[Step, bool], Step]] = {
    "loop": looped,
    "loop in loop": lambda step, steady: looped(looped(step, steady), steady),
    "if in loop": lambda step, steady: looped(chosen(step), steady),
    "loop in if": lambda step, steady: chosen(looped(step, steady)),
}


def model(step: Step) -> bytes:
    made = step("x0", "x1", "_m")
    text = (
        '<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 3]>'
        " g (float[N,4] x, float[2,N,4] cube, int64 n, bool c) => (float[] y) {"
        " yes = Constant <value = bool {1}> () zero = Constant <value = int64[1] {0}> ()"
        " scaled = ai.onnx.ml.Scaler <offset = [0.5], scale = [2.0]> (x)"
        f" [before] x0 = Tanh (x) {made} [after] y = Tanh (x1) }}"
    )
    return onnx.parser.parse_model(text).SerializeToString()


def compare(session: ort.InferenceSession, made: bytes | str) -> None:
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    reference = ort.InferenceSession(made, settings, providers=["CPUExecutionProvider"])
    dice = np.random.default_rng(5)
    for count in (2, 0, 1):
        given = {"x": dice.uniform(-1, 1, (4, 4)), "cube": dice.uniform(-1, 1, (2, 4, 4))}  # square, for what is turned
        feeds = {name: value.astype(np.float32) for name, value in given.items()}
        feeds |= {"n": np.array(count), "c": np.array(count != 1)}
        feeds = {it.name: feeds[it.name] for it in session.get_inputs()}
        for got, want in zip(session.run(None, feeds), reference.run(None, feeds), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def left(session: ort.InferenceSession) -> list[tuple[str, str | None]]:
    """Nodes that calculate and do not run here, with the reasons."""
    return [
        (it.name, it.reason)
        for it in webgpu_ep.report(session).nodes
        if not it.on_webgpu and it.op_type not in ("Loop", "If", "Identity", "Scaler") and not it.name.startswith("cpu")
    ]


def options(made: bytes) -> dict[str, str]:
    """The nodes that are to stay on the CPU."""
    found = [name for name in names_in_model(made) if name.startswith("cpu")]
    return {"forceCpuNodeNames": "\n".join(found)} if found else {}


@pytest.mark.costly
@pytest.mark.parametrize("nesting", NESTINGS)
@pytest.mark.parametrize("step", KEPT)
def test_a_rank_that_is_kept_is_known_everywhere(step: str, nesting: str) -> None:
    made = model(NESTINGS[nesting](plain(KEPT[step]), step != GROWS))
    session = webgpu_ep.session(made, **options(made))
    assert not left(session)
    compare(session, made)


@pytest.mark.costly
@pytest.mark.parametrize("nesting", NESTINGS)
@pytest.mark.parametrize("step", CHANGED)
def test_a_rank_that_changes_is_right(step: str, nesting: str) -> None:
    made = model(NESTINGS[nesting](plain(CHANGED[step]), False))
    compare(webgpu_ep.session(made), made)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("nesting", "where"), [("loop", "memory"), ("loop in loop", "memory"), ("loop in loop", "file")]
)
def test_without_the_model_the_operands_of_a_loop_tell_its_states(
    nesting: str, where: str, open_session: OpenSession, tmp_path: Path
) -> None:
    """ONNX Runtime tells nothing of a model in memory but its graphs, innermost first, and of one in a file the path."""
    made = model(NESTINGS[nesting](plain(KEPT["of outside"]), True))
    path = tmp_path / "nested.onnx"
    path.write_bytes(made)
    session = open_session(str(path) if where == "file" else made, {}, log_severity_level=4)
    assert bool(left(session)) == (nesting == "loop in loop" and where == "memory")
    compare(session, made)


def test_what_a_loop_without_an_iteration_collects_has_rank_one() -> None:
    """So ONNX Runtime says of what it knows no rank of, and of a run with an iteration the rank that was inferred."""
    made = model(lambda *names: looped(plain(KEPT["of outside"]), True)(*names) + " [behind] z = Exp (all_m)")
    proto = onnx.load_from_string(made)
    proto.graph.output.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None))
    session = webgpu_ep.session(proto.SerializeToString())
    assert not left(session)
    for _ in range(2):
        compare(session, proto.SerializeToString())


def test_weights_in_other_files_are_left_there(tmp_path: Path) -> None:
    made = onnx.load_from_string(
        model(looped(looped(plain("[w$m] h$m = Exp (weight) [a$m] $e = Mul ($s, h$m)"), True), True))
    )
    weight = onnx.numpy_helper.from_array(np.full((1, 4), 0.5, np.float32), "weight")
    made.graph.initializer.append(weight)
    path = tmp_path / "model.onnx"
    onnx.save(made, path, save_as_external_data=True, location="weights", size_threshold=0)
    session = webgpu_ep.session(path)
    assert not left(session)
    compare(session, str(path))


@pytest.mark.parametrize("source", [b"no model", "/nowhere/model.onnx", b"", None])
def test_a_model_that_cannot_be_read_again_tells_nothing(source: str | bytes | None) -> None:
    types = Types(WEB_BASELINE, CompileSettings(), lambda: source)
    graph = ir.from_proto(onnx.load_from_string(model(looped(plain(KEPT["same"]), True)))).graph
    types.before(graph, GraphPlace.of(graph, None), None)
    assert all(value.shape is None for node in graph for value in node.outputs)
