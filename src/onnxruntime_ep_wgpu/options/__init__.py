"""Provider options: `table` has them, `kinds` says what values one can take, `types` is the table as types for editors; fields of
settings say which they are made of (`fields.py` of the package). Here they are checked.

In: options as text, in layers: the defaults that a program sets, the environment's, a session's own. Out: `Options`,
checked. Invariant: an unknown key or a value outside the domain raises OptionError, which names the key, the value and
the nearest key or the valid values; an option is never ignored silently (`effect` says so in the documentation, and the log
when it is set).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from ..errors import OptionError, cut
from ..records import dataclass
from .kinds import NO_EFFECT as NO_EFFECT
from .kinds import Option, RefusedValue
from .table import OPTIONS as OPTIONS
from .types import ProviderOptions


@dataclass(frozen=True)
class Options:
    """Checked options of one session. `given` is what was set in any layer, as text."""

    values: Mapping[str, Any]
    given: Mapping[str, str]

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def without_effect(self) -> list[str]:
        """The keys that were set to something that does not happen in this version."""
        return [key for key, text in self.given.items() if OPTIONS[key].changes_nothing(text)]

    def warnings(self) -> list[str]:
        """A line for each of these."""
        return [f"option {key}={self.given[key]!r} has no effect in this version" for key in self.without_effect()]


@dataclass(frozen=True)
class Layer:
    """Options from one place; `source` names it in errors, "" for the session's own."""

    source: str
    given: Mapping[str, str]


def parse(given: Mapping[str, str], defaults: Sequence[Layer] = ()) -> Options:
    """Checks options. `given` wins over `defaults`, later defaults over earlier ones.

    Raises OptionError for the first wrong key or value, in a layer that is overruled too.
    """
    values = {key: option.parse(option.default) for key, option in OPTIONS.items()}
    texts: dict[str, str] = {}
    for layer in (*defaults, Layer("", given)):
        for key, text in layer.given.items():
            values[key] = _value(key, text, f" ({layer.source})" if layer.source else "")
            texts[key] = text
    return Options(values, texts)


def require(key: str, where: str = "") -> Option:
    """The option of this key. Raises OptionError with the nearest key; `where` goes behind the unknown one."""
    option = OPTIONS.get(key)
    if option is None:
        raise OptionError(
            f"unknown option {cut(key)}{where}{_nearest(key, list(OPTIONS))}; `wgpu-ep options` and docs/options.md list"
            f" all {len(OPTIONS)}"
        )
    return option


def _value(key: str, text: str, source: str) -> Any:
    option = require(key, f"{source} with the value {cut(text)}")
    try:
        return option.parse(text)
    except RefusedValue as refused:
        raise OptionError(
            f"option {key!r}{source}: {cut(text)} is refused: {refused}; valid: {option.domain}"
        ) from None
    except ValueError:
        near = _nearest(text, option.domain.split(", ")) if ", " in option.domain else ""
        raise OptionError(f"option {key!r}{source}: {cut(text)} is not valid; valid: {option.domain}{near}") from None


_program_defaults: dict[str, str] = {}


def set_default_options(**options: Unpack[ProviderOptions]) -> None:
    """Sets what sessions use that do not set an option themselves, from now on and in this process.

    Replaces the defaults that were set before: without arguments, the built-in ones hold again. A session's own options
    win; these win over the environment's configuration. Raises OptionError, and then changes nothing.
    """
    texts = {key: as_text(key, value, " (set_default_options)") for key, value in options.items()}
    parse({}, [Layer("set_default_options", texts)])
    global _program_defaults
    _program_defaults = texts


def program_defaults() -> Layer:
    """What `set_default_options` set."""
    return Layer("set_default_options", _program_defaults)


def as_text(key: str, value: Any, source: str = "") -> str:
    """A Python value as the text of an option: flags become 1 and 0, several names become lines. Raises OptionError for an unknown
    key, and for a value of a type that the option does not take: nothing is made text that only looks like one. `source` goes
    behind the key."""
    option = require(key, f"{source} with the value {cut(value)}")
    try:
        return option.text(value)
    except TypeError:
        raise OptionError(
            f"option {key!r}{source}: {cut(value)} is of type {type(value).__name__}; valid: {option.domain}"
        ) from None


def _nearest(text: str, candidates: list[str]) -> str:
    import difflib

    lowered = {candidate.lower(): candidate for candidate in candidates}
    found = difflib.get_close_matches(text.lower()[:100], list(lowered), n=1, cutoff=0.5)
    return f" (did you mean {lowered[found[0]]!r}?)" if found else ""
