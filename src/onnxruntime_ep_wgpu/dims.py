"""Dimensions: integers or exact expressions over named symbols, and their postfix form.

While a graph is lowered a `Dim` is an int or an `Expr`, a polynomial in canonical form, so that two dims are equal
exactly when they compare equal. A Program holds the postfix form (`("$batch", 12, "*")`), which needs no algebra to be
evaluated: `compile_dims` turns many of them into one straight-line Python function.

Symbols stand for dimensions or elements of small integer inputs. Dimensions are never negative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Union

Dim = Union[int, "Expr"]
Postfix = int | tuple[int | str, ...]

LARGEST = 2**31 - 1  # no dimension reaches it; ONNX uses larger numbers for "to the end"

Atom = Union[str, "Call"]
Monomial = tuple[Atom, ...]


@dataclass(frozen=True)
class Call:
    """An operation that a polynomial cannot express: floor division, modulo, minimum, comparison..."""

    op: str
    args: tuple[Dim, ...]

    def __lt__(self, other: object) -> bool:
        return repr(self) < repr(other)


@dataclass(frozen=True)
class Expr:
    """A polynomial: ((monomial, coefficient), ...), monomials sorted, never a plain constant."""

    terms: tuple[tuple[Monomial, int], ...]

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
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return mod(self, other)

    def __bool__(self) -> bool:
        raise TypeError(f"the dimension {self} is symbolic; its truth is known only when a plan is made")

    def __str__(self) -> str:
        return " + ".join(_term_text(m, c) for m, c in self.terms).replace("+ -", "- ")


_INFIX = ("//", "%", "<", "<=", "==")


def _term_text(monomial: Monomial, coefficient: int) -> str:
    factors = [atom if isinstance(atom, str) else _call_text(atom) for atom in monomial]
    if coefficient != 1 or not factors:
        factors.insert(0, str(coefficient))
    return "*".join(factors)


def _call_text(call: Call) -> str:
    if call.op in _INFIX:
        return "({} {} {})".format(*(_operand_text(call.args[0]), call.op, _operand_text(call.args[1])))
    return f"{call.op}({', '.join(map(str, call.args))})"


def _operand_text(dim: Dim) -> str:
    return f"({dim})" if isinstance(dim, Expr) and len(dim.terms) > 1 else str(dim)


def symbol(name: str) -> Expr:
    return Expr((((name,), 1),))


def product(dims: Iterable[Dim]) -> Dim:
    result: Dim = 1
    for d in dims:
        result = _product(result, d)
    return result


def _terms(value: Dim) -> tuple[tuple[Monomial, int], ...]:
    return value.terms if isinstance(value, Expr) else (((), value),) if value else ()


def _order(monomial: Monomial) -> tuple[int, tuple[str, ...]]:
    return len(monomial), tuple(map(str, monomial))


def _from(terms: dict[Monomial, int]) -> Dim:
    kept = tuple(sorted(((m, c) for m, c in terms.items() if c), key=lambda t: _order(t[0]), reverse=True))
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    return Expr(kept)


@lru_cache(maxsize=16384)
def _sum(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    out = dict(_terms(a))
    for monomial, coefficient in _terms(b):
        out[monomial] = out.get(monomial, 0) + coefficient
    return _from(out)


@lru_cache(maxsize=16384)
def _product(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    out: dict[Monomial, int] = {}
    for ma, ca in _terms(a):
        for mb, cb in _terms(b):
            monomial = tuple(sorted((*ma, *mb), key=str))
            out[monomial] = out.get(monomial, 0) + ca * cb
    return _from(out)


def quotient(a: Dim, b: Dim) -> Dim | None:
    """a / b when it divides for every value of the symbols, else None. b is a constant or one monomial."""
    divisor = _terms(b)
    if len(divisor) != 1:
        return 1 if a == b and divisor else None
    (monomial, coefficient) = divisor[0]
    out: dict[Monomial, int] = {}
    for m, c in _terms(a):
        rest = list(m)
        for atom in monomial:
            if atom not in rest:
                return None
            rest.remove(atom)
        if c % coefficient:
            return None
        out[tuple(rest)] = c // coefficient
    return _from(out)


def _call(op: str, *args: Dim) -> Dim:
    if all(isinstance(a, int) for a in args):
        return int(_OPS[op](*args))
    return Expr((((Call(op, args),), 1),))


def _nonnegative(a: Dim) -> bool:
    """True when `a` cannot be negative because it is a sum of products of dimensions."""
    return all(c >= 0 and all(_nonnegative_atom(x) for x in m) for m, c in _terms(a))


def _nonnegative_atom(x: Atom) -> bool:
    if isinstance(x, str):
        return not x.startswith("@")
    if x.op == "max":
        return any(_nonnegative(y) for y in x.args)
    return x.op in ("min", "//", "%", "bcast", "<", "<=", "==") and all(_nonnegative(y) for y in x.args)


def floordiv(a: Dim, b: Dim) -> Dim:
    """Division rounded towards minus infinity. Multiples of a constant divisor are divided by themselves, so that
    (n - 1) // 2 + 1 and (n + 1) // 2 are the same dim, which is seen not to be negative."""
    exact = quotient(a, b) if b != 0 else None
    if exact is not None:
        return exact
    if not isinstance(b, int) or b <= 1 or isinstance(a, int):
        return _call("//", a, b)
    whole = _from({m: c // b for m, c in a.terms if not m or c % b == 0})
    rest = a - whole * b
    return whole + (rest // b if isinstance(rest, int) else _call("//", rest, b))


def truncdiv(a: Dim, b: Dim) -> Dim:
    """Division rounded towards zero, as ONNX divides integers."""
    exact = quotient(a, b) if b != 0 else None
    if exact is not None:
        return exact
    return _call("//" if _nonnegative(a) and _nonnegative(b) else "tdiv", a, b)


def ceildiv(a: Dim, b: int) -> Dim:
    return floordiv(a + (b - 1), b)


def mod(a: Dim, b: Dim) -> Dim:
    if b != 0 and quotient(a, b) is not None:
        return 0
    return _call("%", a, b)


def minimum(a: Dim, b: Dim) -> Dim:
    if a == b or (isinstance(b, int) and b >= LARGEST):
        return a
    if isinstance(a, int) and a >= LARGEST:
        return b
    if _nonnegative(b - a):
        return a
    return b if _nonnegative(a - b) else _call("min", a, b)


def maximum(a: Dim, b: Dim) -> Dim:
    if _nonnegative(a - b):
        return a
    return b if _nonnegative(b - a) else _call("max", a, b)


def less(a: Dim, b: Dim) -> Dim:
    """1 when a < b, else 0."""
    return 0 if _nonnegative(a - b) else _call("<", a, b)


def less_equal(a: Dim, b: Dim) -> Dim:
    return 1 if _nonnegative(b - a) else _call("<=", a, b)


def equal(a: Dim, b: Dim) -> Dim:
    difference = a - b
    if isinstance(difference, int):
        return int(difference == 0)
    return _call("==", a, b)


def select(condition: Dim, yes: Dim, no: Dim) -> Dim:
    """`yes` when the condition is not 0."""
    if yes == no:
        return yes
    if isinstance(condition, int):
        return yes if condition else no
    return _call("?", condition, yes, no)


def broadcast(a: Dim, b: Dim) -> Dim:
    """The dimension of two operands that broadcast: the one that is not 1."""
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if isinstance(a, int):
        return a
    if isinstance(b, int):
        return b
    # A slice of a longer table: it is either as long as `a` or too short, which is checked when a plan is made.
    if _is_cut(b, a):
        return a
    return b if _is_cut(a, b) else _call("bcast", a, b)


def _is_cut(a: Dim, b: Dim) -> bool:
    """True when `a` is min(b, a constant above 1)."""
    (monomial, coefficient), *more = _terms(a) or [((), 0)]
    if more or coefficient != 1 or len(monomial) != 1:
        return False
    (atom,) = monomial
    if not isinstance(atom, Call) or atom.op != "min" or b not in atom.args:
        return False
    return any(isinstance(limit, int) and limit > 1 for limit in atom.args)


def _tdiv(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_OPS: dict[str, Callable[..., int]] = {
    "//": lambda a, b: a // b if b else 0,
    "%": lambda a, b: a % b if b else 0,
    "tdiv": lambda a, b: _tdiv(a, b) if b else 0,
    "min": min,
    "max": max,
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    "==": lambda a, b: int(a == b),
    "?": lambda c, a, b: a if c else b,
    "bcast": lambda a, b: b if a == 1 else a,
}
_SOURCE = {
    "+": "({} + {})",
    "*": "({} * {})",
    "min": "min({}, {})",
    "max": "max({}, {})",
    "<": "({} < {})",
    "<=": "({} <= {})",
    "==": "({} == {})",
    "?": "({1} if {0} else {2})",
    "//": "floordiv({}, {})",
    "%": "mod({}, {})",
    "tdiv": "tdiv({}, {})",
    "bcast": "bcast({}, {})",
}
_ARITY = {"?": 3}


def to_postfix(dim: Dim) -> Postfix:
    """`batch * 12 + 1` becomes ("$batch", 12, "*", 1, "+"); an int stays an int."""
    if isinstance(dim, int):
        return dim
    out: list[int | str] = []
    for k, (monomial, coefficient) in enumerate(dim.terms):
        first = True
        if coefficient != 1 or not monomial:
            out.append(coefficient)
            first = False
        for atom in monomial:
            if isinstance(atom, str):
                out.append("$" + atom)
            else:
                for arg in atom.args:
                    inner = to_postfix(arg)
                    out.extend((inner,) if isinstance(inner, int) else inner)
                out.append(atom.op)
            if not first:
                out.append("*")
            first = False
        if k:
            out.append("+")
    return tuple(out)


@lru_cache(maxsize=16384)
def length(dim: Dim) -> int:
    """Tokens in the postfix form of a dim."""
    return 1 if isinstance(dim, int) else sum(_monomial_length(m) for m, _ in dim.terms)


def _monomial_length(monomial: Monomial) -> int:
    return 2 + sum(2 if isinstance(a, str) else 1 + sum(map(length, a.args)) for a in monomial)


def compile_dims(
    dims: Sequence[Postfix], symbols: Sequence[str], definitions: Sequence[tuple[str, Postfix]] = ()
) -> Callable[[Sequence[int]], list[int]]:
    """One straight-line function from the values of `symbols` to the values of `dims`; equal parts are computed once.

    `definitions` are further symbols, each given by an expression over the symbols and definitions before it.
    """
    index = {"$" + name: f"s[{i}]" for i, name in enumerate(symbols)}
    lines: list[str] = []
    known: dict[str, str] = {}

    def emit(postfix: Postfix) -> str:
        if isinstance(postfix, int):
            return str(postfix)
        stack: list[str] = []
        for token in postfix:
            if isinstance(token, int):
                stack.append(str(token))
            elif token in index:
                stack.append(index[token])
            elif token.startswith("$"):
                raise KeyError(f"the dimension {token[1:]!r} is not defined by any input")
            else:
                count = _ARITY.get(token, 2)
                source = _SOURCE[token].format(*stack[-count:])
                del stack[-count:]
                if source not in known:
                    known[source] = f"t{len(known)}"
                    lines.append(f"    {known[source]} = {source}")
                stack.append(known[source])
        (result,) = stack
        return result

    for name, postfix in definitions:
        index["$" + name] = emit(postfix)
    results = [emit(d) for d in dims]
    source = "\n".join(["def evaluate(s):", *lines, f"    return [{', '.join(results)}]"])
    scope: dict[str, Callable[..., object]] = {
        "floordiv": _OPS["//"],
        "mod": _OPS["%"],
        "tdiv": _OPS["tdiv"],
        "bcast": _OPS["bcast"],
        "min": min,
        "max": max,
    }
    exec(source, scope)
    return scope["evaluate"]  # type: ignore[return-value]
