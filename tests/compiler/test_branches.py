"""An If whose condition is known when a graph is compiled is the branch that runs; another one is refused with the cause."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from onnxruntime_ep_wgpu.compiler.lower.lower import attempt
from onnxruntime_ep_wgpu.errors import FreeSize
from tests.support import Runner, compile_model, target

X = np.random.default_rng(3).standard_normal((2, 3, 4)).astype(np.float32)

# The condition asks for 3 columns. Branches read values from outside and constants of their own; one has an If inside.
NODES = """
    shape = Shape (x)  extent = Gather (shape, one)  is = Equal (extent, three)
    y, z = If (is) <
        then_branch = yes () => (float[] p, float[] b) <float[4] w = {1, 2, 3, 4}> {
            two = Constant <value_float = 2.0> ()
            s = Mul (x, two)  a = Add (s, w)
            isnt = Not (is)
            p = If (isnt) <then_branch = t () => (float[] q) { q = Neg (a) },
                           else_branch = e () => (float[] r) { r = Exp (a) }>
            b = Squeeze (x)
        },
        else_branch = no () => (float[] c, float[] d) { c = Neg (x)  d = Identity (x) }>
"""


def branched(extents: str, nodes: str = NODES, inputs: str = "") -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 17]> g (float[{extents}] x{inputs}) => (float[] y, float[] z)
        <int64 one = {{1}}, int64 three = {{3}}> {{ {nodes} }}"""
    )


@pytest.mark.parametrize("extent", [3, 2])
def test_the_branch_that_a_condition_takes_is_lowered(extent: int) -> None:
    model, x = branched(f"2, {extent}, 4"), np.ascontiguousarray(X[:, :extent])
    want = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    for got, right in zip(Runner(compile_model(model))(x), want, strict=True):
        assert got.shape == right.shape
        np.testing.assert_allclose(got, right, rtol=1e-5)


TOLD = "control flow runs on the CPU"


@pytest.mark.parametrize(
    ("model", "reason", "free"),
    [
        (branched("2, L, 4"), f"{TOLD}: sizes that are free (L) decide which branch is taken", True),
        (
            branched("2, 3, 4", NODES.replace("Equal (extent, three)", "Equal (k, three)"), ", int64 k"),
            f"{TOLD}: the elements of 'k' decide which branch is taken in a run",
            False,
        ),
        (branched("2, 3, 4", NODES.replace("is = Equal (extent, three)", ""), ", bool is"), TOLD, False),
        (
            branched("2, 3, 4", NODES.replace("b = Squeeze (x)", "b = Unknown (x)")),
            "its then_branch runs, and in it Unknown '': no kernel for Unknown",
            False,
        ),
        (
            branched("2, L, 4", NODES.replace("Equal (extent, three)", "Equal (one, one)")),
            "its then_branch runs, and in it Squeeze '': the rank of the result depends on whether axis 1",
            True,
        ),
    ],
    ids=["a size", "an input", "data", "what has no kernel", "what needs a size"],
)
def test_an_if_that_is_not_known_is_refused_with_what_decides(model: Any, reason: str, free: bool) -> None:
    graph = ir.from_proto(model).graph
    (told,) = [it for it in attempt(graph, {"": 17}, target()).reasons if it is not None]
    assert told.startswith(reason)
    assert isinstance(told, FreeSize) == free
