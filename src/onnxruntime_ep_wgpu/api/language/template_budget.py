"""What a chat template may use: how many steps, and how large one value may be. A template is a program that a stranger wrote.

In: values before they are made larger, and after. Out: nothing. Raises TooMuch. Invariant: steps are counted, never seconds, so
equal conversations end alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jinja2.exceptions import SecurityError

STEPS = 5_000_000
"""Parts of a template that are evaluated, elements that are looked at, and every 10 characters that are made: some seconds."""
LARGEST = 10_000_000
"""Characters of one text; an element of a list counts as 10."""
CHARACTERS = 10
"""In a step."""
_ELEMENT = 10
_BITS = 100_000  # of an integer
_BIT_PAIRS = 1_000_000  # that a product, a quotient or a text of an integer looks at in a step
_COMPARED = 1_000  # characters that are compared with characters in a step
_CODECS = ("utf-8", "utf8", "ascii", "latin-1", "utf-16", "utf-32")
"""Encodings of linear time: idna and punycode take that of the square."""
_OF_ERRORS = ("strict", "ignore", "replace", "backslashreplace", "xmlcharrefreplace")

_PLACES = re.compile(r"%(?:\([^)]*\))?[-+ #0-9.*]*|\{[^{}]*")
_NESTED = re.compile(r"\{[^{}]*\{")
_TEXTS = (str, bytes)


class TooMuch(SecurityError):
    """The template does more than a chat template needs."""


class Budget:
    """What is left of one rendering. Of `given` and its elements, which templates read again and again, the size is kept."""

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
        """A value of this size may be made."""
        if size > LARGEST:
            raise TooMuch(f"it makes a value of more than {LARGEST:,} characters")

    def look(self, *values: Any) -> None:
        """Values that are read whole, or were made."""
        total = 0
        for value in values:
            size, steps = self._measure(value)
            total += size
            self.fits(total)
            self.spend(steps)

    def _measure(self, value: Any) -> tuple[int, int]:
        """Its size, with what is in it more than once counted as often, and the steps that it takes to read it."""
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
                steps += it.bit_length() ** 2 // _BIT_PAIRS  # what a text of it takes
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

    # ---- before something is made

    def binary(self, operator: str, left: Any, right: Any) -> None:
        """`left operator right` may be calculated."""
        self.look(left, right)
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
        """A method or a filter of this name may be called; the first one is what it is called on."""
        self.look(*values)
        if name in _GROWS:
            self.fits(_GROWS[name](values))
        if name in _TAKES:
            self.spend(_TAKES[name](values))
        if name in ("encode", "decode"):
            for codec in (it for it in values[1:] if isinstance(it, str)):
                if codec.lower().replace("_", "-") not in (*_CODECS, *_OF_ERRORS):
                    raise TooMuch(f"it uses the encoding {codec[:40]!r}; {', '.join(_CODECS)} are there")


def _formatted(text: str | bytes, values: Sequence[Any]) -> int:
    """No fewer characters than formatting gives: widths that the text names, and every value at every place."""
    places = _PLACES.findall(_text(text))
    named = sum(int(it) for place in places for it in re.findall(r"\d{1,10}", place))
    given = any("*" in place for place in places) or _NESTED.search(_text(text)) is not None
    return len(text) + named + len(places) * (_whole(values, given) if places else 0)


def _whole(value: Any, widths: bool) -> int:
    """The length of all texts in a value; of integers themselves where they may be widths."""
    if isinstance(value, Mapping):
        value = [*value.values()]
    if isinstance(value, list | tuple):
        return sum(_whole(it, widths) for it in value)
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
    """Something of the size of every argument for every character or element."""
    return _length(values[0]) * max([_number(values), *(_length(it) for it in values[1:])])


def _searched(values: Sequence[Any]) -> int:
    """Searching from the end looks at every character of the one for every character of the other."""
    return _multiplied([it for it in values if isinstance(it, _TEXTS)] or [""]) // 100


_GROWS: dict[str, Callable[[Sequence[Any]], int]] = {
    **dict.fromkeys(("center", "ljust", "rjust", "zfill", "batch", "slice", "to_bytes", "truncate"), _number),
    **dict.fromkeys(("rfind", "rindex", "rsplit", "rpartition"), _searched),
    **dict.fromkeys(("expandtabs", "join"), _multiplied),
    **dict.fromkeys(("format", "format_map"), lambda values: _formatted(str(values[0]), values[1:])),
    "indent": lambda values: _multiplied([_text(values[0]).splitlines(), *values[1:]]),
    "replace": _replaced,
    "round": lambda values: _number(values) ** 2,
    "translate": lambda values: _length(values[0]) * _whole(list(values[1:]), False),
    "sum": lambda values: _length(values[0]) ** 2 if any(isinstance(it, list | tuple) for it in values[1:]) else 0,
}
"""The characters of a result that may be longer than all that the function is given together."""


def _stripped(values: Sequence[Any]) -> int:
    """Each character of the one text may be looked for in the other."""
    return _multiplied([it for it in values if isinstance(it, _TEXTS)] or [""]) // _COMPARED


def _attributes(values: Sequence[Any]) -> int:
    """Every attribute that a text names, of every element."""
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
"""The steps of a function that takes more of them than its arguments and its result have parts."""
