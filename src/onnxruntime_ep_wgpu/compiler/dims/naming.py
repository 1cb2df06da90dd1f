"""Converts dims to postfix form, with names for long parts: the last step of the algebra for a Program.

In: dims, one after the other. Out: for each a postfix expression of at most about LONGEST tokens; the definitions these use, each
before its users; and the symbols. Every part is visited once, so work and text are linear in the number of distinct parts,
regardless of how often each part is used.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...program.postfix import Postfix
from .bounds import atoms
from .nodes import Atom, Dim, DimSymbol, Expr, Operation

LONGEST = 32  # tokens of an expression without a name; half as many for a call, since several expressions may share it

_Tokens = tuple[int | str, ...]


class Names:
    """All dims so far. `definitions`: (name, expression) pairs; `symbols`: the names of all symbols read."""

    def __init__(self, longest: float = LONGEST) -> None:
        self.longest = longest
        self.definitions: list[tuple[str, Postfix]] = []
        self.symbols: dict[str, None] = {}
        self._tokens: dict[Atom | Expr, _Tokens] = {}

    def of(self, dim: Dim) -> Postfix:
        """Returns the postfix form of a dim; equal dims have equal forms."""
        if not isinstance(dim, Expr):
            return int(dim)
        if dim in self._tokens:
            return self._tokens[dim]
        pending: list[tuple[Atom | Expr, Iterator[Atom | Expr]]] = [(dim, _parts(dim))]
        while pending:
            node, parts = pending[-1]
            part = next((p for p in parts if p not in self._tokens), None)
            if part is not None:
                pending.append((part, _parts(part)))
            else:
                pending.pop()
                longest = self.longest / 2 if isinstance(node, Operation) else self.longest
                self._tokens[node] = self._named_if_long(self._text(node), longest)
        return self._tokens[dim]

    def _named_if_long(self, tokens: _Tokens, longest: float) -> _Tokens:
        if len(tokens) <= longest:
            return tokens
        name = f"={len(self.definitions)}"
        self.definitions.append((name, tokens))
        return (f"${name}",)

    def _text(self, node: Atom | Expr) -> _Tokens:
        """Returns the tokens of a node; its parts already have tokens."""
        if isinstance(node, DimSymbol):
            self.symbols.setdefault(node.name)
            return (f"${node.name}",)
        if isinstance(node, Operation):
            return self._call(node)
        out: list[int | str] = []
        for k, (monomial, coefficient) in enumerate(node.terms):
            factors: list[_Tokens] = [(coefficient,)] if coefficient != 1 or not monomial else []
            factors += [self._tokens[atom] for atom in monomial]
            for n, factor in enumerate(factors):
                out += [*factor, "*"] if n else factor
            if k:
                out.append("+")
        return tuple(out)

    def _call(self, node: Operation) -> _Tokens:
        args = [self._tokens[arg] if isinstance(arg, Expr) else (arg,) for arg in node.args]
        if node.op == "=":
            return args[0]
        if node.op == "?":
            return (*args[0], *args[1], *args[2], "?")
        out = list(args[0])
        for arg in args[1:]:  # minimum, maximum and broadcast have two or more
            out += [*arg, node.op]
        return tuple(out)


def _parts(node: Atom | Expr) -> Iterator[Atom | Expr]:
    if isinstance(node, Operation):
        return (arg for arg in node.args if isinstance(arg, Expr))
    return iter(()) if isinstance(node, DimSymbol) else atoms(node)


def symbols_of(dim: Dim) -> set[str]:
    """Returns the names of the symbols in a dim."""
    found: set[str] = set()
    seen: set[Atom | Expr] = set()
    pending: list[Atom | Expr] = [dim] if isinstance(dim, Expr) else []
    while pending:
        node = pending.pop()
        if isinstance(node, DimSymbol):
            found.add(node.name)
        elif node not in seen:
            seen.add(node)
            pending += _parts(node)
    return found


def to_postfix(dim: Dim) -> Postfix:
    """`batch * 12 + 1` becomes ("$batch", 12, "*", 1, "+"); an int stays an int. For small dims: no part gets a name."""
    return Names(float("inf")).of(dim)
