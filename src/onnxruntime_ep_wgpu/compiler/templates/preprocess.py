"""Executes the directives in the text of a kernel: lines that are repeated or selected.

In: text and the constants of a kernel. Lines, or parts of them, may be directives:

    #for k COUNT ... #end            repeats the lines COUNT times; `#k` is the index: `sum#k` names a variable
    #for k COUNT down ... #end       the same from COUNT - 1 to 0
    #if TEST ... #else ... #end      the lines before `#else` if TEST holds, else those after it, if any
    #[at#k for k COUNT]              at0, at1 and so on; with `by &&` that separates them instead of a comma
    #(EXPRESSION)                    a number, or a text; `#(EXPRESSION)f` is an f32, which may be infinite or NaN
    #inline f(a, b) TEXT             from here on `f(x, y)` is TEXT with x and y: see `inline`
    #let NAME EXPRESSION             NAME is this number or text in the lines after it, up to the end of the block
    #default NAME EXPRESSION         the default of the constant NAME: see `declared`

COUNT, TEST and EXPRESSION are Python over constants and numbers: `#if MODE == "linear"`, `v#(#c * STRIDE + 1)`, `x_at(#[#("i#k"
if #k == AXIS else "at#k") for k RANK])`.

Out: the text without directives. `$NAME` of a constant or a dim remains, because its WGSL type is decided later.

Every kernel has these constants:

- INVOCATIONS: the invocations of a workgroup.
- SUBGROUPS: whether the adapter has subgroups.
- COMPONENT_STORES: whether a store to one component of a vector writes only that component.
- MATRIX_UNITS: whether the adapter has subgroup matrices.
- BROWSER: whether a browser compiles the kernel, and so checks every index.

Arrays indexed by a loop stay in registers only if the shader compiler unrolls that loop, which it does not for large bodies. So
such loops are unrolled here. A body for any number of axes repeats lines for each axis.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cache, lru_cache
from types import CodeType

import numpy as np

from ...errors import UnsupportedError
from .inline import inlined

Constant = int | float | str | bool

# The sizes of a model determine some repetition counts. Some thousand lines take a driver a second.
MOST_REPETITIONS = 4096
MOST_LINES = 1 << 16

_DIRECTIVE = re.compile(r"\s*#(?P<word>for|if|else|end|let)\b\s*(?P<rest>.*?)\s*")
_DEFAULT = re.compile(r"^#default (?P<name>[A-Z]\w*) (?P<value>.+)\n", re.MULTILINE)
_LET = re.compile(r"(?P<name>[A-Z]\w*) (?P<value>.+)")
_LOOP = re.compile(r"(?P<name>[a-z]) (?P<count>.+?)(?P<down> down)?")
_LIST = re.compile(r"#\[(?P<item>.*?) for (?P<name>[a-z]) (?P<count>\w+)(?: by (?P<by>\S+))?\]")
_EXPRESSION = re.compile(r"#\((?P<text>[^()]*(?:\([^()]*\)[^()]*)*)\)(?P<real>f\b)?")


def declared(
    text: str, constants: Mapping[str, Constant], names: Collection[str] = ()
) -> tuple[str, dict[str, Constant]]:
    """Returns the text without its lines `#default`, and the constants including these defaults.

    An expression may use `has("x")`: whether x is in `names`, the operands, results and parameters.
    """
    found, defaults = _declarations(text)
    known = dict(constants)
    for name, code in defaults:
        if name not in known:
            known[name] = eval(code, {"__builtins__": {}, "has": names.__contains__}, known)
    return found, known


@cache
def _declarations(text: str) -> tuple[str, tuple[tuple[str, CodeType], ...]]:
    """Returns a text without its defaults, and these in their order."""
    defaults = tuple((it["name"], _code(it["value"])) for it in _DEFAULT.finditer(text))
    return (_DEFAULT.sub("", text), defaults) if defaults else (text, ())


def preprocess(text: str, constants: Mapping[str, Constant]) -> str:
    """Returns the text without directives.

    Raises UnsupportedError for a text that would be too long, ValueError for unbalanced blocks, and KeyError for an unknown
    constant.
    """
    return _preprocessed(text, frozenset(constants.items())) if "#" in text else text


@lru_cache(maxsize=1024)
def _preprocessed(text: str, constants: frozenset[tuple[str, Constant]]) -> str:
    return inlined("\n".join(_expanded(text.split("\n"), dict(constants))))


def _expanded(lines: list[str], constants: Mapping[str, Constant]) -> list[str]:
    """Expands blocks from the outside in, so that inner ones see the indices of outer loops."""
    out: list[str] = []
    at = 0
    while at < len(lines):
        found = _directive(lines[at])
        if found is None:
            out.append(_evaluated_line(lines[at], constants))
            at += 1
            continue
        if found["word"] == "let":
            constants = _with_constant(found["rest"], constants)
            at += 1
            continue
        if found["word"] in ("else", "end"):
            raise ValueError(f"#{found['word']} without a block that it belongs to")
        otherwise, end = _block(lines, at)
        if found["word"] == "for":
            if otherwise is not None:
                raise ValueError(f"{lines[at].strip()!r} has an #else")
            out += _repeated(found["rest"], lines[at + 1 : end], constants)
        elif _evaluated(found["rest"], constants):
            out += _expanded(lines[at + 1 : end if otherwise is None else otherwise], constants)
        elif otherwise is not None:
            out += _expanded(lines[otherwise + 1 : end], constants)
        at = end + 1
    return out


def _with_constant(text: str, constants: Mapping[str, Constant]) -> Mapping[str, Constant]:
    found = _LET.fullmatch(text)
    if found is None or found["name"] in constants:
        raise ValueError(f"'#let {text}' is not '#let NAME EXPRESSION' with a new name")
    return {**constants, found["name"]: _evaluated(found["value"], constants)}


def _directive(line: str) -> re.Match[str] | None:
    return _DIRECTIVE.fullmatch(line) if "#" in line else None


def _block(lines: list[str], begin: int) -> tuple[int | None, int]:
    """Returns the lines of the `#else`, if any, and of the `#end` of the block that begins at a line."""
    depth, otherwise = 0, None
    for at in range(begin, len(lines)):
        found = _directive(lines[at])
        word = found["word"] if found is not None else ""
        depth += (word in ("for", "if")) - (word == "end")
        if depth == 0:
            return otherwise, at
        if word == "else" and depth == 1:
            otherwise = at
    raise ValueError(f"{lines[begin].strip()!r} without #end")


def _repeated(loop: str, lines: list[str], constants: Mapping[str, Constant]) -> list[str]:
    found = _LOOP.fullmatch(loop)
    if found is None:
        raise ValueError(f"'#for {loop}' is not '#for k COUNT' or '#for k COUNT down'")
    numbers = range(_count(found["count"], constants))
    out: list[str] = []
    parts, name = [_split_loop_part(line) for line in lines], f"#{found['name']}"
    for number in reversed(numbers) if found["down"] else numbers:
        text = str(number)
        out += _expanded([word + rest.replace(name, text) if rest else word for word, rest in parts], constants)
        if len(out) > MOST_LINES:
            raise UnsupportedError(f"the text of the kernel would have more than {MOST_LINES} lines")
    return out


def _split_loop_part(line: str) -> tuple[str, str]:
    """Splits a line before the part that may contain loop indices. The word of a directive is excluded, as in `#end` inside of a
    loop over e."""
    found = _directive(line)
    begin = found.start("rest") if found is not None else 0 if "#" in line else len(line)
    return line[:begin], line[begin:]


def _evaluated_line(line: str, constants: Mapping[str, Constant]) -> str:
    """Returns a line with its lists and expressions evaluated."""
    if "#" not in line:
        return line

    def listed(found: re.Match[str]) -> str:
        by = f" {found['by']} " if found["by"] else ", "
        return by.join(
            found["item"].replace(f"#{found['name']}", str(k)) for k in range(_count(found["count"], constants))
        )

    return _with_expressions(_LIST.sub(listed, line) if "#[" in line else line, constants)


def _with_expressions(text: str, constants: Mapping[str, Constant]) -> str:
    """Returns a text with its expressions evaluated."""

    def written(found: re.Match[str]) -> str:
        value, real = _evaluated(found["text"], constants), found["real"] or ""
        if real and isinstance(value, float):
            with np.errstate(over="ignore"):
                rounded = np.float32(value)
            if not np.isfinite(rounded):  # WGSL has no literal for it
                return f"float_bits({int(rounded.view(np.uint32)):#x}u)"
        return f"{value}{real}"

    return _EXPRESSION.sub(written, text) if "#(" in text else text


def _count(text: str, constants: Mapping[str, Constant]) -> int:
    count = _evaluated(text, constants)
    if not isinstance(count, int):
        raise ValueError(f"{text} is {count!r}, not a number of repetitions")
    if count > MOST_REPETITIONS:
        raise UnsupportedError(
            f"a part of the kernel would be repeated {count} times ({text}), and {MOST_REPETITIONS} is the most"
        )
    return count


def _evaluated(text: str, constants: Mapping[str, Constant]) -> Constant:
    """Returns a constant, or the value of an expression over constants. The text is part of this package, never from a user."""
    text = _with_expressions(text, constants)
    if text in constants:
        return constants[text]
    try:
        value: Constant = eval(_code(text), {"__builtins__": {}}, constants)
    except NameError as error:
        raise KeyError(f"{text!r}: {error}") from error
    return value


@lru_cache(maxsize=1024)
def _code(text: str) -> CodeType:
    return compile(text, "<template>", "eval")
