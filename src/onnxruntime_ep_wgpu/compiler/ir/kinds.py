"""The compute types, called kinds, with the operators, functions and conversions of each.

In: an operation and the kinds of its operands. Out: the kind of its result. Raises TypeError if a kind lacks the operation.
`_ALLOWED` lists the operators. Functions are builtins of WGSL or definitions of the prelude. `emit/scalar.py` writes the WGSL.
"""

from __future__ import annotations

from typing import NamedTuple

from ..templates.functions import signature

LONG = ("i64", "u64")
DOUBLE = "f64"
WIDE = (*LONG, DOUBLE)
"""Kinds of 64 bits. They have no vectors."""
WIDEST = "i128"
"""The accumulator of integer reductions. It has sums, functions and conversions, which keep the low bits. No tensor has this
kind."""
KINDS = ("f32", "i32", "u32", *WIDE, WIDEST, "bool")
OPERATORS = {"+": "add", "-": "sub", "*": "mul", "/": "div", "%": "rem", "&": "and", "|": "or", "^": "xor"}
_ALLOWED = {"f32": "+-*/%", DOUBLE: "+-*/%", "bool": "&|", WIDEST: "+"}  # of the operators; integers have all
# Functions with a WGSL builtin that is exact enough, by kind.
_BUILTINS = {
    "f32": {"sqrt", "floor", "ceil", "trunc", "abs"},
    "i32": {"abs", "min", "max"},
    "u32": {"min", "max"},
    "i64": set(),
    "u64": set(),
}
_ARGUMENTS = {"min": 2, "max": 2}  # of builtins; the others have one
# The result kind of a function, if it is neither its own kind nor determined by its declaration.
_RESULTS = {("ordered", DOUBLE): "u64"}


class Called(NamedTuple):
    """A function for arguments of one kind: its name in WGSL, the kind of its result, and whether it is a builtin."""

    name: str
    result: str
    builtin: bool


class Kinds:
    """The operations of kinds. `int64` is "native" or "pair"."""

    def __init__(self, int64: str) -> None:
        self.pairs = int64 == "pair"

    def type(self, kind: str, width: int = 1) -> str:
        """Returns the WGSL type. Raises TypeError for vectors of wide kinds, which do not exist."""
        if width == 4:
            if kind in (*WIDE, WIDEST):
                raise TypeError(f"{kind} has no vec4")
            return f"vec4<{kind}>"
        if kind == WIDEST:
            return "vec4<u32>"
        return "vec2<u32>" if self._in_words(kind) else kind

    def _in_words(self, kind: str) -> bool:
        """Returns whether a kind is two words in WGSL, the low one first."""
        return kind == DOUBLE or (kind in LONG and self.pairs)

    def check_literal(self, value: float | int | bool, kind: str) -> None:
        """Raises TypeError for an integer with a fraction."""
        if kind not in ("bool", "f32", DOUBLE) and isinstance(value, float) and not value.is_integer():
            raise TypeError(f"{value} is not a value of {kind}")

    def check_operator(self, operator: str, kind: str) -> None:
        if operator not in _ALLOWED.get(kind, "".join(OPERATORS)):
            raise TypeError(f"{kind} has no {operator}")

    def check_comparison(self, operator: str, kind: str) -> None:
        if kind == WIDEST:
            raise TypeError(f"{kind} has no {operator}")

    def check_sign(self, kind: str) -> None:
        if kind in ("bool", WIDEST):
            raise TypeError(f"{kind} has no sign")

    def check_bits(self, kind: str) -> None:
        if kind in ("f32", DOUBLE, "bool", WIDEST):
            raise TypeError(f"{kind} has no ~")

    def check_condition(self, kind: str) -> None:
        if kind != "bool":
            raise TypeError(f"a condition is {kind}")

    def check_conversion(self, source: str, kind: str) -> None:
        """Raises TypeError for a conversion that does not exist. Conversions follow ONNX Cast: truncate towards zero, wrap
        integers."""
        if source == kind or source == "bool":
            return
        if kind == "bool":
            if source not in ("f32", DOUBLE):
                self.check_comparison("!=", source)
        elif WIDEST in (source, kind):
            other = kind if source == WIDEST else source
            if other not in ("i32", "u32", *LONG):
                raise TypeError(f"{source} is not a value of {kind}")

    def called(self, name: str, kind: str, count: int) -> Called:
        """Returns the function of this name for `count` arguments of a kind: a WGSL builtin or `<name>_<kind>` of the prelude."""
        if name in _BUILTINS.get(kind, ()):
            wanted, found = _ARGUMENTS.get(name, 1), Called(name, kind, True)
        else:
            full = f"{name}_{kind}"
            if not self.pairs and (kind in LONG or (name, kind) in _RESULTS):
                full = f"{full}_native"
            declared = signature(full, self.pairs)
            if declared is None or any(parameter != self.type(kind) for parameter in declared.parameters):
                raise TypeError(f"{kind} has no function {name!r}")
            result = _RESULTS.get((name, kind)) or (kind if declared.result == self.type(kind) else declared.result)
            wanted, found = len(declared.parameters), Called(full, result, False)
        if count != wanted:
            raise TypeError(f"{name!r} of {kind} has {wanted} arguments, not {count}")
        return found
