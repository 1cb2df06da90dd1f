"""The kinds in WGSL: type names, literals, operators, functions and conversions, on typed values.

An operation that a kind lacks raises TypeError (`ir/kinds.py`). Types of 32 bits and bool have vec4 too: WGSL operators and
builtins work element by element, and a prelude function has a variant `<name>_x4`. Operands of one operation are widened to the
widest.

Operators and builtins with only literal operands are evaluated here. A WGSL compiler would do so too, and reject results that are
not finite, overflow or are outside of a domain.

64-bit integers are `i64`/`u64` if the target has them, else `vec2<u32>` (low word first) with the functions of
`wgsl/prelude/int64_pair.wgsl`. Both are exact. 64-bit floats are `vec2<u32>` with the functions of `wgsl/prelude/float64.wgsl`,
which are exact too: WGSL has no type for them. Float minimum, maximum and comparisons that must handle NaN come from
`wgsl/prelude/float.wgsl`, because WGSL lets an implementation assume that there is no NaN.
"""

from __future__ import annotations

import operator as operators
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..ir.kinds import DOUBLE, LONG, OPERATORS, WIDE, WIDEST, Kinds
from ..templates.functions import vector
from .value import TypedValue

_COMPARISONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
_LIMITS = {
    "i32": (-(2**31), 2**31),
    "u32": (0, 2**32),
    "i64": (-(2**63), 2**63),
    "u64": (0, 2**64),
    WIDEST: (-(2**127), 2**127),
}
# Infinite constants, in the notation of literals and of bodies in wgsl/ and ops/.
INFINITIES = tuple(f"float_bits({text}u)" for bits in (0x7F800000, 0xFF800000) for text in (str(bits), hex(bits)))


class Scalars(Kinds):
    """Writes WGSL for operations on kinds. `int64` is "native" or "pair"."""

    def spread(self, value: TypedValue, width: int = 4) -> TypedValue:
        """Returns the value widened to `width`, with equal elements."""
        if value.width == width:
            return value
        return TypedValue(f"{self.type(value.kind, width)}({value.text})", value.kind, width)

    def level(self, values: Sequence[TypedValue]) -> list[TypedValue]:
        """Returns the operands widened to one width."""
        width = max(v.width for v in values)
        return [self.spread(v, width) for v in values]

    def literal(self, value: float | int | bool, kind: str) -> TypedValue:
        """Returns a literal. Raises TypeError for an integer with a fraction."""
        if kind == "bool":
            return TypedValue("true" if value else "false", kind, number=bool(value))
        if kind == "f32":
            with np.errstate(over="ignore"):
                rounded = np.float32(value)
            literal = TypedValue(f"{float(rounded)!r}f", kind, number=float(rounded))
            # Constant infinities are shader errors. Tint replaces a constant -0 by 0 if a text has both.
            return _hidden(literal) if not np.isfinite(rounded) or (rounded == 0 and np.signbit(rounded)) else literal
        if kind == DOUBLE:
            bits = int(np.float64(value).view(np.uint64))
            return TypedValue(f"vec2<u32>({bits & 0xFFFFFFFF}u, {bits >> 32}u)", kind, number=float(value))
        self.check_literal(value, kind)
        least, beyond = _LIMITS[kind]
        number = (int(value) - least) % (beyond - least) + least
        return TypedValue(self._integer(number, kind), kind, number=number)

    def _integer(self, number: int, kind: str) -> str:
        if kind == "i32":
            return f"i32({number})" if number != -(2**31) else "(-2147483647i - 1i)"
        if kind == "u32":
            return f"{number}u"
        if kind == WIDEST:
            return f"vec4<u32>({', '.join(f'{number >> bits & 0xFFFFFFFF}u' for bits in (0, 32, 64, 96))})"
        if self.pairs:
            return f"vec2<u32>({number & 0xFFFFFFFF}u, {number >> 32 & 0xFFFFFFFF}u)"
        if kind == "u64":
            return f"{number}lu"
        return f"{number}li" if number != -(2**63) else "(-9223372036854775807li - 1li)"

    def _folded(self, function: Callable[..., Any], literals: Sequence[TypedValue]) -> TypedValue:
        """Returns the literal of a function of literals: floats rounded as on a device, integers wrapped."""
        kind = literals[0].kind
        of = {"f32": np.float32, DOUBLE: np.float64}.get(kind)
        numbers = [a.number if of is None else of(a.number) for a in literals]
        with np.errstate(all="ignore"):
            return self.literal(function(*numbers), kind)

    def binary(self, operator: str, a: TypedValue, b: TypedValue) -> TypedValue:
        """Returns `a operator b`. Both have one kind, which is also that of the result."""
        kind = a.kind
        self.check_operator(operator, kind)
        if a.number is not None and b.number is not None:
            return self._folded(_ARITHMETIC[operator], [a, b])
        if kind == WIDEST:
            return TypedValue(f"add_{kind}({a.text}, {b.text})", kind)
        if kind == DOUBLE:
            return self.function("fmod" if operator == "%" else OPERATORS[operator], [a, b])
        if kind in LONG and self.pairs:
            name = OPERATORS[operator]
            return TypedValue(f"{name}_{kind if operator in '/%' else '64'}({a.text}, {b.text})", kind)
        if operator == "%" and kind in ("f32", "i32", "i64"):
            return self.function("fmod" if kind == "f32" else "rem", [a, b])
        if operator == "/" and kind == "i64":
            return self.function("div", [a, b])
        if kind == "f32" and operator in "*/":
            a, b = _without_zero(a), _without_zero(b)
            # A divisor that is no literal for which every device has a reciprocal.
            if operator == "/" and (b.number is None or not 1e-30 < abs(b.number) < 1e30):
                return self.function("div", [a, b])
        if operator in "/%" and b.number == 0:  # same as at run time; WGSL rejects a division by a constant 0
            return a if operator == "/" else self.literal(0, kind)
        a, b = self.level([a, b])
        return TypedValue(f"({a.text} {operator} {b.text})", kind, a.width)

    def compare(self, operator: str, a: TypedValue, b: TypedValue) -> TypedValue:
        """Returns the comparison of `a` and `b`, which have one kind."""
        kind = a.kind
        self.check_comparison(operator, kind)
        if kind in LONG and self.pairs:
            if operator in ("==", "!="):
                return TypedValue(f"{'' if operator == '==' else '!'}eq_64({a.text}, {b.text})", "bool")
            if operator in (">", ">="):
                a, b, operator = b, a, {">": "<", ">=": "<="}[operator]
            less = f"lt_{kind}({a.text}, {b.text})" if operator == "<" else f"!lt_{kind}({b.text}, {a.text})"
            return TypedValue(less, "bool")
        if kind in ("f32", DOUBLE) or (kind == "i64" and operator not in ("==", "!=")):
            return self.function(_COMPARISONS[operator], [a, b])
        a, b = self.level([a, b])
        if kind == "bool" and operator not in ("==", "!="):
            number = self.type("u32", a.width)
            return TypedValue(f"({number}({a.text}) {operator} {number}({b.text}))", "bool", a.width)
        return TypedValue(f"({a.text} {operator} {b.text})", "bool", a.width)

    def join(self, conditions: Sequence[TypedValue], operator: str) -> TypedValue:
        """Returns conditions joined by `&&` or `||`."""
        if len(conditions) == 1:
            return conditions[0]
        level = self.level(conditions)
        operator = operator[0] if level[0].width > 1 else operator  # `&&` and `||` exist only for scalars
        return TypedValue(f"({f' {operator} '.join(c.text for c in level)})", "bool", level[0].width)

    def boolean(self, value: bool) -> TypedValue:
        return TypedValue(str(value).lower(), "bool")

    def opposite(self, condition: TypedValue) -> TypedValue:
        return TypedValue(f"(!{condition.text})", "bool", condition.width)

    def negate(self, a: TypedValue) -> TypedValue:
        self.check_sign(a.kind)
        if a.number is not None:
            return self._folded(operators.neg, [a])
        if a.kind == DOUBLE:
            return self.function("neg", [a])
        if a.kind in LONG and self.pairs:
            return TypedValue(f"sub_64(vec2<u32>(), {a.text})", a.kind)
        zero = {"u32": "0u - ", "u64": "0lu - "}.get(a.kind, "-")
        return TypedValue(f"({zero}{a.text})", a.kind, a.width)

    def invert(self, a: TypedValue) -> TypedValue:
        """Returns the complement of all bits."""
        self.check_bits(a.kind)
        if a.number is not None:
            return self._folded(operators.invert, [a])
        return TypedValue(f"(~{a.text})", a.kind, a.width)

    def function(self, name: str, arguments: Sequence[TypedValue]) -> TypedValue:
        """Returns a call of a function for the kind of its arguments: a WGSL builtin or `<name>_<kind>` of the prelude."""
        literals = arguments if all(a.number is not None for a in arguments) else ()
        arguments = self.level(arguments)
        kind, width = arguments[0].kind, arguments[0].width
        found = self.called(name, kind, len(arguments))
        full = vector(found.name) if width > 1 and not found.builtin else found.name
        if literals and found.builtin:
            return self._folded(_FUNCTIONS[name], literals)
        if literals and kind == "f32":
            # A driver that evaluates the function itself ignores the sign of a zero.
            arguments = [_hidden(literals[0]), *literals[1:]]
        elif kind == "f32" and name in _QUOTIENTS:
            arguments = [_without_zero(a) for a in arguments]
        texts = ", ".join(a.text for a in arguments)
        return TypedValue(f"{full}({texts})", found.result, width)

    def select(self, condition: TypedValue, yes: TypedValue, no: TypedValue) -> TypedValue:
        """Returns a selection between `yes` and `no`, which have one kind."""
        self.check_condition(condition.kind)
        condition, yes, no = self.level([condition, yes, no])
        return TypedValue(f"select({no.text}, {yes.text}, {condition.text})", yes.kind, yes.width)

    def convert(self, a: TypedValue, kind: str) -> TypedValue:
        """Returns `a` as `kind`, by the rules of ONNX Cast: truncate towards zero, wrap integers."""
        if a.kind == kind:
            return a
        if kind == "bool":
            if a.kind in ("f32", DOUBLE):
                return TypedValue(self._called(f"bool_of_{a.kind}", a), kind, a.width)
            return self.compare("!=", a, self.literal(0, a.kind))
        if a.kind == "bool":
            return self.select(a, self.literal(1, kind), self.literal(0, kind))
        if isinstance(a.number, int):
            # Uses numpy, which rounds once; a Python float would round to 64 bits first.
            of = np.array(a.number, np.uint64 if a.number >= 0 else np.int64)
            return self.literal(of.astype(np.float32).item() if kind == "f32" else a.number, kind)
        if a.width > 1 and a.kind not in WIDE and kind not in WIDE:
            text = self._called(f"{kind}_of_f32", a) if a.kind == "f32" else f"{self.type(kind, a.width)}({a.text})"
            return TypedValue(text, kind, a.width)
        return TypedValue(self._converted(a.text, a.kind, kind), kind)

    def _called(self, name: str, a: TypedValue) -> str:
        """Returns a call of a prelude function, element by element."""
        return f"{vector(name) if a.width > 1 else name}({a.text})"

    def _converted(self, text: str, source: str, kind: str) -> str:
        if WIDEST in (source, kind):
            return self._converted_widest(text, source, kind)
        if DOUBLE in (source, kind):
            native = not self.pairs and (source in LONG or kind in LONG)
            return f"{kind}_of_{source}{'_native' if native else ''}({text})"
        wide_source, wide_kind = source in LONG, kind in LONG
        if wide_source and wide_kind:
            return text if self.pairs else f"bitcast<{kind}>({text})"
        if not self.pairs and (wide_source or wide_kind):
            return (
                f"{kind}_of_{source}_native({text})"  # a function, because naga cannot convert a literal as a constant
            )
        if wide_source:
            return {"i32": f"bitcast<i32>({text}.x)", "u32": f"{text}.x", "f32": f"f32_of_{source}({text})"}[kind]
        if wide_kind:
            return {"i32": f"widen_i32({text})", "u32": f"vec2<u32>({text}, 0u)", "f32": f"{kind}_of_f32({text})"}[
                source
            ]
        return f"{kind}_of_f32({text})" if source == "f32" else f"{kind}({text})"

    def _converted_widest(self, text: str, source: str, kind: str) -> str:
        self.check_conversion(source, kind)
        other = kind if source == WIDEST else source
        if kind == WIDEST or (other in LONG and not self.pairs):
            return f"{kind}_of_{source}{'_native' if other in LONG and not self.pairs else ''}({text})"
        return {"i32": f"bitcast<i32>({text}.x)", "u32": f"{text}.x"}.get(kind, f"{text}.xy")


_QUOTIENTS = frozenset({"div", "fma", "fmod", "quotient"})
"""Functions that contain products and quotients."""


def _hidden(literal: TypedValue) -> TypedValue:
    """Returns an f32 literal that compilers cannot evaluate: its bits pass through a private variable."""
    assert literal.number is not None
    return replace(literal, text=f"float_bits({int(np.float32(literal.number).view(np.uint32))}u)")


def _without_zero(a: TypedValue) -> TypedValue:
    """Returns the value with a literal 0 hidden. Drivers evaluate products with it and quotients of it to 0, even for NaN and
    infinity."""
    return _hidden(a) if a.number == 0 else a


def _quotient(a: Any, b: Any) -> Any:
    """The quotient as at run time: integers are truncated towards zero; a divisor 0 gives the dividend."""
    if not isinstance(a, int):
        return a / b
    return a if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: Any, b: Any) -> Any:
    """The remainder with the sign of the dividend; integers give 0 for a divisor 0."""
    if not isinstance(a, int):
        return np.fmod(a, b)
    return a - _quotient(a, b) * b if b else 0


_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "+": operators.add,
    "-": operators.sub,
    "*": operators.mul,
    "/": _quotient,
    "%": _remainder,
    "&": operators.and_,
    "|": operators.or_,
    "^": operators.xor,
}
# Implements `_BUILTINS`.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "abs": abs,
    "min": min,
    "max": max,
}
