"""What a layer of a decoder or encoder is in kernels: gates, residuals and spelled-out norms cost no kernel of their own."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from onnx.helper import make_node as node

from tests.support import Runner, compile_model, labels, make_model, target

F = np.float32
WIDE, INNER, ROWS = 64, 96, 7
RMS = [
    node("Mul", ["x", "x"], ["sq"]), node("ReduceMean", ["sq", "axes"], ["ms"]), node("Add", ["ms", "eps"], ["me"]),
    node("Sqrt", ["me"], ["rt"]), node("Div", ["x", "rt"], ["nx"]), node("Mul", ["nx", "gain"], ["h"]),
]  # fmt: skip
GATED = [
    node("MatMul", ["h", "w_gate"], ["g"]), node("MatMul", ["h", "w_up"], ["u"]), node("Sigmoid", ["g"], ["s"]),
    node("Mul", ["g", "s"], ["a"]), node("Mul", ["a", "u"], ["m"]), node("MatMul", ["m", "w_down"], ["d"]),
    node("Add", ["d", "x"], ["y"]),
]  # fmt: skip
LAYER_NORM = [
    node("ReduceMean", ["x", "axes"], ["mu"]), node("Sub", ["x", "mu"], ["c"]), node("Pow", ["c", "two"], ["sq"]),
    node("ReduceMean", ["sq", "axes"], ["ms"]), node("Add", ["ms", "eps"], ["me"]), node("Sqrt", ["me"], ["rt"]),
    node("Div", ["c", "rt"], ["nx"]), node("Mul", ["nx", "gain"], ["ng"]), node("Add", ["ng", "bias"], ["h"]),
]  # fmt: skip
GELU = [
    node("MatMul", ["h", "w_up"], ["u"]), node("Add", ["u", "b_up"], ["v"]), node("Div", ["v", "root"], ["r"]),
    node("Erf", ["r"], ["e"]), node("Add", ["e", "one"], ["p"]), node("Mul", ["v", "p"], ["q"]), node("Mul", ["q", "half"], ["m"]),
    node("MatMul", ["m", "w_down"], ["d"]), node("Add", ["d", "b_down"], ["f"]), node("Add", ["x", "f"], ["y"]),
]  # fmt: skip
LAYERS = {"gated": (RMS + GATED, 4), "GELU": (LAYER_NORM + GELU, 3)}


def expected(name: str, x: np.ndarray, w: dict[str, np.ndarray]) -> np.ndarray:
    x = x.astype(np.float64)
    c = x - x.mean(-1, keepdims=True) if name == "GELU" else x
    h = c / np.sqrt((c * c).mean(-1, keepdims=True) + w["eps"]) * w["gain"]
    if name == "gated":
        g = h @ w["w_gate"]
        return g / (1 + np.exp(-g)) * (h @ w["w_up"]) @ w["w_down"] + x
    v = (h + w["bias"]) @ w["w_up"] + w["b_up"]
    return v * (1 + np.vectorize(math.erf)(v / 2**0.5)) / 2 @ w["w_down"] + w["b_down"] + x


@pytest.mark.costly
@pytest.mark.parametrize("software", [True, False], ids=["software", "gpu"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_its_norm_and_its_products(name, software):
    nodes, kernels = LAYERS[name]
    rng = np.random.default_rng(0)
    weights = {
        "axes": np.array([-1]), "eps": np.array(1e-5, F), "two": np.array(2, F), "one": np.array(1, F), "half": np.array(0.5, F),
        "root": np.array(2**0.5, F), "gain": rng.standard_normal(WIDE).astype(F), "bias": rng.standard_normal(WIDE).astype(F),
        "w_gate": rng.standard_normal((WIDE, INNER)).astype(F) / 8, "w_up": rng.standard_normal((WIDE, INNER)).astype(F) / 8,
        "w_down": rng.standard_normal((INNER, WIDE)).astype(F) / 9, "b_up": rng.standard_normal(INNER).astype(F),
        "b_down": rng.standard_normal(WIDE).astype(F),
    }  # fmt: skip
    read = {it for n in nodes for it in n.input}
    model = make_model(nodes, {"x": (F, [1, ROWS, WIDE])}, {k: v for k, v in weights.items() if k in read})
    program = compile_model(model, dataclasses.replace(target(), software=software))
    assert len(program.dispatches) == kernels, labels(program)
    x = rng.standard_normal((1, ROWS, WIDE)).astype(F)
    (y,) = Runner(program)(x)
    np.testing.assert_allclose(y, expected(name, x, weights), rtol=1e-5, atol=2e-5)
