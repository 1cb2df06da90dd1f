"""Dims are exact: two are equal exactly when their values are, and every form gives the same value."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from onnxruntime_ep_wgpu.compiler import dims
from onnxruntime_ep_wgpu.compiler.dims import symbol, to_postfix
from onnxruntime_ep_wgpu.program.postfix import compile_dims

NAMES = ("batch", "sequence", "?")
OPERATIONS = {
    "+": (lambda a, b: a + b, lambda a, b: a + b),
    "-": (lambda a, b: a - b, lambda a, b: a - b),
    "*": (lambda a, b: a * b, lambda a, b: a * b),
    "//": (dims.floordiv, lambda a, b: a // b),
    "%": (dims.mod, lambda a, b: a % b),
    "min": (dims.minimum, min),
    "max": (dims.maximum, max),
    "==": (dims.equal, lambda a, b: int(a == b)),
    "<": (dims.less, lambda a, b: int(a < b)),
    "<=": (dims.less_equal, lambda a, b: int(a <= b)),
}


def trees() -> st.SearchStrategy:
    leaves = st.one_of(st.integers(0, 9), st.sampled_from(NAMES))
    return st.recursive(
        leaves, lambda inner: st.tuples(st.sampled_from(sorted(OPERATIONS)), inner, inner), max_leaves=8
    )


def symbolic(tree):
    if isinstance(tree, tuple):
        return OPERATIONS[tree[0]][0](symbolic(tree[1]), symbolic(tree[2]))
    return symbol(tree) if isinstance(tree, str) else tree


def numeric(tree, values):
    if isinstance(tree, tuple):
        return OPERATIONS[tree[0]][1](numeric(tree[1], values), numeric(tree[2], values))
    return values[tree] if isinstance(tree, str) else tree


@given(trees(), st.lists(st.integers(0, 50), min_size=3, max_size=3))
def test_an_expression_has_the_value_of_its_operations(tree, numbers):
    values = dict(zip(NAMES, numbers, strict=True))
    try:
        want = numeric(tree, values)
    except ZeroDivisionError:
        reject()  # no dimension is divided by zero
    (result,) = compile_dims([to_postfix(symbolic(tree))], NAMES)(numbers)
    assert result == want


def test_equal_expressions_compare_equal_however_they_were_built():
    b, s = symbol("batch"), symbol("sequence")
    assert (b + 1) * s - s == b * s
    assert (b * s * 384) // 12 == 32 * b * s
    assert dims.quotient(b * s * 64 + s * 64, s * 32) == 2 * b + 2
    assert dims.quotient(b + 1, 2) is None


def test_bounds_that_follow_from_dims_not_being_negative_vanish():
    s = symbol("sequence")
    assert dims.maximum(s, 0) == s
    assert dims.minimum(s, 2**63 - 1) == s
    assert dims.minimum(s, s + 3) == s


def test_the_truth_of_a_symbolic_dim_is_refused():
    with pytest.raises(TypeError, match="sequence"):
        bool(symbol("sequence"))


def test_an_undefined_symbol_is_named():
    with pytest.raises(KeyError, match="width"):
        compile_dims([to_postfix(symbol("width"))], NAMES)


def test_definitions_are_symbols_for_what_follows_them():
    definitions = [("=0", to_postfix(symbol("batch") + 1)), ("=1", to_postfix(symbol("=0") * 2))]
    assert compile_dims([to_postfix(symbol("=1") + symbol("=0"))], ["batch"], definitions)([3]) == [12]


def test_multiples_of_a_divisor_are_taken_out_of_a_quotient():
    n = symbol("n")
    assert dims.floordiv(n - 1, 2) + 1 == dims.floordiv(n + 1, 2)
    assert dims.floordiv(4 * n + 3, 2) == 2 * n + 1
    assert dims.maximum(dims.floordiv(n - 1, 2) + 1, 0) == dims.floordiv(n + 1, 2)


@pytest.mark.parametrize("divisor", [2, 3, 7])
def test_quotients_in_lowest_terms_have_the_same_values(divisor: int):
    n = symbol("n")
    for constant in (-9, -1, 0, 5, 14):
        for factor in (1, divisor, divisor + 1):
            evaluate = compile_dims([to_postfix(dims.floordiv(factor * n + constant, divisor))], ["n"])
            assert all(evaluate([v]) == [(factor * v + constant) // divisor] for v in range(20))


def test_a_table_cut_to_a_length_broadcasts_with_that_length():
    n = symbol("n")
    assert dims.broadcast(n, dims.minimum(n, 1500)) == n
    assert dims.broadcast(dims.minimum(n, 1500), n) == n
    assert dims.broadcast(n, dims.minimum(n, 1)) != n


def test_expressions_of_many_terms_and_factors_keep_their_value():
    """Parts of them become atoms, which equal expressions have alike; a text of one is cut."""
    names = [f"n{k}" for k in range(40)]
    symbols, values = [symbol(name) for name in names], [k % 5 + 1 for k in range(40)]
    total = sum(symbols[1:], start=symbols[0])
    product = dims.product(symbols[:30])
    square = (total + 1) * (total + 2)
    (found, multiplied, squared) = compile_dims([to_postfix(it) for it in (total, product, square)], names)(values)
    assert (found, squared) == (sum(values), (sum(values) + 1) * (sum(values) + 2))
    assert multiplied == math.prod(values[:30])
    assert sum(symbols[1:], start=symbols[0]) == total and len(str(square)) < 2000
    assert dims.equal(square, square + 1) == 0
