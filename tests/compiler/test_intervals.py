"""Intervals of dims: every value that an expression has lies in its interval."""

from __future__ import annotations

import random

import pytest

from onnxruntime_ep_wgpu.compiler import dims
from onnxruntime_ep_wgpu.compiler.dims import Dim, limits, may_be, symbol, to_postfix
from onnxruntime_ep_wgpu.program.postfix import compile_dims

NAMES = {"n": (0, 9), "m": (0, 6), "@i": (-128, 127), "@j": (-8, 7)}
BINARY = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    dims.floordiv,
    dims.truncdiv,
    dims.mod,
    dims.minimum,
    dims.maximum,
    dims.less,
    dims.less_equal,
    dims.equal,
    dims.broadcast,
]


def _expression(generator: random.Random, depth: int) -> Dim:
    if depth == 0:
        return generator.choice([*(symbol(name, within) for name, within in NAMES.items()), *range(-4, 8)])
    if generator.random() < 0.15:
        return dims.select(*(_expression(generator, depth - 1) for _ in range(3)))
    return generator.choice(BINARY)(*(_expression(generator, depth - 1) for _ in range(2)))


@pytest.mark.parametrize("seed", range(200))
def test_no_value_lies_outside(seed: int) -> None:
    generator = random.Random(seed)
    dim = _expression(generator, generator.randint(1, 3))
    low, high = limits(dim)
    evaluate = compile_dims([to_postfix(dim)], list(NAMES))
    for _ in range(60):
        (value,) = evaluate([generator.randint(*NAMES[name]) for name in NAMES])
        assert low <= value <= high, f"{dim} is {value}, not in [{low}, {high}]"
        assert may_be(dim, value)


def test_what_divides_an_extent_tells_what_it_is_not() -> None:
    n, m = symbol("n"), symbol("m")
    assert not may_be(2 * n, 1) and not may_be(6 * n + 4 * m, 1) and not may_be(n + 2, 1)
    assert may_be(2 * n + 1, 1) and may_be(n * m, 1) and may_be(n, 0) and not may_be(n + 1, 0)


def test_a_product_of_dimensions_counts_elements_that_exist() -> None:
    assert limits(symbol("a") * symbol("b") * symbol("c") * symbol("d") * 8)[1] < 2**63
