"""What a dim can be: the least and largest value of an expression, for whatever its symbols stand for.

In: a `Dim`, and the intervals of the symbols that are not plain dimensions. Out: an interval that holds every value it can
have, usually a wider one. Invariant: exact integers of any size; nothing wraps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from .dims import LARGEST, Atom, Call, Dim

Interval = tuple[int, int]

# Symbols of elements, "@...", hold whatever 64 bits can.
ELEMENT: Interval = (-(2**63), 2**63 - 1)
DIMENSION: Interval = (0, LARGEST - 1)
MOST_ELEMENTS = 2**47
"""A product of dimensions counts elements of something, and no machine addresses more of them."""


def interval(dim: Dim, symbols: Mapping[str, Interval]) -> Interval:
    """The least and the largest value; `symbols` names those that are neither dimensions nor any 64-bit integers."""
    if isinstance(dim, int):
        return int(dim), int(dim)
    low = high = 0
    for monomial, coefficient in dim.terms:
        counted: Interval = (1, 1)  # dimensions
        other: Interval = (1, 1)
        for atom in monomial:
            its = _atom(atom, symbols)
            if isinstance(atom, str) and its[0] >= 0:
                counted = (counted[0] * its[0], min(counted[1] * its[1], max(MOST_ELEMENTS, its[1])))
            else:
                other = _product(other, its)
        a, b = _product(_product(counted, other), (coefficient, coefficient))
        low, high = low + a, high + b
    return low, high


def may_be(dim: Dim, value: int, symbols: Mapping[str, Interval]) -> bool:
    """False when the dim never has this value: it lies outside the interval or between the multiples that occur."""
    if isinstance(dim, int):
        return bool(dim == value)
    low, high = interval(dim, symbols)
    constant = sum(c for m, c in dim.terms if not m)
    step = math.gcd(*(c for m, c in dim.terms if m))
    return low <= value <= high and (value - constant) % step == 0


def _product(a: Interval, b: Interval) -> Interval:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _atom(atom: Atom, symbols: Mapping[str, Interval]) -> Interval:
    if isinstance(atom, str):
        return symbols.get(atom, ELEMENT if atom.startswith("@") else DIMENSION)
    return _call(atom, [interval(a, symbols) for a in atom.args])


def _call(call: Call, args: list[Interval]) -> Interval:
    if call.op in ("<", "<=", "=="):
        return 0, 1
    if call.op == "min":
        return min(a for a, _ in args), min(b for _, b in args)
    if call.op == "max":
        return max(a for a, _ in args), max(b for _, b in args)
    if call.op in ("?", "bcast"):
        (a, b), (c, d) = args[-2:]
        return min(a, c), max(b, d)
    (low, high), (least, most) = args
    if call.op == "%":  # has the sign of the divisor; by 0 it is 0
        within = (min(least + 1, 0), max(most - 1, 0))
        return (0, min(high, within[1])) if low >= 0 and least >= 0 else within
    size = max(abs(low), abs(high))  # a quotient; by 0 it is 0
    if least > 0:
        size_low = low // least if low < 0 else 0
        return size_low, max(high // least, 0)
    return (0, size) if low >= 0 and least >= 0 else (-size, size)
