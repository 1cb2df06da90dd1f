"""Operations on dims beyond polynomials, each reduced to its simplest form.

Rules hold for every value of the symbols: a dimension may be 0 or 1, an element of an input may be negative. Broadcasting
operands are an exception: a plan rejects those that do not fit (`Builder.expand`), so the rules of `broadcast` may assume that
they fit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import gcd

from ...program.postfix import OPERATIONS, f32_bits
from .bounds import nonnegative
from .nodes import RULES, Dim, Expr, Operation, Terms, call, from_terms, interval, quotient, terms_of

LARGEST = 2**31 - 1  # above every dimension; ONNX uses larger numbers for "to the end"
EXACT_NUMERATOR = 32  # a quarter, a half, three halves: times any extent up to 2**19 this is exact in f32
MOST_ARGUMENTS = 8  # of minimum, maximum and broadcast; further ones nest
KEPT = 4096  # cached results per function, since layers of a network repeat them; typed, because True equals 1 and is no dim


def _call(op: str, *args: Dim) -> Dim:
    if all(isinstance(a, int) for a in args):
        return int(OPERATIONS[op](*args))
    return call(op, *args)


def _only_call(dim: Dim, op: str) -> Operation | None:
    """Returns the call if the dim is a single call of `op`."""
    if isinstance(dim, Expr) and len(dim.terms) == 1:
        monomial, coefficient = dim.terms[0]
        if coefficient == 1 and len(monomial) == 1 and isinstance(monomial[0], Operation) and monomial[0].op == op:
            return monomial[0]
    return None


def _sort_key(dim: Dim) -> tuple[bool, int | str]:
    return (True, dim.sort_key) if isinstance(dim, Expr) else (False, dim)


# ---- division


@lru_cache(maxsize=KEPT, typed=True)
def floordiv(a: Dim, b: Dim) -> Dim:
    """Division rounded towards minus infinity. The divisor is not zero.

    Division by a constant is reduced to lowest terms:

    - Multiples of the divisor are divided separately, so that (n - 1) // 2 + 1 and (n + 1) // 2 are the same dim.
    - Factors shared by all terms are cancelled.
    - Nested divisions are merged: (n // 2 + 1) // 2 is (n + 2) // 4.
    """
    exact = quotient(a, b)
    if exact is not None:
        return exact
    if not isinstance(b, int) or b <= 1 or isinstance(a, int):
        return _call("//", a, b)
    whole = from_terms({m: c // b for m, c in a.terms if not m or c % b == 0})
    rest = a - whole * b
    low, high = interval(rest)
    if low // b == high // b:  # also if only a constant is left
        return whole + int(low // b)
    assert isinstance(rest, Expr)
    nested = _nested(rest)
    if nested is not None:
        inner, others = nested
        x, k = inner.args
        assert isinstance(k, int)
        return whole + floordiv(others * k + x, b * k)
    shared = gcd(b, *(c for m, c in rest.terms if m))
    if shared > 1:
        return whole + floordiv(from_terms({m: c // shared for m, c in rest.terms}), b // shared)
    if rest.terms[0][1] < 0:  # rounded up and negated, the usual form of lengths padded to a multiple
        return whole - floordiv(b - 1 - rest, b)
    return whole + call("//", rest, b)


def _nested(dim: Expr) -> tuple[Operation, Dim] | None:
    """Returns (x // k, others) if the dim is x // k + others with a constant k and no other such term."""
    found = [
        (m[0], ((m, c),))
        for m, c in dim.terms
        if c == 1 and len(m) == 1 and isinstance(m[0], Operation) and m[0].op == "//"
        if isinstance(m[0].args[1], int) and m[0].args[1] > 0
    ]
    if len(found) != 1:
        return None
    (inner, (term,)) = found[0]
    return inner, from_terms({m: c for m, c in dim.terms if (m, c) != term})


def truncdiv(a: Dim, b: Dim) -> Dim:
    """Division rounded towards zero, like integer division in ONNX. The divisor is not zero."""
    exact = quotient(a, b)
    if exact is not None:
        return exact
    return floordiv(a, b) if nonnegative(a) and nonnegative(b) else _call("tdiv", a, b)


def ceildiv(a: Dim, b: int) -> Dim:
    return floordiv(a + (b - 1), b)


def scaled(extent: Dim, scale: float) -> Dim:
    """Returns an extent times an f32 above 0, rounded as f32 and then down.

    This differs from the product with a fraction: 225 * 13/25 is 117, but f32 gives 116.
    """
    numerator, denominator = scale.as_integer_ratio()
    if not isinstance(extent, int) and (denominator == 1 or numerator <= EXACT_NUMERATOR):
        return floordiv(extent * numerator, denominator)
    return _call("scaled", extent, f32_bits(scale))


def mod(a: Dim, b: Dim) -> Dim:
    """The remainder of `floordiv`, with the sign of b, which is not zero.

    For a constant b it is written as a - b * (a // b). A length padded to a multiple is then recognised as one.
    """
    if isinstance(b, int) and b != 0:
        return a - b * floordiv(a, b)
    return 0 if quotient(a, b) is not None else _call("%", a, b)


# ---- order


@lru_cache(maxsize=KEPT, typed=True)
def minimum(a: Dim, b: Dim) -> Dim:
    return _extreme("min", a, b, lambda x, y: nonnegative(y - x))


@lru_cache(maxsize=KEPT, typed=True)
def maximum(a: Dim, b: Dim) -> Dim:
    return _extreme("max", a, b, lambda x, y: nonnegative(x - y))


def _extreme(op: str, a: Dim, b: Dim, wins: Callable[[Dim, Dim], bool]) -> Dim:
    """Returns the arguments without those that another one always beats. Nested calls are merged into one."""
    pending: list[Dim] = [x for it in (a, b) for x in _arguments(op, it)]
    kept: list[Dim] = []
    for x in pending:
        if any(x is y or wins(y, x) for y in kept):
            continue
        kept = [y for y in kept if not wins(x, y)]
        kept.append(x)
    if len(kept) == 1:
        return kept[0]
    if all(isinstance(x, int) for x in kept):
        return (min if op == "min" else max)(x for x in kept if isinstance(x, int))
    if len(kept) > MOST_ARGUMENTS:
        kept = [a, b]
    return call(op, *sorted(kept, key=_sort_key))


def _arguments(op: str, dim: Dim) -> tuple[Dim, ...]:
    nested = _only_call(dim, op)
    return nested.args if nested else (dim,)


def _sides(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """Returns two dims that compare like a and b: common terms and factors are removed, and every term is positive."""
    difference = terms_of(a - b)
    factor = gcd(*(c for _, c in difference))
    left: Terms = tuple((m, c // factor) for m, c in difference if c > 0)
    right: Terms = tuple((m, -c // factor) for m, c in difference if c < 0)
    return from_terms(dict(left)), from_terms(dict(right))


@lru_cache(maxsize=KEPT, typed=True)
def less(a: Dim, b: Dim) -> Dim:
    """1 if a < b, else 0."""
    if nonnegative(a - b):
        return 0
    return 1 if nonnegative(b - a - 1) else _call("<", *_sides(a, b))


@lru_cache(maxsize=KEPT, typed=True)
def less_equal(a: Dim, b: Dim) -> Dim:
    if nonnegative(b - a):
        return 1
    return 0 if nonnegative(a - b - 1) else _call("<=", *_sides(a, b))


@lru_cache(maxsize=KEPT, typed=True)
def equal(a: Dim, b: Dim) -> Dim:
    difference = a - b
    if isinstance(difference, int):
        return int(difference == 0)
    if nonnegative(difference - 1) or nonnegative(-difference - 1):
        return 0
    factors = gcd(*(c for m, c in difference.terms if m))
    constant = dict(difference.terms).get((), 0)
    if constant % factors:
        return 0
    if difference.terms[0][1] < 0:
        factors = -factors
    return _call("==", *_sides(from_terms({m: c // factors for m, c in difference.terms}), 0))


@lru_cache(maxsize=KEPT, typed=True)
def select(condition: Dim, yes: Dim, no: Dim) -> Dim:
    """`yes` if the condition is not 0, else `no`."""
    if yes == no:
        return yes
    if isinstance(condition, int):
        return yes if condition else no
    comparison = _only_call(condition, "<") or _only_call(condition, "<=")
    if comparison is not None:
        # Recognises "a if a < b else b", also after common terms of the comparison were removed.
        low, high = comparison.args
        if low - high == yes - no:
            return minimum(yes, no)
        if low - high == no - yes:
            return maximum(yes, no)
    if (yes, no) == (1, 0) and _is_truth(condition):
        return condition
    return _call("?", condition, yes, no)


def _is_truth(dim: Dim) -> bool:
    return any(_only_call(dim, op) for op in ("<", "<=", "=="))


# ---- broadcasting


@lru_cache(maxsize=KEPT, typed=True)
def broadcast(a: Dim, b: Dim) -> Dim:
    """Returns the dimension of two broadcasting operands: the one that is not 1.

    The operands of nested broadcasts become the arguments of one call, without duplicates. So layers that add the same operands
    again have the same dim.
    """
    parts = list(dict.fromkeys(x for it in (a, b) for x in _arguments("bcast", it) if x != 1))
    if not parts:
        return 1
    constant = next((x for x in parts if isinstance(x, int)), None)
    if constant is not None:
        return constant
    # A slice of a longer table is either as long as another part or too short; a plan checks this.
    parts = [x for x in parts if not any(_is_cut(x, y) for y in parts)]
    if len(parts) > MOST_ARGUMENTS:
        parts = [b] if _contains(b, a) else [a] if _contains(a, b) else [a, b]
    return parts[0] if len(parts) == 1 else call("bcast", *sorted(parts, key=_sort_key))


def _contains(dim: Dim, part: Dim) -> bool:
    return part in _arguments("bcast", dim)


def _is_cut(a: Dim, b: Dim) -> bool:
    """Returns True if `a` is min(b, a constant above 1)."""
    limits = _arguments("min", a)
    return len(limits) == 2 and b in limits and any(isinstance(x, int) and x > 1 for x in limits)


RULES.floordiv, RULES.mod = floordiv, mod
