"""Every simplification of dims is right: against brute force over small values, zero and one and negative elements included."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from onnxruntime_ep_wgpu.compiler import dims
from onnxruntime_ep_wgpu.compiler.dims import Names, symbol, to_postfix
from onnxruntime_ep_wgpu.program.postfix import OPERATIONS, compile_dims

NAMES = ("h", "w", "@e")  # two dimensions and an element of an input
VALUES = tuple(itertools.product((0, 1, 2, 3, 7, 8), (0, 1, 2, 5), (-8, -1, 0, 1, 4)))
MAKE = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": dims.floordiv,
    "%": dims.mod,
    "tdiv": dims.truncdiv,
    "min": dims.minimum,
    "max": dims.maximum,
    "<": dims.less,
    "<=": dims.less_equal,
    "==": dims.equal,
    "?": dims.select,
}
MEANING = {
    **OPERATIONS,
    "-": lambda a, b: a - b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "tdiv": lambda a, b: int(OPERATIONS["tdiv"](a, b)) if b else a // b,
}


def trees(operations=tuple(MAKE), most: int = 9) -> st.SearchStrategy:
    leaves = st.one_of(st.integers(-4, 9), st.sampled_from(NAMES))

    def grown(inner):
        binary = st.tuples(st.sampled_from([o for o in operations if o != "?"]), inner, inner)
        return st.one_of(binary, st.tuples(st.just("?"), inner, inner, inner)) if "?" in operations else binary

    return st.recursive(leaves, grown, max_leaves=most)


def symbolic(tree):
    if isinstance(tree, tuple):
        return MAKE[tree[0]](*map(symbolic, tree[1:]))
    return symbol(tree) if isinstance(tree, str) else tree


def numeric(tree, values):
    if isinstance(tree, tuple):
        return MEANING[tree[0]](*(numeric(t, values) for t in tree[1:]))
    return values[tree] if isinstance(tree, str) else tree


def values_of(dim) -> list[int]:
    """The values of a dim for all VALUES, by way of the Program's form with names for all parts that can have one."""
    names = Names(longest=1)
    evaluate = compile_dims([names.of(dim)], NAMES, names.definitions)
    return [evaluate(v)[0] for v in VALUES]


def meant(tree) -> list[int | None]:
    """The values of its operations; None where it divides by zero, which has no value."""
    out: list[int | None] = []
    for v in VALUES:
        try:
            out.append(numeric(tree, dict(zip(NAMES, v, strict=True))))
        except ZeroDivisionError:
            out.append(None)
    return out


def assert_right(tree) -> None:
    wrong = [
        (v, got, want)
        for v, got, want in zip(VALUES, values_of(symbolic(tree)), meant(tree), strict=True)
        if want is not None and got != want
    ]
    assert not wrong


@given(trees())
@settings(max_examples=300, deadline=None)
def test_every_expression_has_the_value_of_its_operations(tree):
    assert_right(tree)


@given(trees(("+", "-", "*", "//", "min", "max"), 12))
@settings(max_examples=200, deadline=None)
def test_nested_bounds_and_divisions_keep_their_value(tree):
    assert_right(tree)


@given(trees())
@settings(max_examples=200, deadline=None)
def test_what_is_proved_not_to_be_negative_never_is(tree):
    if dims.nonnegative(symbolic(tree)):
        assert all(value is None or value >= 0 for value in meant(tree))


@given(trees(most=5), trees(("+", "-", "*"), 4))
@settings(max_examples=200, deadline=None)
def test_a_quotient_is_exact_for_every_value(tree, divisor):
    a, b = symbolic(tree), symbolic(divisor)
    for dividend in (a, a * b):
        result = dims.quotient(dividend, b)
        if result is not None:
            assert [q * d for q, d in zip(values_of(result), values_of(b), strict=True)] == values_of(dividend)
    if b != 0 and not isinstance(a, int):
        assert dims.quotient(a * b, b) in (a, None)


@given(st.lists(st.sampled_from(["a", "b", "c", 1, 4]), min_size=1, max_size=9), st.randoms())
def test_nested_broadcasts_are_one_whatever_their_order(parts, chance):
    dim = {name: symbol(name) if isinstance(name, str) else name for name in parts}

    def folded(order):
        result = 1
        for name in order:
            result = dims.broadcast(result, dims.broadcast(dim[name], result))
        return result

    first = folded(parts)
    shuffled = list(parts)
    chance.shuffle(shuffled)
    assert folded(shuffled) is first or folded(shuffled) == first
    for extent in (0, 1, 3, 4):
        for ones in itertools.product((True, False), repeat=3):
            sizes = [1 if one else extent for one in ones]
            values = [sizes["abc".index(n)] if isinstance(n, str) else n for n in parts]
            if len(set(values) - {1}) <= 1:  # what broadcasts
                (got,) = compile_dims([to_postfix(first)], "abc")(sizes)
                assert got == next((v for v in values if v != 1), 1)


H, W, S = symbol("h"), symbol("w"), symbol("s")


@pytest.mark.parametrize(
    ("built", "simple"),
    [
        (dims.maximum(S - dims.minimum(dims.maximum(S - 7, 0), S), 0), S - dims.maximum(S - 7, 0)),
        (dims.select(dims.less(-S, 0), 0, -S), 0),  # the last s of s
        (dims.minimum(dims.maximum(S, 0), S), S),
        (dims.maximum(dims.minimum(H, W), H), H),
        (dims.minimum(dims.minimum(H, W), H), dims.minimum(W, H)),
        (dims.floordiv(dims.floordiv(H - 1, 2) + 1 - 1, 2) + 1, dims.floordiv(H + 3, 4)),
        (dims.floordiv(2 * H + 1, 4), dims.floordiv(H, 2)),
        (dims.mod(7 - dims.mod(H, 7), 7) + H, 7 * dims.ceildiv(H, 7)),  # padded to windows of 7
        (dims.quotient((H + 1) * (W + 2) * 64, (W + 2) * 16), 4 * (H + 1)),
        (dims.equal(H + 1, 0), 0),
        (dims.equal(2 * H, 5), 0),
        (dims.equal(3 * H, 3 * W), dims.equal(W, H)),
        (dims.less(H + W, W + 3), dims.less(H, 3)),
        (dims.less(dims.mod(H, 7), 7), 1),
        (dims.select(dims.less(H, W), H, W), dims.minimum(H, W)),
        (dims.select(dims.equal(H, -1), W, H), H),
        (dims.broadcast(H, dims.broadcast(H, W)), dims.broadcast(W, H)),
    ],
)
def test_what_exports_write_is_seen_to_be_simple(built, simple):
    assert built == simple


@pytest.mark.costly
@pytest.mark.parametrize("step", ["broadcast", "maximum", "select", "floordiv", "product", "sum"])
def test_an_expression_of_any_depth_has_short_parts_and_few(step):
    """The tree of each of these doubles per layer or more; its parts and its text grow by a constant."""
    a, b = symbol("a"), symbol("b")
    steps = {
        "broadcast": lambda x, k: dims.broadcast(x * 2 + a, dims.broadcast(x * 3 + b, x)),
        "maximum": lambda x, k: dims.maximum(x - b, dims.minimum(x * 2 - a, b * k)),
        "select": lambda x, k: dims.select(dims.less(x, a * k), x + b, x - a),
        "floordiv": lambda x, k: dims.floordiv(x * x + a, x + b),
        "product": lambda x, k: (x + a + k) * (x + b),
        "sum": lambda x, k: x + symbol(f"n{k}") * a,
    }

    def depth(count):
        names, x = Names(), a
        for k in range(count):
            x = steps[step](x, k)
            names.of(x)
        longest = max((len(p) for _, p in names.definitions if not isinstance(p, int)), default=0)
        return len(names.definitions), longest, x, names

    few, _, _, _ = depth(50)
    many, longest, x, names = depth(400)
    assert many <= 10 * few + 100
    assert longest < 2500
    extra = [f"n{k}" for k in range(400)]
    steep = 7 if step == "product" else 20  # each product has twice the bits, and sizes have at most 1024
    evaluate = compile_dims([names.of(depth(steep)[2])], ["a", "b", *extra], names.definitions)
    value, numbers = 2, {"a": 2, "b": 1, **dict.fromkeys(extra, 1)}
    plain = {
        "broadcast": None,
        "maximum": lambda v, k: max(v - 1, min(v * 2 - 2, k)),
        "select": lambda v, k: v + 1 if v < 2 * k else v - 2,
        "floordiv": lambda v, k: (v * v + 2) // (v + 1),
        "product": lambda v, k: (v + 2 + k) * (v + 1),
        "sum": lambda v, k: v + 2,
    }[step]
    if plain is not None:
        for k in range(steep):
            value = plain(value, k)
        assert evaluate(list(numbers.values())) == [value]
    assert len(str(x)) < 2000


def test_equal_dims_made_by_many_threads_are_one_object():
    made = []

    def build(_):
        made.append(dims.minimum(symbol("p") * 3 + 1, dims.floordiv(symbol("q"), 5)))

    for _ in range(50):
        threads = [threading.Thread(target=build, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(map(id, made))) == 1


@given(trees())
@settings(max_examples=100, deadline=None)
def test_the_form_in_a_program_does_not_depend_on_what_was_built_before(tree):
    """Two builds, with everything forgotten in between, give the same text."""
    first = symbolic(tree)
    assume(not isinstance(first, int))
    text = to_postfix(first)
    for cached in (dims.nodes._sum, dims.nodes._product):
        cached.cache_clear()
    del first
    assert to_postfix(symbolic(tree)) == text


@given(st.floats(2**-20, 64, width=32), st.integers(1, 24))
@settings(max_examples=200, deadline=None)
@example(0.5199999809265137, 24)
def test_scaled_extents_are_those_of_f32(scale, parts):
    """Of any scale, and of fractions, which f32 does not hold; in kernels' form and by their interval."""
    extents = np.array([0, 1, 2, 3, 69, 225, 450, 1000, 4095, 65537, 99999])
    for factor in {np.float32(scale), np.float32(round(scale * parts) / parts)} - {np.float32(0)}:
        scaled = dims.scaled(symbol("h"), float(factor))
        evaluate = compile_dims([to_postfix(scaled)], ["h"])
        wanted = (extents.astype(np.float32) * factor).astype(np.int64).tolist()
        assert [evaluate([extent])[0] for extent in extents.tolist()] == wanted
        assert [dims.scaled(extent, float(factor)) for extent in extents.tolist()] == wanted
        low, high = dims.limits(scaled)
        assert low == 0 and high >= max(wanted)
