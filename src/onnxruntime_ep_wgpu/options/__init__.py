"""Provider options and their validation.

`table` defines them, `kinds` has their types of values, and `types` is the same table as Python types for editors. Fields of
settings name the options that set them (`fields.py` of the package).

In: options as text, in layers: defaults set by the program, the environment's, a session's own. Out: validated `Options`.
Invariants: an unknown key or an invalid value raises OptionError with the key, the value, and the nearest key or the valid
values. No option is ignored silently: its `effect` in the documentation, and a log line when it is set, say that it does
nothing.
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
    """The validated options of one session. `given` has the options that any layer set, as text."""

    values: Mapping[str, Any]
    given: Mapping[str, str]

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def without_effect(self) -> list[str]:
        """Returns the keys that are set to a value without effect in this version."""
        return [key for key, text in self.given.items() if OPTIONS[key].changes_nothing(text)]

    def warnings(self) -> list[str]:
        """Returns a warning for each of these."""
        return [f"option {key}={self.given[key]!r} has no effect in this version" for key in self.without_effect()]


@dataclass(frozen=True)
class Layer:
    """Options from one source. `source` names it in errors; it is "" for the session's own."""

    source: str
    given: Mapping[str, str]


def parse(given: Mapping[str, str], defaults: Sequence[Layer] = ()) -> Options:
    """Validates options. `given` overrides `defaults`, and later defaults override earlier ones.

    Raises OptionError for the first wrong key or value, even if a later layer overrides it.
    """
    values = {key: option.parse(option.default) for key, option in OPTIONS.items()}
    texts: dict[str, str] = {}
    for layer in (*defaults, Layer("", given)):
        for key, text in layer.given.items():
            values[key] = _value(key, text, f" ({layer.source})" if layer.source else "")
            texts[key] = text
    return Options(values, texts)


def require(key: str, where: str = "") -> Option:
    """Returns the option of a key. Raises OptionError with the nearest key; `where` is appended to the unknown one."""
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
            f"option {key!r}{source}: {cut(text)} is rejected: {refused}; valid: {option.domain}"
        ) from None
    except ValueError:
        near = _nearest(text, option.domain.split(", ")) if ", " in option.domain else ""
        raise OptionError(f"option {key!r}{source}: {cut(text)} is not valid; valid: {option.domain}{near}") from None


_program_defaults: dict[str, str] = {}


def set_default_options(**options: Unpack[ProviderOptions]) -> None:
    """Sets defaults for all sessions that this process creates from now on.

    Replaces earlier defaults; without arguments, the built-in ones apply again. A session's own options override these, and
    these override the environment's configuration. Raises OptionError for a wrong option, and then changes nothing.
    """
    texts = {key: as_text(key, value, " (set_default_options)") for key, value in options.items()}
    parse({}, [Layer("set_default_options", texts)])
    global _program_defaults
    _program_defaults = texts


def program_defaults() -> Layer:
    """Returns the defaults from `set_default_options`."""
    return Layer("set_default_options", _program_defaults)


def as_text(key: str, value: Any, source: str = "") -> str:
    """Returns a Python value as an option's text: flags become 1 and 0, several names become lines.

    Raises OptionError for an unknown key, and for a value of a wrong type; there is no implicit conversion to text. `source` is
    appended to the key in messages."""
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
