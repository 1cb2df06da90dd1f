"""Intervals of values and their arithmetic: [low, high], where a bound is an integer or infinite.

Every node of an expression computes the interval of its values at construction, from its parts, so lookups are free. Invariant:
every value is in its interval; nothing wraps. A bound beyond LIMIT counts as infinite.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from ...program.postfix import OPERATIONS

End = int | float  # a float is infinite
Interval = tuple[End, End]

LIMIT = 2**256
SMALL = 2**120
SCALED = 2**63  # scaling by f32 stops at this number
ELEMENT: Interval = (-(2**63), 2**63 - 1)  # an element of an integer input of unknown type
DIMENSION: Interval = (0, 2**31 - 2)
MOST_ELEMENTS = 2**47
"""A product of dimensions counts elements, and no machine addresses more of them."""


def _bounded(value: End) -> End:
    return value if -LIMIT < value < LIMIT else inf if value > 0 else -inf


def _times(a: End, b: End) -> End:
    return _bounded(a * b) if a and b else 0


def plus(a: Interval, b: Interval) -> Interval:
    return _bounded(a[0] + b[0]), _bounded(a[1] + b[1])


def times(a: Interval, b: Interval) -> Interval:
    corners = [_times(x, y) for x in a for y in b]
    return min(corners), max(corners)


def counted(a: Interval, b: Interval) -> Interval:
    """Returns the product of two element counts."""
    high = _times(a[1], b[1])
    return _times(a[0], b[0]), min(high, max(MOST_ELEMENTS, b[1]))


def _floor(a: End, b: End) -> End:
    if isinstance(a, float):
        return a
    return a // b if isinstance(b, int) else (0 if a >= 0 else -1)


def of_call(op: str, args: Sequence[Interval]) -> Interval:
    """Returns the interval of an operation beyond polynomials; see `postfix.OPERATIONS`."""
    if op in ("<", "<=", "=="):
        return 0, 1
    if op == "min":
        return min(a for a, _ in args), min(b for _, b in args)
    if op == "max":
        return max(a for a, _ in args), max(b for _, b in args)
    if op in ("?", "bcast", "="):
        values = args[1:] if op == "?" else args
        return min(a for a, _ in values), max(b for _, b in values)
    (low, high), (least, most) = args
    if op == "scaled":
        return 0, OPERATIONS[op](int(high), int(least)) if high <= SCALED else inf
    if op == "%":  # has the sign of the divisor; is 0 for divisor 0
        within = (min(least + 1, 0), max(most - 1, 0))
        return (0, min(high, within[1])) if low >= 0 and least >= 0 else within
    size = max(abs(low), abs(high))  # a quotient; is 0 for divisor 0
    if least > 0:
        return (_floor(low, least) if low < 0 else 0), max(_floor(high, least), 0)
    return (0, size) if low >= 0 and least >= 0 else (-size, size)
