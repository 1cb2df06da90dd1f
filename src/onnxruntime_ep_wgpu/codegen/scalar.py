"""The compute types in WGSL: type names, literals, operators and conversions, as tables.

64-bit integers are `i64`/`u64` where the target has them, else `vec2<u32>` (low word first) with the functions of
`wgsl/prelude/int64.wgsl`; both are exact. Float minimum, maximum and comparisons that must see NaN come from
`wgsl/prelude/float.wgsl`, because WGSL lets an implementation assume there is none.
"""

from __future__ import annotations

import re

import numpy as np

WIDE = ("i64", "u64")
_OPERATORS = {"+": "add", "-": "sub", "*": "mul", "/": "div", "%": "rem", "&": "and", "|": "or", "^": "xor"}
_COMPARISONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
# Functions whose WGSL builtin is exact enough, by kind.
_BUILTINS = {
    "f32": {"sqrt", "exp", "log", "floor", "ceil", "trunc", "abs"},
    "i32": {"abs", "min", "max"},
    "u32": {"min", "max"},
    "i64": set(),
    "u64": set(),
}


class Scalars:
    """WGSL text for operations on compute types; `int64` is "native" or "pair"."""

    def __init__(self, int64: str) -> None:
        self.pairs = int64 == "pair"

    def type(self, kind: str) -> str:
        return "vec2<u32>" if kind in WIDE and self.pairs else kind

    def literal(self, value: float | int | bool, kind: str) -> str:
        if kind == "bool":
            return "true" if value else "false"
        if kind == "f32":
            with np.errstate(over="ignore"):
                rounded = np.float32(value)
            if not np.isfinite(rounded):
                # Constant infinities are shader errors; the bits pass through a private variable instead.
                return f"float_bits({int(rounded.view(np.uint32))}u)"
            return f"{float(rounded)!r}f"
        number = int(value)
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

    def binary(self, operator: str, a: str, b: str, kind: str) -> str:
        if kind in WIDE and self.pairs:
            name = _OPERATORS[operator]
            return f"{name}_{kind if operator in '/%' else '64'}({a}, {b})"
        if operator == "%" and kind == "f32":
            return f"fmod_f32({a}, {b})"
        if operator == "/" and kind == "f32" and not _is_moderate(b):
            return f"div_f32({a}, {b})"
        if operator == "%" and kind in ("i32", "i64"):
            return self.function("rem", [a, b], kind)
        return f"({a} {operator} {b})"

    def compare(self, operator: str, a: str, b: str, kind: str) -> str:
        if kind in WIDE and self.pairs:
            if operator in ("==", "!="):
                return f"{'' if operator == '==' else '!'}eq_64({a}, {b})"
            if operator in (">", ">="):
                a, b, operator = b, a, {">": "<", ">=": "<="}[operator]
            return f"lt_{kind}({a}, {b})" if operator == "<" else f"!lt_{kind}({b}, {a})"
        if kind == "f32" or (kind == "i64" and operator not in ("==", "!=")):
            return self.function(_COMPARISONS[operator], [a, b], kind)
        if kind == "bool" and operator not in ("==", "!="):
            return f"(u32({a}) {operator} u32({b}))"
        return f"({a} {operator} {b})"

    def negate(self, a: str, kind: str) -> str:
        if kind in WIDE and self.pairs:
            return f"sub_64(vec2<u32>(), {a})"
        return f"(0u - {a})" if kind == "u32" else f"(0lu - {a})" if kind == "u64" else f"(-{a})"

    def function(self, name: str, args: list[str], kind: str) -> str:
        """A call of a function defined for `kind`: a WGSL builtin or `<name>_<kind>` of the prelude."""
        if name in _BUILTINS.get(kind, ()):
            return f"{name}({', '.join(args)})"
        suffix = f"{kind}_native" if kind in WIDE and not self.pairs else kind
        return f"{name}_{suffix}({', '.join(args)})"

    def select(self, condition: str, yes: str, no: str) -> str:
        return f"select({no}, {yes}, {condition})"

    def convert(self, a: str, source: str, kind: str) -> str:
        """`a` of compute type `source` as `kind`, by ONNX Cast's rules: truncate towards zero, wrap integers."""
        if source == kind:
            return a
        if kind == "bool":
            zero = self.literal(0, source)
            return self.compare("!=", a, zero, source)
        if source == "bool":
            return self.select(a, self.literal(1, kind), self.literal(0, kind))
        wide_source, wide_kind = source in WIDE, kind in WIDE
        if wide_source and wide_kind:
            return a if self.pairs else f"bitcast<{kind}>({a})"
        if re.fullmatch(r"-?\d+l[iu]", a) and kind in ("i32", "u32", "f32"):
            return self.literal(int(a[:-2]), kind)  # naga does not fold casts of 64-bit literals
        if not self.pairs and (wide_source or wide_kind):
            return f"{kind}_of_{source}_native({a})"  # a function, because a literal has no constant conversion in naga
        if wide_source:
            return {"i32": f"bitcast<i32>({a}.x)", "u32": f"{a}.x", "f32": f"f32_of_{source}({a})"}[kind]
        if wide_kind:
            return {"i32": f"widen_i32({a})", "u32": f"vec2<u32>({a}, 0u)", "f32": f"{kind}_of_f32({a})"}[source]
        if source == "f32":
            return f"{kind}_of_f32({a})"
        return f"{kind}({a})"


def _is_moderate(text: str) -> bool:
    """Whether a divisor is a literal of which every device has a reciprocal."""
    return re.fullmatch(r"[\d.e+-]+f", text) is not None and 1e-30 < abs(float(text[:-1])) < 1e30
