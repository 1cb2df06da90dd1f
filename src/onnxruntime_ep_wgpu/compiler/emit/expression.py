"""Expressions of pointwise operators: Python syntax in, typed WGSL out.

`where(x >= 0, x, alpha * x)` means the same for every element type: operators and functions are looked up by the type of
their operands, and a literal takes the type of what it meets. Casts are calls named after the type, `f32(x)`.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise

from ..ir import Constant
from .scalar import KINDS, Scalars
from .value import TypedValue

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
_NOT_FINITE = {"infinity": "inf", "nan": "nan"}
_ARITY = {"where": 3, **dict.fromkeys(KINDS, 1)}  # of what is no function of a type
_LITERAL = "literal"  # the kind of a number that has not met a typed operand yet


@lru_cache(maxsize=1024)
def parse(expression: str) -> ast.expr:
    return ast.parse(expression, mode="eval").body


@lru_cache(maxsize=1024)
def names_in(expression: str) -> frozenset[str]:
    """The operands, constants and functions that an expression mentions."""
    return frozenset(node.id for node in ast.walk(parse(expression)) if isinstance(node, ast.Name))


@lru_cache(maxsize=1024)
def factored(expression: str, names: frozenset[str]) -> tuple[str, str]:
    """A product `rest * name` as (rest, name), for one of `names`; anything else as (expression, "")."""
    tree = parse(expression)
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Mult):
        for factor, rest in ((tree.right, tree.left), (tree.left, tree.right)):
            if isinstance(factor, ast.Name) and factor.id in names:
                return ast.unparse(rest), factor.id
    return expression, ""


def to_wgsl(
    expression: str, names: Mapping[str, TypedValue], constants: Mapping[str, Constant], scalars: Scalars, kind: str
) -> TypedValue:
    """WGSL of an expression whose result has compute type `kind`; `names` are operands, `constants` attribute values.

    The result is as wide as the widest operand.

    Raises TypeError for what has no meaning: a name, a function or an operator that the types do not have.
    """
    try:
        value = _Emitter(names, constants, scalars).emit(parse(expression))
        if value.kind == _LITERAL:
            value = scalars.literal(_number(value.text), kind)
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
    """Raises TypeError unless `to_wgsl` can write the expression; operands are (name, kind), constants (name, type, value).

    The type of a constant is there because True equals 1.
    """
    names = {name: TypedValue(name, of) for name, of in kinds}
    to_wgsl(expression, names, {name: value for name, _, value in constants}, Scalars(int64), kind)


def _number(text: str) -> float | int:
    value = float(text) if text.removeprefix("-") in ("inf", "nan") else ast.literal_eval(text)
    return value


def _constant(value: Constant) -> TypedValue:
    if isinstance(value, bool):
        return TypedValue(str(value).lower(), "bool")
    if not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is no number")
    return TypedValue(repr(value), _LITERAL)


class _Emitter:
    def __init__(self, names: Mapping[str, TypedValue], constants: Mapping[str, Constant], scalars: Scalars) -> None:
        self.names, self.constants, self.scalars = names, constants, scalars

    def emit(self, node: ast.expr) -> TypedValue:
        if isinstance(node, ast.Constant):
            if not isinstance(node.value, (bool, int, float)):
                raise TypeError(f"{node.value!r} is no number")
            return _constant(node.value)
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            a, b = self._together(node.left, node.right)
            return self.scalars.binary(_BINARY[type(node.op)], a, b)
        if isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
            # `a < b < c` is `a < b and b < c`.
            sides = [node.left, *node.comparators]
            pairs = [self._together(a, b) for a, b in pairwise(sides)]
            return self.scalars.join(
                [self.scalars.compare(_COMPARE[type(op)], *p) for op, p in zip(node.ops, pairs, strict=True)], "&&"
            )
        if isinstance(node, ast.BoolOp):
            conditions = [self._condition(v) for v in node.values]
            return self.scalars.join(conditions, "&&" if isinstance(node.op, ast.And) else "||")
        if isinstance(node, ast.UnaryOp):
            return self._unary(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            return self._function(node.func.id, node.args)
        raise TypeError(f"no meaning for {ast.unparse(node)!r}")

    def _name(self, name: str) -> TypedValue:
        if name in self.names:
            return self.names[name]
        if name in self.constants:
            return _constant(self.constants[name])
        if name not in _NOT_FINITE:
            raise TypeError(f"{name!r} is neither an operand nor a constant")
        return TypedValue(_NOT_FINITE[name], _LITERAL)

    def _condition(self, node: ast.expr) -> TypedValue:
        value = self.emit(node)
        if value.kind != "bool":
            raise TypeError(f"{ast.unparse(node)!r} is {value.kind}, not bool")
        return value

    def _unary(self, node: ast.UnaryOp) -> TypedValue:
        if isinstance(node.op, ast.Not):
            condition = self._condition(node.operand)
            return TypedValue(f"(!{condition.text})", "bool", condition.width)
        value = self.emit(node.operand)
        if value.kind == _LITERAL and isinstance(node.op, ast.USub):
            return TypedValue(value.text[1:] if value.text.startswith("-") else "-" + value.text, _LITERAL)
        if value.kind == _LITERAL or isinstance(node.op, ast.UAdd):
            raise TypeError(f"no meaning for {ast.unparse(node)!r}")
        return self.scalars.invert(value) if isinstance(node.op, ast.Invert) else self.scalars.negate(value)

    def _function(self, name: str, args: list[ast.expr]) -> TypedValue:
        if not args or len(args) != _ARITY.get(name, len(args)):
            raise TypeError(f"{name!r} has {len(args)} arguments")
        if name == "where":
            return self.scalars.select(self._condition(args[0]), *self._together(*args[1:]))
        if name in KINDS:
            value = self.emit(args[0])
            if value.kind == _LITERAL:
                return self.scalars.literal(_number(value.text), name)
            return self.scalars.convert(value, name)
        return self.scalars.function(name, self._together(*args))

    def _together(self, *nodes: ast.expr) -> list[TypedValue]:
        """Operands of one type: literals become the type of the others, floats when there are none."""
        values = [self.emit(n) for n in nodes]
        kinds = {v.kind for v in values if v.kind != _LITERAL}
        if len(kinds) > 1:
            raise TypeError(f"operands of different types {sorted(kinds)}")
        kind = kinds.pop() if kinds else "f32"
        return [self.scalars.literal(_number(v.text), kind) if v.kind == _LITERAL else v for v in values]
