"""Sample values of a node for a few values of its symbols. They disprove a wrong guess about an expression at once.

In: the samples of a node's parts. Out: its own samples. They are the same in every process. If one is negative, no proof of the
opposite is tried. A sample is None if the value is too large to keep, or is divided by zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from zlib import crc32

from ...program.postfix import OPERATIONS

Sample = tuple[int | None, ...]
COUNT = 3
_LARGEST = 2**64


def of_number(value: int) -> Sample:
    return (value,) * COUNT


def of_name(name: str, signed: bool) -> tuple[int, ...]:
    """Returns a few values for a symbol, including negative ones if it is `signed`."""
    chance = crc32(name.encode())
    if signed:
        return -(1 + chance % 5), chance % 3, 1000 + chance % 997
    return 0, 1 + chance % 13, 1000 + chance % 99991


def of_terms(terms: Iterable[tuple[Iterable[Sample], int]]) -> Sample:
    """Returns the samples of a polynomial, given the samples of the factors and the coefficient of each term."""
    totals: list[int | None] = [0] * COUNT
    for factors, coefficient in terms:
        product: list[int | None] = [coefficient] * COUNT
        for sample in factors:
            product = [None if a is None or b is None else a * b for a, b in zip(product, sample, strict=True)]
        totals = [None if a is None or b is None else _kept(a + b) for a, b in zip(product, totals, strict=True)]
    return tuple(totals)


def of_call(op: str, args: Sequence[Sample]) -> Sample:
    """Returns the samples of an operation beyond polynomials; see `postfix.OPERATIONS`."""
    if op == "=":
        return args[0]
    out: list[int | None] = []
    for given in zip(*args, strict=True):
        values = [v for v in given if v is not None]
        if len(values) < len(given) or (op in ("//", "%", "tdiv") and not values[1]):
            out.append(None)
        elif op == "?":
            out.append(OPERATIONS[op](*values))
        else:  # minimum, maximum and broadcast have two or more
            out.append(reduce(OPERATIONS[op], values))
    return tuple(out)


def _kept(value: int) -> int | None:
    return value if -_LARGEST < value < _LARGEST else None
