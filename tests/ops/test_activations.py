"""The table of activations: an expression means the same with numbers written into it as with its parameters."""

from __future__ import annotations

import math

import pytest

from onnxruntime_ep_wgpu.compiler.lower.ops.activations import ACTIVATIONS

FUNCTIONS = {
    "where": lambda condition, a, b: a if condition else b,
    "fma": lambda a, b, c: a * b + c,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "swish": lambda x, alpha: x / (1 + math.exp(-alpha * x)),
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "mish": lambda x: x * math.tanh(math.log1p(math.exp(x))),
    "softplus": lambda x: math.log1p(math.exp(x)),
    "tanh": math.tanh,
    "expm1": lambda x: math.expm1(min(x, 700)),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_numbers_stand_for_parameters(name: str) -> None:
    it = ACTIVATIONS[name]
    for given in ([], [0.7], [-1.5], [1e-7, -2.0], [3.0, 0.25]):
        values = it.values(given)
        assert [*values] == [*it.parameters] and [*values.values()][: len(given)] == given[: len(values)]
        for x in (-2.0, -0.5, 0.0, 0.5, 2.0):
            names = {**FUNCTIONS, "x": x}
            assert eval(it.text(values), names) == eval(it.expression, {**names, **values})
