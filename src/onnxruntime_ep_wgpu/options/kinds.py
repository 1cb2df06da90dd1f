"""The kinds of options: flags, choices, numbers, addresses, paths, names. Each kind parses text to a value, or raises
ValueError, and converts Python values to text, or raises TypeError."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..records import dataclass

NO_EFFECT = "none yet"


def integer_text(value: Any) -> str:
    """Returns text unchanged, and integers, including numpy's, in decimal. Rejects bools."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        raise TypeError(value)
    return str(operator.index(value))


def flag_text(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else integer_text(value)


def path_text(value: Any) -> str:
    path = os.fspath(value)
    if not isinstance(path, str):
        raise TypeError(value)
    return path


def lines_text(value: Any) -> str:
    """Returns one name, or several as lines."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise TypeError(value)
    return "\n".join(value)


@dataclass(frozen=True)
class Option:
    """An option. `domain` describes the valid values.

    `parse` turns text into a value or raises ValueError. `text` turns a Python value into text, or raises TypeError for a wrong
    type. `inert` are values without effect; the log has a line when one is set. If the option itself has no effect, that is
    every value but the default. `needs_original`: sessions with another value than the default open no compiled model from the
    cache, because the option needs the nodes of the model, or objects in the caller's memory.
    """

    key: str
    domain: str
    default: str
    help: str
    parse: Callable[[str], Any]
    effect: str = NO_EFFECT
    inert: tuple[str, ...] = ()
    text: Callable[[Any], str] = integer_text
    needs_original: bool = False

    def changes_nothing(self, text: str) -> bool:
        """Returns whether setting this value has no effect."""
        return text in self.inert or (self.effect.startswith(NO_EFFECT) and text != self.default)


class RefusedValue(ValueError):
    """A well-formed value that this provider cannot support; the message is the reason."""


def flag(
    key: str,
    default: str,
    help: str,
    effect: str = NO_EFFECT,
    inert: tuple[str, ...] = (),
    needs_original: bool = False,
) -> Option:
    def parse(text: str) -> bool:
        return _member(text, ("0", "1")) == "1"

    return Option(key, "0, 1", default, help, parse, effect, inert, flag_text, needs_original)


def choice(
    key: str,
    values: tuple[str, ...],
    default: str,
    help: str,
    effect: str = NO_EFFECT,
    inert: tuple[str, ...] = (),
    refused: Mapping[str, str] | None = None,
) -> Option:
    """An option with one of `values`, or the default, which may be empty. `refused` maps unsupported values to reasons."""

    def parse(text: str) -> str:
        if refused and text in refused:
            raise RefusedValue(refused[text])
        return _member(text, (*values, default))

    return Option(key, ", ".join([*values, *([] if default else ["or empty"])]), default, help, parse, effect, inert)


def number(
    key: str, low: int, high: int | None, default: str, help: str, effect: str = NO_EFFECT, also: int | None = None
) -> Option:
    """An option with an integer from `low` to `high`, or the single value `also`."""
    limits = f"{low} or more" if high is None else f"{low} to {high}"
    domain = f"an integer, {limits}" if also is None else f"an integer, {also} or {limits}"

    def parse(text: str) -> int:
        value = _integer(text)
        if value != also and (value < low or (high is not None and value > high)):
            raise ValueError(text)
        return value

    return Option(key, domain, default, help, parse, effect)


def cache(key: str, default: str, what: str, effect: str) -> Option:
    return choice(key, ("disabled", "lazyRelease", "simple", "bucket"), default, f"Reuse of {what}.", effect)


def foreign(key: str, what: str, lacks: str) -> Option:
    """An option with the address of an object that only another WebGPU implementation has. Only 0 is accepted."""

    def parse(text: str) -> int:
        if _integer(text):
            raise RefusedValue(f"this provider is built on wgpu, which {lacks}; leave the option out")
        return 0

    effect = f"refused unless 0: this provider is built on wgpu, which {lacks}"
    return Option(key, "0", "0", f"Accepted for compatibility: {what}.", parse, effect, needs_original=True)


def address(key: str, help: str) -> Option:
    """An option with the address of an object of the loaded wgpu-native library."""
    effect = "both addresses come from `device_options()`; an unknown address, or one without the other, is an error"
    domain = "an address as a decimal number; 0 is none"
    return replace(number(key, 0, 2**64 - 1, "0", help, effect), domain=domain, needs_original=True)


def _integer(text: str) -> int:
    """Stricter than int(): no spaces, signs, underscores or leading zeros."""
    if not (text.isascii() and text.isdigit()) or text != (text.lstrip("0") or "0"):
        raise ValueError(text)
    return int(text)


def _member(text: str, values: tuple[str, ...]) -> str:
    if text not in values:
        raise ValueError(text)
    return text


def lines(text: str) -> tuple[str, ...]:
    return tuple(name for name in (line.strip() for line in text.splitlines()) if name)
