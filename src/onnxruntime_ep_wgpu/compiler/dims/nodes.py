"""Expressions over symbols: polynomials in canonical form with symbols and calls as atoms.

Invariant: each expression is one object (expressions are interned). So two dims are equal exactly if they are the same object.
Comparison and hash cost the same at any depth, and an algorithm processes a shared part once. No code in this file, and none that
works on nodes, walks an expression as a tree. Layers of a network share their dims, and such a tree doubles with every layer.

A polynomial with many terms is multiplied as one factor, so that the number of terms does not grow with the depth of a graph.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Union

from ...live import LiveMap
from ...program.program import NO_EXTENT
from . import samples
from .intervals import DIMENSION, SMALL, Interval, counted, of_call, plus, times
from .intervals import ELEMENT as ANY_ELEMENT
from .samples import Sample

Dim = Union[int, "Expr"]
"""No other types: a float would round where a shape must not, and a numpy integer wraps."""
Atom = Union["DimSymbol", "Operation"]
Monomial = tuple[Atom, ...]
Terms = tuple[tuple[Monomial, int], ...]

MOST_TERMS = 24  # of a polynomial; a monomial has at most half as many factors; longer ones become named parts
_SHOWN = 240  # characters of an expression in messages


class Rules:
    """Functions that expressions need from files which import this one. `functions` and `bounds` register theirs when the package
    loads."""

    floordiv: Callable[[Dim, Dim], Dim]
    mod: Callable[[Dim, Dim], Dim]
    nonnegative: Callable[[Dim], bool]


RULES = Rules()


class DimSymbol:
    """A dimension of an input, or an element of one."""

    __slots__ = ("__weakref__", "interval", "name", "reads_elements", "samples", "sort_key")

    def __init__(self, name: str, interval: Interval | None) -> None:
        self.name = self.sort_key = name
        self.reads_elements = name.startswith(NO_EXTENT)
        self.interval = low, high = interval or (ANY_ELEMENT if self.reads_elements else DIMENSION)
        self.samples: Sample = tuple(int(min(max(v, low), high)) for v in samples.of_name(name, self.reads_elements))

    def __repr__(self) -> str:
        return self.name


class Operation:
    """An operation that a polynomial cannot express. "=" has one argument and makes it a named part.

    `sort_key` sorts calls in the same way in every process, based on their content.
    """

    __slots__ = ("__weakref__", "args", "interval", "op", "reads_elements", "samples", "sort_key")

    def __init__(self, op: str, args: tuple[Dim, ...]) -> None:
        self.op, self.args = op, args
        arguments = "\0".join([op, *(a.sort_key if isinstance(a, Expr) else str(a) for a in args)])
        self.sort_key = "~" + blake2b(arguments.encode(), digest_size=16).hexdigest()
        self.reads_elements: bool = any(isinstance(a, Expr) and a.reads_elements for a in args)
        self.samples = samples.of_call(op, [a.samples if isinstance(a, Expr) else samples.of_number(a) for a in args])
        low, high = of_call(op, [interval(a) for a in args])
        self.interval: Interval = (max(low, 0) if low < 0 and _is_nonnegative(op, args) else low, high)

    def __repr__(self) -> str:
        return _text(Expr.of(self))


class Expr:
    """A polynomial: ((monomial, coefficient), ...), monomials sorted, never a plain constant.

    `interval` contains every value; `bounds` can prove more about the sign.
    """

    __slots__ = ("__weakref__", "_samples", "_sort_key", "interval", "proved", "reads_elements", "terms")

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.reads_elements: bool = any(x.reads_elements for m, _ in terms for x in m)
        self.interval = _interval(terms)
        # whether it is proved not to be negative; see `bounds`
        self.proved: bool | None = True if self.interval[0] >= 0 else None
        self._sort_key = ""
        self._samples: Sample | None = None

    @property
    def samples(self) -> Sample:
        if self._samples is None:
            self._samples = samples.of_terms(((x.samples for x in monomial), c) for monomial, c in self.terms)
        return self._samples

    @staticmethod
    def of(atom: Atom) -> Expr:
        return _expr((((atom,), 1),))

    @property
    def sort_key(self) -> str:
        if not self._sort_key:
            arguments = ";".join(f"{c}*{','.join(x.sort_key for x in m)}" for m, c in self.terms)
            self._sort_key = blake2b(arguments.encode(), digest_size=16).hexdigest()
        return self._sort_key

    def __add__(self, other: Dim) -> Dim:
        return _sum(self, other)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return _product(self, -1)

    def __sub__(self, other: Dim) -> Dim:
        return _sum(self, _product(other, -1))

    def __rsub__(self, other: Dim) -> Dim:
        return _sum(other, _product(self, -1))

    def __mul__(self, other: Dim) -> Dim:
        return _product(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return RULES.floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return RULES.floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return RULES.mod(self, other)

    def __bool__(self) -> bool:
        raise TypeError(f"the dimension {self} is symbolic; its truth is known only when a plan is made")

    def __repr__(self) -> str:
        return _text(self)


_KINDS = frozenset((int, Expr))


# ---- interning

_known: LiveMap[tuple[Any, ...], Any] = LiveMap()
_intern_lock = threading.Lock()  # without it, two threads could make two objects for one node, which would not be equal


def _interned(kind: Callable[..., Any], *arguments: Any) -> Any:
    key = (kind, *arguments)
    found = _known.get(key)
    if found is None:
        made = kind(*arguments)  # may intern other nodes
        with _intern_lock:
            found = _known.get(key)
            if found is None:
                _known.set(key, made)
                found = made
    return found


def _expr(terms: Terms) -> Expr:
    made: Expr = _interned(Expr, terms)
    return made


def symbol(name: str, within: Interval | None = None) -> Expr:
    """Returns a symbol with values in `within`. By default the name decides: a dimension, or any 64-bit integer."""
    return Expr.of(_interned(DimSymbol, name, within))


def call(op: str, *args: Dim) -> Expr:
    """Returns the call as an expression. The arguments must already be in canonical order and form."""
    return Expr.of(_interned(Operation, op, args))


# ---- text


def _text(dim: Dim) -> str:
    """Returns a dim as text for messages; long expressions are cut."""
    return _cut(dim, _SHOWN)


def _cut(dim: Dim, room: int) -> str:
    """Returns the text in about `room` characters, with "..." for omitted parts."""
    if not isinstance(dim, Expr):
        return str(dim)
    parts: list[str] = []
    for monomial, coefficient in dim.terms:
        if room <= 0:
            parts.append("...")
            break
        factors = [str(coefficient)] if coefficient != 1 or not monomial else []
        for atom in monomial:
            factors.append(_atom_text(atom, room))
            room -= len(factors[-1])
        parts.append("*".join(factors))
    return " + ".join(parts).replace("+ -", "- ")


def _atom_text(atom: Atom, room: int) -> str:
    if isinstance(atom, DimSymbol):
        return atom.name
    if room <= 16:
        return "(...)"
    texts = []
    for arg in atom.args:
        texts.append(_cut(arg, room // 2))
        room -= len(texts[-1])
    if atom.op == "=":
        return f"({texts[0]})"
    if atom.op in ("//", "%", "<", "<=", "=="):
        left, right = (
            f"({t})" if isinstance(a, Expr) and len(a.terms) > 1 else t for a, t in zip(atom.args, texts, strict=True)
        )
        return f"({left} {atom.op} {right})"
    return f"{atom.op}({', '.join(texts)})"


# ---- facts computed at construction


def interval(dim: Dim) -> Interval:
    """Returns an interval that contains every value of a dim."""
    return dim.interval if isinstance(dim, Expr) else (dim, dim)


def _interval(terms: Terms) -> Interval:
    total: Interval = (0, 0)
    for monomial, coefficient in terms:
        if len(monomial) == 1:
            low, high = monomial[0].interval
            if low > -SMALL and high < SMALL and -SMALL < coefficient < SMALL:  # common; needs no overflow checks
                ends = (
                    (low * coefficient, high * coefficient)
                    if coefficient > 0
                    else (high * coefficient, low * coefficient)
                )
                total = plus(total, ends)
                continue
        elif not monomial:
            total = plus(total, (coefficient, coefficient))
            continue
        elements: Interval = (1, 1)
        other: Interval = (coefficient, coefficient)
        for atom in monomial:
            if isinstance(atom, DimSymbol) and atom.interval[0] >= 0:
                elements = counted(elements, atom.interval)
            else:
                other = times(other, atom.interval)
        total = plus(total, times(elements, other))
    return total


def _is_nonnegative(op: str, args: tuple[Dim, ...]) -> bool:
    if op == "max":
        return any(map(RULES.nonnegative, args))
    return all(map(RULES.nonnegative, args[1:] if op in ("%", "?") else args))


def reads_elements(dim: Dim) -> bool:
    """Returns True if the value depends on elements of an input. These may be negative, and a plan needs their values."""
    return isinstance(dim, Expr) and dim.reads_elements


def are_dims(values: Iterable[object]) -> bool:
    """Returns whether all values are dims, by their types."""
    return _KINDS.issuperset(map(type, values))


# ---- arithmetic


def terms_of(value: Dim) -> Terms:
    return value.terms if isinstance(value, Expr) else (((), value),) if value else ()


def _sort_key(term: tuple[Monomial, int]) -> tuple[int, list[str]]:
    return len(term[0]), [x.sort_key for x in term[0]]


def from_terms(terms: dict[Monomial, int]) -> Dim:
    kept = [t for t in terms.items() if t[1]]
    if not kept:
        return 0
    if len(kept) == 1:
        return _expr(tuple(kept)) if kept[0][0] else kept[0][1]
    return _expr(tuple(sorted(kept, key=_sort_key, reverse=True)))


def opaque(value: Dim) -> Dim:
    """Returns the value as one atom that the algebra does not expand."""
    if not isinstance(value, Expr) or (
        len(value.terms) == 1 and value.terms[0][1] == 1 and len(value.terms[0][0]) == 1
    ):
        return value
    return call("=", value)


def product(dims: Iterable[Dim]) -> Dim:
    result: Dim = 1
    for d in dims:
        result = _product(result, d)
    return result


@lru_cache(maxsize=16384, typed=True)
def _sum(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    out = dict(terms_of(a))
    for monomial, coefficient in terms_of(b):
        out[monomial] = out.get(monomial, 0) + coefficient
    if len(out) > MOST_TERMS:
        longer, other = (a, b) if len(terms_of(a)) >= len(terms_of(b)) else (b, a)
        result = from_terms(out)
        return result if len(terms_of(result)) <= MOST_TERMS else _sum(opaque(longer), other)
    return from_terms(out)


@lru_cache(maxsize=16384, typed=True)
def _product(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    left, right = terms_of(a), terms_of(b)
    if len(left) > 1 and len(right) > 1 and len(left) * len(right) > MOST_TERMS:
        return _product(opaque(a), b) if len(left) >= len(right) else _product(a, opaque(b))
    out: dict[Monomial, int] = {}
    for ma, ca in left:
        for mb, cb in right:
            if len(ma) + len(mb) > MOST_TERMS // 2:
                return _product(opaque(a), opaque(b))
            monomial = tuple(sorted((*ma, *mb), key=lambda x: x.sort_key)) if ma and mb else ma or mb
            out[monomial] = out.get(monomial, 0) + ca * cb
    return from_terms(out)


def quotient(a: Dim, b: Dim) -> Dim | None:
    """Returns a / b if b divides a for every value of the symbols, else None."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b and a % b == 0 else None
    return _quotient(a, b)


@lru_cache(maxsize=16384, typed=True)
def _quotient(a: Dim, b: Dim) -> Dim | None:
    """Long division of polynomials without remainder."""
    divisor = terms_of(b)
    if not divisor:
        return None
    (leading, coefficient), *more = divisor
    out: dict[Monomial, int] = {}
    rest = terms_of(a)
    while rest:
        monomial, c = rest[0]
        left = list(monomial)
        for atom in leading:
            if atom not in left:
                return None
            left.remove(atom)
        if c % coefficient:
            return None
        part = {tuple(left): c // coefficient}
        out |= part
        if not more:
            rest = rest[1:]
        elif len(out) > MOST_TERMS:
            return None
        else:
            rest = terms_of(_sum(from_terms(dict(rest)), _product(from_terms(part), _product(b, -1))))
    return from_terms(out)
