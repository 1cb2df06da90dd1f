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
_RESULTS = {"isnan": "bool", "isinf": "bool", "signbit": "bool", "ordered": "u32"}

Typed = tuple[str, str]  # WGSL text, compute type


@lru_cache(maxsize=1024)
def parse(expression: str) -> ast.expr:
    return ast.parse(expression, mode="eval").body


def to_wgsl(
    expression: str, names: Mapping[str, Typed], constants: Mapping[str, Constant], scalars: Scalars, kind: str
) -> str:
    """WGSL of an expression whose result has compute type `kind`; `names` are operands, `constants` attribute values."""
    text, have = _Emitter(names, constants, scalars).emit(parse(expression))
    if have == _LITERAL:
        return scalars.literal(_number(text), kind)
    if have != kind:
        raise TypeError(f"{expression!r} gives {have}, its output is {kind}")
    return text


def _number(text: str) -> float | int:
    value = ast.literal_eval(text) if text not in ("inf", "-inf", "nan") else float(text)
    return value


class _Emitter:
    def __init__(self, names: Mapping[str, Typed], constants: Mapping[str, Constant], scalars: Scalars) -> None:
        self.names, self.constants, self.scalars = names, constants, scalars

    def emit(self, node: ast.expr) -> Typed:
        if isinstance(node, ast.Constant):
            return (
                ("true" if node.value else "false", "bool")
                if isinstance(node.value, bool)
                else (repr(node.value), _LITERAL)
            )
        if isinstance(node, ast.Name):
            if node.id in self.names:
                return self.names[node.id]
            if node.id == "infinity":
                return "inf", _LITERAL
            if node.id == "nan":
                return "nan", _LITERAL
            value = self.constants[node.id]
            return (str(value).lower(), "bool") if isinstance(value, bool) else (repr(value), _LITERAL)
        if isinstance(node, ast.BinOp):
            (a, b), kind = self._together(node.left, node.right)
            return self.scalars.binary(_BINARY[type(node.op)], a, b, kind), kind
        if isinstance(node, ast.Compare):
            (a, b), kind = self._together(node.left, node.comparators[0])
            return self.scalars.compare(_COMPARE[type(node.ops[0])], a, b, kind), "bool"
        if isinstance(node, ast.BoolOp):
            parts = [self.emit(v)[0] for v in node.values]
            return "(" + (" && " if isinstance(node.op, ast.And) else " || ").join(parts) + ")", "bool"
        if isinstance(node, ast.UnaryOp):
            return self._unary(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._function(node.func.id, list(node.args))
        raise TypeError(f"no meaning for {ast.dump(node)}")

    def _unary(self, node: ast.UnaryOp) -> Typed:
        text, kind = self.emit(node.operand)
        if isinstance(node.op, ast.Not):
            return f"(!{text})", "bool"
        if isinstance(node.op, ast.Invert):
            return f"(~{text})", kind
        if kind == _LITERAL:
            return (text[1:] if text.startswith("-") else "-" + text), kind
        return self.scalars.negate(text, kind), kind

    def _function(self, name: str, args: list[ast.expr]) -> Typed:
        if name == "where":
            (yes, no), kind = self._together(args[1], args[2])
            return self.scalars.select(self.emit(args[0])[0], yes, no), kind
        if name in _CASTS:
            text, kind = self.emit(args[0])
            return (
                self.scalars.literal(_number(text), name)
                if kind == _LITERAL
                else self.scalars.convert(text, kind, name)
            ), name
        texts, kind = self._together(*args)
        return self.scalars.function(name, list(texts), kind), _RESULTS.get(name, kind)

    def _together(self, *nodes: ast.expr) -> tuple[tuple[str, ...], str]:
        """Operands of one type: literals become the type of the others, floats when there are none."""
        typed = [self.emit(n) for n in nodes]
        kinds = {k for _, k in typed if k != _LITERAL}
        if len(kinds) > 1:
            raise TypeError(f"operands of different types {sorted(kinds)}")
        kind = kinds.pop() if kinds else "f32"
        return tuple(self.scalars.literal(_number(t), kind) if k == _LITERAL else t for t, k in typed), kind
