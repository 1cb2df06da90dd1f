"""Proves that expressions cannot be negative, for any values of their symbols.

In: a dim. Out: True if there is a proof, else False. A proof repeatedly replaces an atom so that the whole does not grow:

- `max(a, b)` by a or b; `k * (x // k)` by `x - k + 1`; a comparison by 0;
- with a negative coefficient, `min(a, b)` by a or b, and `k * (x // k)` by x;
- a choice between values by each of them.

The rest is a polynomial with terms that are obviously not negative. Short proofs are tried first. No proof is tried for an
expression that is negative for one of the sample values of every node (`nodes.Sample`).

Invariants: the result is sound for every value of the symbols, including zero and one. It depends only on the expression. A proof
takes at most MOST_STEPS replacements.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from .intervals import Interval
from .nodes import RULES, Atom, Dim, Expr, Monomial, Operation, interval, product, terms_of

MOST_STEPS = 48
DEEPEST = 6  # consecutive replacements

# Lists of expressions that are never larger than the one they replace. It is not negative if all expressions of a list are not.
_Ways = Iterator[list[Dim]]


class _OutOfSteps(Exception):
    """The proof takes too many steps."""


def nonnegative(dim: Dim) -> bool:
    """Returns True if there is a proof that the value is never negative."""
    if not isinstance(dim, Expr):
        return dim >= 0
    if dim.proved is None:
        dim.proved = not any(value is not None and value < 0 for value in dim.samples) and _Proof().found(dim)
    return dim.proved


RULES.nonnegative = nonnegative


class _Proof:
    def __init__(self) -> None:
        self.steps = 0
        self.cut = False  # whether the last search ended at its depth limit

    def found(self, dim: Dim) -> bool:
        try:
            for depth in range(1, DEEPEST + 1):
                self.cut = False
                if self.of(dim, depth):
                    return True
                if not self.cut:
                    return False
        except _OutOfSteps:
            pass
        return False

    def of(self, dim: Dim, depth: int) -> bool:
        if not isinstance(dim, Expr):
            return dim >= 0
        if dim.interval[0] >= 0:
            return True
        if dim.interval[1] < 0:
            return False
        if not _may_be_nonnegative(dim):
            return False
        if not depth:
            self.cut = True
            return False
        for monomial, coefficient in dim.terms:
            for place, atom in enumerate(monomial):
                others = (*monomial[:place], *monomial[place + 1 :])
                if not isinstance(atom, Operation) or any(x.interval[0] < 0 for x in others):
                    continue
                rest = dim + _term(monomial, -coefficient)
                for smaller in _smaller(atom, coefficient, _term(others, 1), rest):
                    self.steps += 1
                    if self.steps > MOST_STEPS:
                        raise _OutOfSteps
                    if all(self.of(it, depth - 1) for it in smaller):
                        return True
        return False


def _may_be_nonnegative(dim: Expr) -> bool:
    """Returns False if no proof can exist: all terms are negative, and there is no atom to replace."""
    if all(c <= 0 and all(x.interval[0] >= 0 for x in m) for m, c in dim.terms):
        return any(isinstance(x, Operation) for m, _ in dim.terms for x in m)
    return True


def _term(monomial: Monomial, coefficient: int) -> Dim:
    return product([coefficient, *map(Expr.of, monomial)])


def _smaller(atom: Operation, c: int, others: Dim, rest: Dim) -> _Ways:
    """Yields smaller expressions for `rest + c * atom * others`, where others is not negative."""
    args = atom.args
    if atom.op in ("min", "max"):
        if (atom.op == "min") == (c < 0):  # each argument is a bound
            yield from ([rest + c * others * a] for a in args)
        else:
            yield [rest + c * others * a for a in args]
    elif atom.op in ("?", "bcast"):
        yield [rest + c * others * a for a in args[-2 if atom.op == "?" else 0 :]]
    elif atom.op == "//":
        x, k = args
        if isinstance(k, int) and k > 0:
            shared = gcd(c, k)
            bound = x if c < 0 else x - (k - 1)
            scale = k // shared
            # An integer is not negative if `scale` times it is above -scale.
            yield [rest * scale + (c // shared) * others * bound + (scale - 1)]
    elif atom.op in ("<", "<=", "=="):
        yield [rest + (c * others if c < 0 else 0)]


def limits(dim: Dim) -> Interval:
    """Returns the least and the largest known value of a dim."""
    low, high = interval(dim)
    if isinstance(dim, Expr):
        low = 0 if low < 0 and nonnegative(dim) else low
        high = 0 if high > 0 and nonnegative(-dim) else high
    return low, high


def may_be(dim: Dim, value: int) -> bool:
    """Returns False if the dim never has this value: it is outside of the interval, or between the possible multiples."""
    if not isinstance(dim, Expr):
        return bool(dim == value)
    low, high = limits(dim)
    constant = sum(c for m, c in dim.terms if not m)
    step = gcd(*(c for m, c in dim.terms if m))
    return low <= value <= high and (value - constant) % step == 0


def atoms(dim: Dim) -> Iterator[Atom]:
    """Yields the atoms of the polynomial itself, without those inside of calls."""
    for monomial, _ in terms_of(dim):
        yield from monomial
