"""Expressions of pointwise operators, in Python syntax. The kinds of the operands define their meaning.

`where(x >= 0, x, alpha * x)` works for every element type. The kind of the operands selects operators and functions. A literal
takes the kind of the other operand. Casts are calls with the name of the kind, `f32(x)`.

In: an expression, and `Operations` on values of some class with kinds. Out: a value. The operations in `emit/` write WGSL. Those
of `Checked` write nothing, so that lowering can reject an invalid expression.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar, Generic, Protocol, TypeVar

from ...records import dataclass
from ..templates.preprocess import Constant
from .kinds import KINDS, Kinds

_BINARY = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Mod: "%",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
_COMPARE = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_NOT_FINITE = {"infinity": float("inf"), "nan": float("nan")}
_ARITY = {"where": 3, **dict.fromkeys(KINDS, 1)}  # for names that are not functions of a kind


@lru_cache(maxsize=1024)
def parse(expression: str) -> ast.expr:
    return ast.parse(expression, mode="eval").body


@lru_cache(maxsize=1024)
def names_in(expression: str) -> frozenset[str]:
    """Returns the operands, constants and functions that an expression mentions."""
    return frozenset(node.id for node in ast.walk(parse(expression)) if isinstance(node, ast.Name))


@lru_cache(maxsize=1024)
def factored(expression: str, names: frozenset[str]) -> tuple[str, str]:
    """Splits a product `rest * name` into (rest, name) for one of `names`. Returns (expression, "") for anything else."""
    tree = parse(expression)
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Mult):
        for factor, rest in ((tree.right, tree.left), (tree.left, tree.right)):
            if isinstance(factor, ast.Name) and factor.id in names:
                return ast.unparse(rest), factor.id
    return expression, ""


def spelled(value: float | int | bool) -> str:
    """Returns a number as an expression."""
    return repr(value).replace("inf", "infinity")


class Typed(Protocol):
    @property
    def kind(self) -> str: ...


V = TypeVar("V", bound=Typed)


class Operations(Protocol[V]):
    """Operations on values. Two operands have the same kind. Each raises TypeError if the kind lacks the operation."""

    def literal(self, value: float | int | bool, kind: str) -> V: ...
    def boolean(self, value: bool) -> V: ...
    def binary(self, operator: str, a: V, b: V) -> V: ...
    def compare(self, operator: str, a: V, b: V) -> V: ...
    def join(self, conditions: Sequence[V], operator: str) -> V: ...
    def opposite(self, condition: V) -> V: ...
    def negate(self, a: V) -> V: ...
    def invert(self, a: V) -> V: ...
    def function(self, name: str, arguments: Sequence[V]) -> V: ...
    def select(self, condition: V, yes: V, no: V) -> V: ...
    def convert(self, a: V, kind: str) -> V: ...


def evaluated(
    expression: str, names: Mapping[str, V], constants: Mapping[str, Constant], operations: Operations[V], kind: str
) -> V:
    """Returns the value of an expression with the result kind `kind`. `names` are operands, `constants` attribute values.

    Raises TypeError for an unknown name, function or operator.
    """
    try:
        found = _Evaluation(names, constants, operations).of(parse(expression))
        value = operations.literal(found.value, kind) if isinstance(found, _Literal) else found
    except TypeError as error:
        raise TypeError(f"{expression!r}: {error}") from error
    if value.kind != kind:
        raise TypeError(f"{expression!r} gives {value.kind}, its output is {kind}")
    return value


@lru_cache(maxsize=4096)
def check_expression(
    expression: str,
    kinds: tuple[tuple[str, str], ...],
    constants: tuple[tuple[str, str, Constant], ...],
    int64: str,
    kind: str,
) -> None:
    """Raises TypeError for an invalid expression. Operands are (name, kind), constants (name, type, value).

    The type of a constant is part of the cache key because True equals 1.
    """
    names = {name: OfKind(of) for name, of in kinds}
    evaluated(expression, names, {name: value for name, _, value in constants}, Checked(int64), kind)


@dataclass(frozen=True)
class _Literal:
    """A number without a kind so far."""

    value: float | int
    kind: ClassVar[str] = "literal"


class _Evaluation(Generic[V]):
    def __init__(self, names: Mapping[str, V], constants: Mapping[str, Constant], operations: Operations[V]) -> None:
        self.names, self.constants, self.operations = names, constants, operations

    def of(self, node: ast.expr) -> V | _Literal:
        if isinstance(node, ast.Constant):
            return self._constant(node.value)
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            a, b = self._unified(node.left, node.right)
            return self.operations.binary(_BINARY[type(node.op)], a, b)
        if isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
            # `a < b < c` is `a < b and b < c`.
            sides = [node.left, *node.comparators]
            pairs = [self._unified(a, b) for a, b in pairwise(sides)]
            return self.operations.join(
                [self.operations.compare(_COMPARE[type(op)], *p) for op, p in zip(node.ops, pairs, strict=True)], "&&"
            )
        if isinstance(node, ast.BoolOp):
            conditions = [self._condition(v) for v in node.values]
            return self.operations.join(conditions, "&&" if isinstance(node.op, ast.And) else "||")
        if isinstance(node, ast.UnaryOp):
            return self._unary(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return self._function(node.func.id, node.args)
        raise TypeError(f"no meaning for {ast.unparse(node)!r}")

    def _constant(self, value: object) -> V | _Literal:
        if isinstance(value, bool):
            return self.operations.boolean(value)
        if not isinstance(value, (int, float)):
            raise TypeError(f"{value!r} is not a number")
        return _Literal(value)

    def _name(self, name: str) -> V | _Literal:
        if name in self.names:
            return self.names[name]
        if name in self.constants:
            return self._constant(self.constants[name])
        if name not in _NOT_FINITE:
            raise TypeError(f"{name!r} is neither an operand nor a constant")
        return _Literal(_NOT_FINITE[name])

    def _condition(self, node: ast.expr) -> V:
        value = self.of(node)
        if isinstance(value, _Literal) or value.kind != "bool":
            raise TypeError(f"{ast.unparse(node)!r} is {value.kind}, not bool")
        return value

    def _unary(self, node: ast.UnaryOp) -> V | _Literal:
        if isinstance(node.op, ast.Not):
            return self.operations.opposite(self._condition(node.operand))
        value = self.of(node.operand)
        if isinstance(value, _Literal):
            if isinstance(node.op, ast.USub):
                return _Literal(-value.value)
            raise TypeError(f"no meaning for {ast.unparse(node)!r}")
        if isinstance(node.op, ast.UAdd):
            raise TypeError(f"no meaning for {ast.unparse(node)!r}")
        return self.operations.invert(value) if isinstance(node.op, ast.Invert) else self.operations.negate(value)

    def _function(self, name: str, args: list[ast.expr]) -> V:
        if not args or len(args) != _ARITY.get(name, len(args)):
            raise TypeError(f"{name!r} has {len(args)} arguments")
        if name == "where":
            return self.operations.select(self._condition(args[0]), *self._unified(*args[1:]))
        if name in KINDS:
            value = self.of(args[0])
            if isinstance(value, _Literal):
                return self.operations.literal(value.value, name)
            return self.operations.convert(value, name)
        return self.operations.function(name, self._unified(*args))

    def _unified(self, *nodes: ast.expr) -> list[V]:
        """Returns operands of one kind. Literals take the kind of the others, or f32 if there are none."""
        values = [self.of(n) for n in nodes]
        kinds = {v.kind for v in values if not isinstance(v, _Literal)}
        if len(kinds) > 1:
            raise TypeError(f"operands of different types {sorted(kinds)}")
        kind = kinds.pop() if kinds else "f32"
        return [self.operations.literal(v.value, kind) if isinstance(v, _Literal) else v for v in values]


@dataclass(frozen=True)
class OfKind:
    """A value with only a kind."""

    kind: str


class Checked(Kinds):
    """Operations that only determine the kinds of results."""

    def literal(self, value: float | int | bool, kind: str) -> OfKind:
        self.check_literal(value, kind)
        return OfKind(kind)

    def boolean(self, value: bool) -> OfKind:
        return OfKind("bool")

    def binary(self, operator: str, a: OfKind, b: OfKind) -> OfKind:
        self.check_operator(operator, a.kind)
        return a

    def compare(self, operator: str, a: OfKind, b: OfKind) -> OfKind:
        self.check_comparison(operator, a.kind)
        return OfKind("bool")

    def join(self, conditions: Sequence[OfKind], operator: str) -> OfKind:
        return OfKind("bool")

    def opposite(self, condition: OfKind) -> OfKind:
        return condition

    def negate(self, a: OfKind) -> OfKind:
        self.check_sign(a.kind)
        return a

    def invert(self, a: OfKind) -> OfKind:
        self.check_bits(a.kind)
        return a

    def function(self, name: str, arguments: Sequence[OfKind]) -> OfKind:
        return OfKind(self.called(name, arguments[0].kind, len(arguments)).result)

    def select(self, condition: OfKind, yes: OfKind, no: OfKind) -> OfKind:
        self.check_condition(condition.kind)
        return yes

    def convert(self, a: OfKind, kind: str) -> OfKind:
        self.check_conversion(a.kind, kind)
        return OfKind(kind)
