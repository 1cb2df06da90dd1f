"""Expressions of pointwise operators: Python syntax in, typed WGSL out.

`where(x >= 0, x, alpha * x)` means the same for every element type: operators and functions are looked up by the type of
their operands, and a literal takes the type of what it meets. Casts are calls named after the type, `f32(x)`.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import lru_cache

from ..lowered import Constant
from .scalar import Scalars
from .value import Value

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
_CASTS = ("f32", "i32", "u32", "i64", "u64", "bool")
_LITERAL = "literal"  # the kind of a number that has not met a typed operand yet
# Functions whose result is of another type than their operands.
_RESULTS = {"isnan": "bool", "isinf": "bool", "signbit": "bool", "ordered": "u32", "narrow": "i32"}


@lru_cache(maxsize=1024)
def parse(expression: str) -> ast.expr:
    return ast.parse(expression, mode="eval").body


@lru_cache(maxsize=1024)
def names_in(expression: str) -> frozenset[str]:
    """The operands, constants and functions that an expression mentions."""
    return frozenset(node.id for node in ast.walk(parse(expression)) if isinstance(node, ast.Name))


def to_wgsl(
    expression: str, names: Mapping[str, Value], constants: Mapping[str, Constant], scalars: Scalars, kind: str
) -> str:
    """WGSL of an expression whose result has compute type `kind`; `names` are operands, `constants` attribute values."""
    value = _Emitter(names, constants, scalars).emit(parse(expression))
    if value.kind == _LITERAL:
        return scalars.literal(_number(value.text), kind)
    if value.kind != kind:
        raise TypeError(f"{expression!r} gives {value.kind}, its output is {kind}")
    return value.text


def _number(text: str) -> float | int:
    value = ast.literal_eval(text) if text not in ("inf", "-inf", "nan") else float(text)
    return value


def _constant(value: Constant) -> Value:
    return Value(str(value).lower(), "bool") if isinstance(value, bool) else Value(repr(value), _LITERAL)


class _Emitter:
    def __init__(self, names: Mapping[str, Value], constants: Mapping[str, Constant], scalars: Scalars) -> None:
        self.names, self.constants, self.scalars = names, constants, scalars

    def emit(self, node: ast.expr) -> Value:
        if isinstance(node, ast.Constant):
            if not isinstance(node.value, (bool, int, float)):
                raise TypeError(f"no meaning for {node.value!r}")
            return _constant(node.value)
        if isinstance(node, ast.Name):
            if node.id in self.names:
                return self.names[node.id]
            if node.id == "infinity":
                return Value("inf", _LITERAL)
            if node.id == "nan":
                return Value("nan", _LITERAL)
            return _constant(self.constants[node.id])
        if isinstance(node, ast.BinOp):
            (a, b), kind = self._together(node.left, node.right)
            return Value(self.scalars.binary(_BINARY[type(node.op)], a, b, kind), kind)
        if isinstance(node, ast.Compare):
            (a, b), kind = self._together(node.left, node.comparators[0])
            return Value(self.scalars.compare(_COMPARE[type(node.ops[0])], a, b, kind), "bool")
        if isinstance(node, ast.BoolOp):
            parts = [self.emit(v).text for v in node.values]
            return Value("(" + (" && " if isinstance(node.op, ast.And) else " || ").join(parts) + ")", "bool")
        if isinstance(node, ast.UnaryOp):
            return self._unary(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._function(node.func.id, list(node.args))
        raise TypeError(f"no meaning for {ast.dump(node)}")

    def _unary(self, node: ast.UnaryOp) -> Value:
        operand = self.emit(node.operand)
        text, kind = operand.text, operand.kind
        if isinstance(node.op, ast.Not):
            return Value(f"(!{text})", "bool")
        if isinstance(node.op, ast.Invert):
            return Value(f"(~{text})", kind)
        if kind == _LITERAL:
            return Value(text[1:] if text.startswith("-") else "-" + text, kind)
        return Value(self.scalars.negate(text, kind), kind)

    def _function(self, name: str, args: list[ast.expr]) -> Value:
        if name == "where":
            (yes, no), kind = self._together(args[1], args[2])
            return Value(self.scalars.select(self.emit(args[0]).text, yes, no), kind)
        if name in _CASTS:
            value = self.emit(args[0])
            if value.kind == _LITERAL:
                return Value(self.scalars.literal(_number(value.text), name), name)
            return Value(self.scalars.convert(value.text, value.kind, name), name)
        texts, kind = self._together(*args)
        return Value(self.scalars.function(name, list(texts), kind), _RESULTS.get(name, kind))

    def _together(self, *nodes: ast.expr) -> tuple[tuple[str, ...], str]:
        """Operands of one type: literals become the type of the others, floats when there are none."""
        values = [self.emit(n) for n in nodes]
        kinds = {v.kind for v in values if v.kind != _LITERAL}
        if len(kinds) > 1:
            raise TypeError(f"operands of different types {sorted(kinds)}")
        kind = kinds.pop() if kinds else "f32"
        return tuple(
            self.scalars.literal(_number(v.text), kind) if v.kind == _LITERAL else v.text for v in values
        ), kind
