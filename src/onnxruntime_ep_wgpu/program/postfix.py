"""The dims of a Program, and their evaluation for a plan. The algebra that made them is in `dims` and is not needed here.

An expression is an int or a tuple of tokens in postfix order: `("$batch", 12, "*", 1, "+")`. A symbol has the prefix `$`. A
definition names an expression, so that expressions over it stay short. Invariant: no number has more than MOST_BITS. A Program
from an untrusted source could otherwise reach millions of bits with a few products of products.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence

from ..errors import LimitError

MOST_BITS = 1024  # more than any product of a tensor's extents needs
_GIVEN_BITS = 64  # of the symbols and constants
Postfix = int | tuple[int | str, ...]


def _tdiv(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def f32_bits(value: float) -> int:
    """Returns the bits of a number as f32."""
    return int.from_bytes(struct.pack("<f", value), "little")


def _rounded(value: float) -> float:
    """Rounds to the nearest f32; infinite beyond the largest one."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _scaled(extent: int, bits: int) -> int:
    (scale,) = struct.unpack("<f", (bits & 0xFFFFFFFF).to_bytes(4, "little"))
    result = _rounded(_rounded(extent) * scale)
    return int(result) if math.isfinite(result) else 0


def _bounded(value: int) -> int:
    if value.bit_length() > MOST_BITS:
        raise LimitError(
            f"a size is a number of {value.bit_length()} bits, and at most {MOST_BITS} are calculated with"
        )
    return value


# The operations of expressions. A division by zero, and a result that is infinite or NaN, give 0, so that checks can refuse what
# depends on it.
OPERATIONS: dict[str, Callable[..., int]] = {
    "+": lambda a, b: a + b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b if b else 0,
    "%": lambda a, b: a % b if b else 0,
    "tdiv": lambda a, b: _tdiv(a, b) if b else 0,
    "min": min,
    "max": max,
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    "==": lambda a, b: int(a == b),
    "?": lambda c, a, b: a if c else b,
    "bcast": lambda a, b: b if a == 1 else a,
    "scaled": _scaled,  # an extent times the f32 with these bits, rounded as f32, without its fraction
}
_SOURCE = {
    "+": "({} + {})",
    "*": "({} * {})",
    "min": "min({}, {})",
    "max": "max({}, {})",
    "<": "({} < {})",
    "<=": "({} <= {})",
    "==": "({} == {})",
    "?": "({1} if {0} else {2})",
    "//": "floordiv({}, {})",
    "%": "mod({}, {})",
    "tdiv": "tdiv({}, {})",
    "bcast": "bcast({}, {})",
    "scaled": "scaled({}, {})",
}
_SCOPE: dict[str, Callable[..., object]] = {
    "floordiv": OPERATIONS["//"],
    "mod": OPERATIONS["%"],
    "tdiv": OPERATIONS["tdiv"],
    "bcast": OPERATIONS["bcast"],
    "scaled": OPERATIONS["scaled"],
    "bounded": _bounded,
    "min": min,
    "max": max,
}


def arity(operation: str) -> int:
    return 3 if operation == "?" else 2


def _most_bits(operation: str, *operands: int) -> int:
    """The most bits of the result, given the most bits of the operands."""
    if operation == "*":
        return sum(operands)
    if operation in ("<", "<=", "=="):
        return 1
    if operation == "scaled":
        return 129  # bits of the integer part of an f32, with sign
    return max(operands) + 1  # for a sum, or a quotient of negative numbers; all others need no more


def _needed(dims: Sequence[Postfix], definitions: Sequence[tuple[str, Postfix]]) -> list[tuple[str, Postfix]]:
    """Returns the definitions that the dims use, in order."""
    used = {token for dim in dims if not isinstance(dim, int) for token in dim}
    kept = []
    for name, postfix in reversed(definitions):
        if f"${name}" in used:
            kept.append((name, postfix))
            used.update((postfix,) if isinstance(postfix, int) else postfix)
    return kept[::-1]


def compile_dims(
    dims: Sequence[Postfix], symbols: Sequence[str], definitions: Sequence[tuple[str, Postfix]] = ()
) -> Callable[[Sequence[int]], list[int]]:
    """Compiles one straight-line function from the values of `symbols` to the values of `dims`. Equal parts are computed once.

    `definitions` are further symbols, each an expression over the symbols and definitions before it. The function raises
    LimitError for numbers of more than MOST_BITS.
    """
    index = {"$" + name: f"s[{i}]" for i, name in enumerate(symbols)}
    lines: list[str] = []
    known: dict[str, str] = {}
    bits: dict[str, int] = {}  # the most bits of a part, by its name

    def emit(postfix: Postfix) -> str:
        if isinstance(postfix, int):
            return str(postfix)
        stack: list[str] = []
        for token in postfix:
            if isinstance(token, int):
                stack.append(str(token))
            elif token in index:
                stack.append(index[token])
            elif token.startswith("$"):
                raise KeyError(f"the dimension {token[1:]!r} is not defined by any input")
            else:
                count = arity(token)
                operands = stack[-count:]
                source = _SOURCE[token].format(*operands)
                del stack[-count:]
                if source not in known:
                    name = known[source] = f"t{len(known)}"
                    most = _most_bits(token, *(bits.get(it, _GIVEN_BITS) for it in operands))
                    bits[name] = min(most, MOST_BITS)
                    lines.append(f"    {name} = {source}" if most <= MOST_BITS else f"    {name} = bounded({source})")
                stack.append(known[source])
        (result,) = stack
        return result

    for name, postfix in _needed(dims, definitions):
        index["$" + name] = emit(postfix)
    results = [emit(d) for d in dims]
    source = "\n".join(["def evaluate(s):", *lines, f"    return [{', '.join(results)}]"])
    scope = dict(_SCOPE)
    exec(source, scope)
    return scope["evaluate"]  # type: ignore[return-value]
