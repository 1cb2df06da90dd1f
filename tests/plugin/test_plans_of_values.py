"""A new plan is for new sizes: values of small integer inputs that set none change results alone, captured or not."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.trace import Recorder

RUNS = 40
# Of an integer tensor a, beside x: what reads its values and has sizes that do not depend on them.
STEPS = {
    "sums": "t = Add (a, three)",
    "quotients": "t = Div (a, three)",
    "remainders": "t = Mod (a, three)",
    "extremes": "t = Max (a, three)",
    "comparisons": "e = Equal (a, three) t = Cast <to = 7> (e)",
    "choices": "e = Less (a, three) n = Neg (a) t = Where (e, n, a)",
    "sizes and values": "s = Shape <start = 1, end = 2> (x) t = Add (a, s)",
    "positions": "t = CumSum (a, zero)",
    "a sum": "m = ReduceSum <keepdims = 0> (a) t = Add (a, m)",
}
# How results of x are made of the tensor t of integers.
USES = {
    "mask": "f = Cast <to = 1> (t) g = Sub (one, f) y = Add (x, g)",
    "where": "o = Greater (t, three) p = Neg (x) y = Where (o, x, p)",
    "rows of a table": "i = Mod (t, seven) r = Gather (table, i) k = Transpose (r) y = Add (x, k)",
    "steps": "h = Shape <start = 1, end = 2> (x) q = Squeeze (h) r = Range (zero, q, onei) o = Less (r, t) p = Neg (x)"
    " y = Where (o, x, p)",
}
VALUES = "int64 zero = {0}, int64 onei = {1}, int64 three = {3}, int64 seven = {7}, float one = {1}"
X = np.random.default_rng(3).standard_normal((3, 6), np.float32)


def model(step: str, use: str) -> bytes:
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
        g (int64[K] a, float[N, K] x, float[7, N] table) => (float[N, K] y, int64[K] t)
        <{VALUES}> {{ {STEPS[step]} {USES[use]} }}"""
    found = onnx.parser.parse_model(text)
    onnx.checker.check_model(found)
    return found.SerializeToString()


@pytest.mark.costly
@pytest.mark.parametrize(("step", "use"), list(itertools.product(STEPS, USES)))
def test_values_that_set_no_size_make_no_plan(step: str, use: str) -> None:
    session, cpu = webgpu_ep.session(model(step, use)), ort.InferenceSession(model(step, use))
    captured = webgpu_ep.session(model(step, use), enableGraphCapture=True)
    rng = np.random.default_rng(len(step) + 7 * len(use))
    table = rng.standard_normal((7, 3), np.float32)

    def run(made: ort.InferenceSession) -> Callable[[np.ndarray], list[np.ndarray]]:
        return lambda a: made.run(None, {"a": a, "x": X, "table": table})

    recorder = Recorder()
    with recorder.listening():
        for _ in range(RUNS):
            a = rng.integers(1, 50, 6)
            want = run(cpu)(a)
            for got in (run(session)(a), run(captured)(a)):
                np.testing.assert_array_equal(got[1], want[1])
                np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=1e-5)
    groups = webgpu_ep.report(session).partitions + webgpu_ep.report(captured).partitions
    assert sum(span.kind == "plan" for span in recorder.finish()) == groups
