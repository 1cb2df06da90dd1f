"""Limits the steps of a chat template and the size of its values. A template is an untrusted program.

In: values before and after an operation. Out: nothing. Raises TooMuch. Invariant: limits count steps and not seconds, so the
same conversation always gives the same result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jinja2.exceptions import SecurityError

STEPS = 5_000_000
"""Limit of steps: evaluated nodes, visited elements, and every 10 created characters. They take some seconds."""
LARGEST = 10_000_000
"""Limit of a text in characters; an element of a list counts as 10."""
CHARACTERS = 10
"""Characters per step."""
_ELEMENT = 10
_BITS = 100_000  # limit of an integer
_BIT_PAIRS = 1_000_000  # bit pairs per step, for products, quotients, and conversions of integers to text
_COMPARED = 1_000  # character comparisons per step
_CODECS = ("utf-8", "utf8", "ascii", "latin-1", "utf-16", "utf-32")
"""Encodings of linear time. idna and punycode take quadratic time."""
_OF_ERRORS = ("strict", "ignore", "replace", "backslashreplace", "xmlcharrefreplace")

_PLACES = re.compile(r"%(?:\([^)]*\))?[-+ #0-9.*]*|\{[^{}]*")
_NESTED = re.compile(r"\{[^{}]*\{")
_TEXTS = (str, bytes)


class TooMuch(SecurityError):
    """The template does more than a chat template needs."""


class Budget:
    """The remaining budget of one rendering.

    The sizes of `given` and its elements are computed once, because templates read them repeatedly."""

    def __init__(self, given: Sequence[Any] = ()) -> None:
        self._left = STEPS
        self._given: dict[int, int] = {}
        for it in (*given, given):
            if not isinstance(it, _TEXTS):
                self._given[id(it)] = self._measure(it)[0]

    def spend(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise TooMuch(f"it takes more than {STEPS:,} steps")

    def fits(self, size: int) -> None:
        """Checks the size of a value before it is created."""
        if size > LARGEST:
            raise TooMuch(f"it makes a value of more than {LARGEST:,} characters")

    def count_values(self, *values: Any) -> None:
        """Counts values that were created or are read completely."""
        total = 0
        for value in values:
            size, steps = self._measure(value)
            total += size
            self.fits(total)
            self.spend(steps)

    def _measure(self, value: Any) -> tuple[int, int]:
        """Returns the size of a value, with shared parts counted repeatedly, and the steps to read it."""
        if isinstance(value, _TEXTS):
            return len(value), len(value) // CHARACTERS
        size, steps, open_ = 0, 0, [value]
        while open_:
            it = open_.pop()
            steps += 1
            if id(it) in self._given:
                size += self._given[id(it)]
            elif isinstance(it, _TEXTS):
                size += len(it)
            elif isinstance(it, int):
                if it.bit_length() > _BITS:
                    raise TooMuch("it makes an integer of more than 30,000 digits")
                steps += it.bit_length() ** 2 // _BIT_PAIRS  # the cost of converting it to text
            elif isinstance(it, range):
                size += _ELEMENT * len(it)
                steps += len(it)
            elif isinstance(it, list | tuple | set | frozenset):
                size += _ELEMENT * len(it)
                self.fits(size)
                open_ += it
            elif isinstance(it, dict):
                size += 2 * _ELEMENT * len(it)
                self.fits(size)
                open_ += [*it, *it.values()]
            self.fits(size)
            if steps > STEPS:
                self.spend(steps)
        return size, steps

    # ---- checks before an operation

    def binary(self, operator: str, left: Any, right: Any) -> None:
        """Checks and counts `left operator right` before it is calculated."""
        self.count_values(left, right)
        if isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() + right.bit_length()
            if operator == "**":
                bits = left.bit_length() * max(right, 0) if abs(left) > 1 else 1
            if bits > _BITS:
                raise TooMuch("it makes an integer of more than 30,000 digits")
            self.spend(bits**2 // _BIT_PAIRS)
        elif operator == "*":
            count = next((it for it in (left, right) if isinstance(it, int)), 1)
            self.fits(max(count, 0) * max(self._measure(left)[0], self._measure(right)[0]))
        elif operator == "%" and isinstance(left, _TEXTS):
            self.fits(_formatted(left, (right,)))

    def call(self, name: str, values: Sequence[Any]) -> None:
        """Checks and counts a call of a method or filter. The first value is the object that it is called on."""
        self.count_values(*values)
        if name in _GROWS:
            self.fits(_GROWS[name](values))
        if name in _TAKES:
            self.spend(_TAKES[name](values))
        if name in ("encode", "decode"):
            for codec in (it for it in values[1:] if isinstance(it, str)):
                if codec.lower().replace("_", "-") not in (*_CODECS, *_OF_ERRORS):
                    raise TooMuch(f"it uses the encoding {codec[:40]!r}; available are {', '.join(_CODECS)}")


def _formatted(text: str | bytes, values: Sequence[Any]) -> int:
    """Returns an upper bound of the formatted length: the widths in the text, and every value at every place."""
    places = _PLACES.findall(_text(text))
    named = sum(int(it) for place in places for it in re.findall(r"\d{1,10}", place))
    given = any("*" in place for place in places) or _NESTED.search(_text(text)) is not None
    return len(text) + named + len(places) * (_total_length(values, given) if places else 0)


def _total_length(value: Any, widths: bool) -> int:
    """Returns the total length of all texts in a value. With `widths`, integers count their value, as they may be widths."""
    if isinstance(value, Mapping):
        value = [*value.values()]
    if isinstance(value, list | tuple):
        return sum(_total_length(it, widths) for it in value)
    return len(value) if isinstance(value, _TEXTS) else abs(value) if isinstance(value, int) and widths else _ELEMENT


def _number(values: Sequence[Any]) -> int:
    return max((abs(it) for it in values[1:] if isinstance(it, int)), default=0)


def _length(value: Any) -> int:
    return len(value) if hasattr(value, "__len__") else 1


def _replaced(values: Sequence[Any]) -> int:
    text, old, new = (*map(_text, values[:3]), "", "")[:3]
    return len(text) + text.count(old) * len(new)


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _multiplied(values: Sequence[Any]) -> int:
    """Returns a bound for results with a part of every argument's size per character or element."""
    return _length(values[0]) * max([_number(values), *(_length(it) for it in values[1:])])


def _searched(values: Sequence[Any]) -> int:
    """Returns a bound for searches from the end, which compare every pair of characters."""
    return _multiplied([it for it in values if isinstance(it, _TEXTS)] or [""]) // 100


_GROWS: dict[str, Callable[[Sequence[Any]], int]] = {
    **dict.fromkeys(("center", "ljust", "rjust", "zfill", "batch", "slice", "to_bytes", "truncate"), _number),
    **dict.fromkeys(("rfind", "rindex", "rsplit", "rpartition"), _searched),
    **dict.fromkeys(("expandtabs", "join"), _multiplied),
    **dict.fromkeys(("format", "format_map"), lambda values: _formatted(str(values[0]), values[1:])),
    "indent": lambda values: _multiplied([_text(values[0]).splitlines(), *values[1:]]),
    "replace": _replaced,
    "round": lambda values: _number(values) ** 2,
    "translate": lambda values: _length(values[0]) * _total_length(list(values[1:]), False),
    "sum": lambda values: _length(values[0]) ** 2 if any(isinstance(it, list | tuple) for it in values[1:]) else 0,
}
"""Bounds of results, in characters, for functions with results that may be longer than all arguments together."""


def _stripped(values: Sequence[Any]) -> int:
    """Returns a bound for stripping: each character of one text is searched in the other."""
    return _multiplied([it for it in values if isinstance(it, _TEXTS)] or [""]) // _COMPARED


def _attributes(values: Sequence[Any]) -> int:
    """Returns the number of attribute lookups: every named attribute of every element."""
    names = sum(1 + it.count(".") + it.count(",") for it in values[1:] if isinstance(it, str))
    return _length(values[0]) * names


_OF_ATTRIBUTES = (
    *("sort", "unique", "min", "max", "groupby", "map", "sum", "join"),
    *("select", "reject", "selectattr", "rejectattr"),
)
_TAKES: dict[str, Callable[[Sequence[Any]], int]] = {
    **dict.fromkeys(("strip", "lstrip", "rstrip", "trim"), _stripped),
    **dict.fromkeys(_OF_ATTRIBUTES, _attributes),
}
"""Steps of functions with a cost above the size of their arguments and results."""
