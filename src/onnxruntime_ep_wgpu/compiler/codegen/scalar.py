"""The compute types in WGSL: type names, literals, operators, functions and conversions, on typed values.

What a type does not have raises TypeError: the operators of `_ALLOWED`, and functions that are neither builtins of WGSL nor
definitions of the prelude, which this file is the only one to look up. Types of 32 bits and bool have vec4 too: operators and
builtins of WGSL work element by element, a function of the prelude has a twin `<name>_x4`. Operands of one operation get the
width of the widest.

64-bit integers are `i64`/`u64` where the target has them, else `vec2<u32>` (low word first) with the functions of
`wgsl/prelude/int64.wgsl`; both are exact. Float minimum, maximum and comparisons that must see NaN come from
`wgsl/prelude/float.wgsl`, because WGSL lets an implementation assume there is none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from . import prelude
from .value import TypedValue

KINDS = ("f32", "i32", "u32", "i64", "u64", "bool")
WIDE = ("i64", "u64")
_ZEROS = ("0u", "0lu", "0li", "i32(0)")
_OPERATORS = {"+": "add", "-": "sub", "*": "mul", "/": "div", "%": "rem", "&": "and", "|": "or", "^": "xor"}
_COMPARISONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
_ALLOWED = {"f32": "+-*/%", "bool": "&|"}  # of the operators; integers have all
# Functions whose WGSL builtin is exact enough, by kind.
_BUILTINS = {
    "f32": {"sqrt", "floor", "ceil", "trunc", "abs"},
    "i32": {"abs", "min", "max"},
    "u32": {"min", "max"},
    "i64": set(),
    "u64": set(),
}
# Infinite constants, as literals and as bodies in wgsl/ and ops/ spell them.
INFINITIES = tuple(f"float_bits({text}u)" for bits in (0x7F800000, 0xFF800000) for text in (str(bits), hex(bits)))
_ARGUMENTS = {"min": 2, "max": 2}  # of builtins; the others have one


class Scalars:
    """WGSL for operations on compute types; `int64` is "native" or "pair"."""

    def __init__(self, int64: str) -> None:
        self.pairs = int64 == "pair"

    def type(self, kind: str, width: int = 1) -> str:
        """The WGSL type. Raises TypeError for four 64-bit integers, which are no vector."""
        if width == 4:
            if kind in WIDE:
                raise TypeError(f"{kind} has no vec4")
            return f"vec4<{kind}>"
        return "vec2<u32>" if kind in WIDE and self.pairs else kind

    def spread(self, value: TypedValue, width: int = 4) -> TypedValue:
        """The value in a width: one becomes four equal ones."""
        if value.width == width:
            return value
        return TypedValue(f"{self.type(value.kind, width)}({value.text})", value.kind, width)

    def level(self, values: Sequence[TypedValue]) -> list[TypedValue]:
        """Operands of one width."""
        width = max(v.width for v in values)
        return [self.spread(v, width) for v in values]

    def literal(self, value: float | int | bool, kind: str) -> TypedValue:
        """Raises TypeError for a number with digits after the point as an integer."""
        if kind == "bool":
            return TypedValue("true" if value else "false", kind)
        if kind == "f32":
            with np.errstate(over="ignore"):
                rounded = np.float32(value)
            if not np.isfinite(rounded):
                # Constant infinities are shader errors; the bits pass through a private variable instead.
                return TypedValue(f"float_bits({int(rounded.view(np.uint32))}u)", kind)
            return TypedValue(f"{float(rounded)!r}f", kind)
        if isinstance(value, float) and not value.is_integer():
            raise TypeError(f"{value} is no {kind}")
        return TypedValue(self._integer(int(value), kind), kind)

    def _integer(self, number: int, kind: str) -> str:
        if kind == "i32":
            number = (number + 2**31) % 2**32 - 2**31
            return f"i32({number})" if number != -(2**31) else "(-2147483647i - 1i)"
        if kind == "u32":
            return f"{number & 0xFFFFFFFF}u"
        bits = number & (2**64 - 1)
        if self.pairs:
            return f"vec2<u32>({bits & 0xFFFFFFFF}u, {bits >> 32}u)"
        if kind == "u64":
            return f"{bits}lu"
        return f"{number}li" if number != -(2**63) else "(-9223372036854775807li - 1li)"

    def binary(self, operator: str, a: TypedValue, b: TypedValue) -> TypedValue:
        """`a` and `b` are of one type, and so is the result."""
        kind = a.kind
        if operator not in _ALLOWED.get(kind, "".join(_OPERATORS)):
            raise TypeError(f"{kind} has no {operator}")
        if kind in WIDE and self.pairs:
            name = _OPERATORS[operator]
            return TypedValue(f"{name}_{kind if operator in '/%' else '64'}({a.text}, {b.text})", kind)
        if operator == "%" and kind in ("f32", "i32", "i64"):
            return self.function("fmod" if kind == "f32" else "rem", [a, b])
        if operator == "/" and kind == "f32" and not _is_moderate(b.text):
            return self.function("div", [a, b])
        if operator in "/%" and b.text in _ZEROS:  # as at run time: WGSL takes no division by a constant 0
            return a if operator == "/" else self.literal(0, kind)
        a, b = self.level([a, b])
        return TypedValue(f"({a.text} {operator} {b.text})", kind, a.width)

    def compare(self, operator: str, a: TypedValue, b: TypedValue) -> TypedValue:
        """`a` and `b` are of one type."""
        kind = a.kind
        if kind in WIDE and self.pairs:
            if operator in ("==", "!="):
                return TypedValue(f"{'' if operator == '==' else '!'}eq_64({a.text}, {b.text})", "bool")
            if operator in (">", ">="):
                a, b, operator = b, a, {">": "<", ">=": "<="}[operator]
            less = f"lt_{kind}({a.text}, {b.text})" if operator == "<" else f"!lt_{kind}({b.text}, {a.text})"
            return TypedValue(less, "bool")
        if kind == "f32" or (kind == "i64" and operator not in ("==", "!=")):
            return self.function(_COMPARISONS[operator], [a, b])
        a, b = self.level([a, b])
        if kind == "bool" and operator not in ("==", "!="):
            number = self.type("u32", a.width)
            return TypedValue(f"({number}({a.text}) {operator} {number}({b.text}))", "bool", a.width)
        return TypedValue(f"({a.text} {operator} {b.text})", "bool", a.width)

    def join(self, conditions: Sequence[TypedValue], operator: str) -> TypedValue:
        """Conditions joined by `&&` or `||`."""
        if len(conditions) == 1:
            return conditions[0]
        level = self.level(conditions)
        operator = operator[0] if level[0].width > 1 else operator  # the others are of scalars alone
        return TypedValue(f"({f' {operator} '.join(c.text for c in level)})", "bool", level[0].width)

    def negate(self, a: TypedValue) -> TypedValue:
        if a.kind == "bool":
            raise TypeError("bool has no sign")
        if a.kind in WIDE and self.pairs:
            return TypedValue(f"sub_64(vec2<u32>(), {a.text})", a.kind)
        zero = {"u32": "0u - ", "u64": "0lu - "}.get(a.kind, "- " if a.text.startswith("-") else "-")  # no decrement
        return TypedValue(f"({zero}{a.text})", a.kind, a.width)

    def invert(self, a: TypedValue) -> TypedValue:
        """All bits the other way."""
        if a.kind in ("f32", "bool"):
            raise TypeError(f"{a.kind} has no ~")
        return TypedValue(f"(~{a.text})", a.kind, a.width)

    def function(self, name: str, arguments: Sequence[TypedValue]) -> TypedValue:
        """A call of a function defined for the type of its arguments: a builtin of WGSL or `<name>_<kind>` of the prelude."""
        arguments = self.level(arguments)
        kind, width, texts = arguments[0].kind, arguments[0].width, ", ".join(a.text for a in arguments)
        if name in _BUILTINS.get(kind, ()):
            wanted, result, full = _ARGUMENTS.get(name, 1), kind, name
        else:
            full = f"{name}_{kind}_native" if kind in WIDE and not self.pairs else f"{name}_{kind}"
            found = prelude.signature(full, self.pairs)
            if found is None or any(parameter != self.type(kind) for parameter in found.parameters):
                raise TypeError(f"{kind} has no function {name!r}")
            wanted, result = len(found.parameters), kind if found.result == self.type(kind) else found.result
            full = prelude.vector(full) if width > 1 else full
        if len(arguments) != wanted:
            raise TypeError(f"{name!r} of {kind} has {wanted} arguments, not {len(arguments)}")
        return TypedValue(f"{full}({texts})", result, width)

    def select(self, condition: TypedValue, yes: TypedValue, no: TypedValue) -> TypedValue:
        """`yes` and `no` are of one type."""
        if condition.kind != "bool":
            raise TypeError(f"a condition is {condition.kind}")
        condition, yes, no = self.level([condition, yes, no])
        return TypedValue(f"select({no.text}, {yes.text}, {condition.text})", yes.kind, yes.width)

    def convert(self, a: TypedValue, kind: str) -> TypedValue:
        """`a` as `kind`, by ONNX Cast's rules: truncate towards zero, wrap integers."""
        if a.kind == kind:
            return a
        if kind == "bool":
            if a.kind == "f32":
                return TypedValue(self._called("bool_of_f32", a), kind, a.width)
            return self.compare("!=", a, self.literal(0, a.kind))
        if a.kind == "bool":
            return self.select(a, self.literal(1, kind), self.literal(0, kind))
        if re.fullmatch(r"-?\d+l[iu]", a.text) and kind in ("i32", "u32", "f32"):
            return self.literal(int(a.text[:-2]), kind)  # naga does not fold casts of 64-bit literals
        if a.width > 1 and a.kind not in WIDE and kind not in WIDE:
            text = self._called(f"{kind}_of_f32", a) if a.kind == "f32" else f"{self.type(kind, a.width)}({a.text})"
            return TypedValue(text, kind, a.width)
        return TypedValue(self._converted(a.text, a.kind, kind), kind)

    def _called(self, name: str, a: TypedValue) -> str:
        """A call of a function of the prelude, element by element."""
        return f"{prelude.vector(name) if a.width > 1 else name}({a.text})"

    def _converted(self, text: str, source: str, kind: str) -> str:
        wide_source, wide_kind = source in WIDE, kind in WIDE
        if wide_source and wide_kind:
            return text if self.pairs else f"bitcast<{kind}>({text})"
        if not self.pairs and (wide_source or wide_kind):
            return (
                f"{kind}_of_{source}_native({text})"  # a function, because a literal has no constant conversion in naga
            )
        if wide_source:
            return {"i32": f"bitcast<i32>({text}.x)", "u32": f"{text}.x", "f32": f"f32_of_{source}({text})"}[kind]
        if wide_kind:
            return {"i32": f"widen_i32({text})", "u32": f"vec2<u32>({text}, 0u)", "f32": f"{kind}_of_f32({text})"}[
                source
            ]
        return f"{kind}_of_f32({text})" if source == "f32" else f"{kind}({text})"


def _is_moderate(text: str) -> bool:
    """Whether a divisor is a literal of which every device has a reciprocal."""
    return re.fullmatch(r"[\d.e+-]+f", text) is not None and 1e-30 < abs(float(text[:-1])) < 1e30
