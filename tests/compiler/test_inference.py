"""What is known of what is not lowered: patterns of shapes, bodies of If, Loop and Scan, and whole models."""

from __future__ import annotations

from collections.abc import Sequence

import onnx.parser
import onnx_ir as ir
import pytest

from onnxruntime_ep_wgpu.compiler.graph.inference import nodes, pattern
from onnxruntime_ep_wgpu.compiler.graph.inference.bodies import solved
from onnxruntime_ep_wgpu.compiler.graph.inference.value_info import Shape, ValueInfo, joined
from onnxruntime_ep_wgpu.compiler.lower import model_types as inference
from onnxruntime_ep_wgpu.program.target import WEB_BASELINE

F = ir.DataType.FLOAT


def info(*shape: int | str | None) -> ValueInfo:
    return ValueInfo(F, shape)


@pytest.mark.parametrize(
    ("text", "operands", "wanted"),
    [
        ("...->...", [("n", 4)], ("n", 4)),
        ("...->~k", [(3, 4)], (None, None, None)),
        ("...c->...k", [(2, 3, 4)], (2, 3, None)),
        ("nc,cm->nm", [("n", 4), (4, 5)], ("n", 5)),
        ("nc,cm->nm", [("n", 4), None], ("n", None)),
        ("nc,cm->nm", [(1, 2, 3), (4, 5)], (None, 5)),
        ("nc->n{size}", [("n", 4)], ("n", 7)),
        ("nc->n{no}", [("n", 4)], ("n", None)),
        ("c->1k; nc->nk", [("c",)], (1, None)),
        ("c->1k; nc->nk", [("n", "c")], ("n", None)),
        ("c->1k; nc->nk", [None], (None, None)),
        ("c->k; nc->nk", [None], None),
        ("...->...", [None], None),
        ("->()", [None], ()),
    ],
)  # fmt: skip
def test_a_pattern_says_what_it_can(text: str, operands: list[Shape | None], wanted: Shape | None) -> None:
    node = ir.node("Any", [], attributes={"size": 7})
    given = [ValueInfo(F, shape) for shape in operands]
    assert pattern.results(text, node, given, {}) == [ValueInfo(F, wanted)]


def test_what_nobody_knows_says_nothing() -> None:
    value = ir.Value(name="x", type=ir.TensorType(F), shape=ir.Shape([2]))
    assert nodes.results(ir.node("Own", [value], domain="somebody"), {"somebody": 1}, [info(2)]) == [ValueInfo()]


def looped(initial: ValueInfo, steps: Sequence[Shape | None]) -> ValueInfo:
    """What is known of a state whose body makes these shapes, one after another, of what is assumed."""
    made = iter(steps)
    node = ir.node("Loop", [])
    condition = ValueInfo(ir.DataType.BOOL, ())
    found = solved(node, [condition, condition, initial], lambda *_: [condition, ValueInfo(F, next(made))])
    assert found is not None
    return found.results[0]


def test_a_state_is_what_every_iteration_keeps() -> None:
    assert looped(info("n", 4), [("n", 4)]) == info("n", 4)
    assert looped(info("n", 4), [("n", 5), ("n", None)]) == info("n", None)
    assert looped(info("n", 4), [("n", 4, 1), None]) == ValueInfo(F)
    assert looped(
        info(2, 3, 4, 5, 6, 7, 8), [(*[None] * k, *range(2 + k, 8), 8) for k in range(1, 5)] + [None] * 3
    ) == ValueInfo(F)
    assert joined(info(2), ValueInfo(ir.DataType.INT64, (2,))) == ValueInfo(None, (2,))


SCAN = (
    "ends, all = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [-1],"
    " body = b (float[] s, float[] row) => (float[] e, float[] o) { e = Add (s, row) o = Neg (row) }> (first, x)"
)


def types_of(lines: str) -> dict[str, ValueInfo]:
    text = (
        '<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 3]> g (float[n,5] x, float[n] v, bool c, int64 t) =>'
        f" (float[] y) {{ first = ai.onnx.ml.Scaler (v) {lines} y = Identity (first) }}"
    )
    return dict(inference.types_of(ir.from_proto(onnx.parser.parse_model(text)), WEB_BASELINE))


def test_a_scan_slices_and_stacks() -> None:
    found = types_of(SCAN)
    assert found["first"] == info("n") == found["s"] == found["row"] == found["o"]
    assert found["ends"] == info("n")
    assert found["all"].shape is not None and len(found["all"].shape) == 2


def test_a_name_in_two_bodies_is_what_both_have_in_common() -> None:
    branches = (
        "z = If (c) <then_branch = t () => (float[] a) { b = Neg (x) a = Abs (b) }, else_branch = e () => (float[] d) {"
    )
    assert types_of(branches + " b = Neg (v) d = Unsqueeze (b, two) }> two = Constant <value = int64[1] {1}> ()")[
        "b"
    ] == ValueInfo(F)
    assert types_of(branches + " b = Exp (x) d = Abs (b) }>")["b"] == info("n", 5)


def test_bodies_in_bodies_without_end_take_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round of a loop asks all loops in it again."""
    asked = []
    attempt = inference.attempt
    monkeypatch.setattr(inference, "attempt", lambda graph, *rest: asked.append(len(graph)) or attempt(graph, *rest))
    monkeypatch.setattr(inference, "MOST_NODES", 300)
    lines = "e{0} = Transpose (s{0})"
    for depth in range(30):
        lines = lines.replace("{0}", str(depth)).replace("{1}", str(depth + 1))
        lines = (
            f"f{{0}} = Loop (t, c, s{{0}}) <body = body{depth} (int64 i{depth}, bool c{depth}, float[] s{depth}) =>"
            f" (bool d{depth}, float[] e{depth}) {{ d{depth} = Identity (c{depth}) {lines}"
            + (f" e{depth} = Neg (f{depth})" if depth else "")
            + " }>"
        )
    found = types_of(lines.replace("s{0}", "x").replace("{0}", "30"))
    assert sum(asked) <= 300 + max(asked)
    assert "first" in found
