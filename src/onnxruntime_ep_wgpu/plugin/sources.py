"""Where a session's provider options come from.

In: ONNX Runtime's configuration of a session and of its environment, and what `session()` was given. Out: checked
`Options`. Invariant: a key that is given twice with different values is an error; what `session()` was given wins over the
SessionOptions, these over `set_default_options`, and these over the environment's.

A session has one entry per option, `ep.<provider>.<key>`, with the provider's name in lower case: that is how
`add_provider_for_devices` stores options too. Both provider names are read, whichever the session uses. The environment
has `ep_factory.<provider>.<key>`, which only programs that make the environment themselves can set (`CreateEnvWithOptions`
of the C interface): the Python module of ONNX Runtime makes its environment when it is imported, without a way in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import OptionError
from ..options import Layer, Options, parse, program_defaults
from . import watch
from .abi import Ort


def options_of(ort: Ort, session: Any, names: Sequence[str]) -> Options:
    """The options of a session, given as OrtSessionOptions; `names` are the provider's. Raises OptionError."""
    entries = entries_of(ort, session)
    around = _read(ort, ort.get_out(ort.ep.GetEnvConfigEntries, "OrtKeyValuePairs *"))
    own = under(entries, [f"ep.{name.lower()}." for name in names])
    defaults = under(around, [f"ep_factory.{name}." for name in names])
    return parse({**own, **watch.options()}, [Layer("environment configuration", defaults), program_defaults()])


def entries_of(ort: Ort, session: Any) -> dict[str, str]:
    """The configuration of a session, given as OrtSessionOptions."""
    return _read(ort, ort.get(ort.api.GetSessionOptionsConfigEntries, session, "OrtKeyValuePairs *"))


def _read(ort: Ort, pairs: Any) -> dict[str, str]:
    """Key-value pairs that are ours to release."""
    try:
        return ort.read_pairs(pairs)
    finally:
        ort.api.ReleaseKeyValuePairs(pairs)


def under(entries: Mapping[str, str], prefixes: Sequence[str]) -> dict[str, str]:
    """The options among configuration entries. Raises OptionError when two prefixes disagree about a key."""
    found: dict[str, str] = {}
    where: dict[str, str] = {}
    for prefix in prefixes:
        for entry, text in entries.items():
            if not entry.startswith(prefix):
                continue
            key = entry.removeprefix(prefix)
            if found.setdefault(key, text) != text:
                raise OptionError(
                    f"option {key!r} is given twice: {where[key]!r} is {found[key]!r} and {entry!r} is {text!r};"
                    " leave one of them out"
                )
            where.setdefault(key, entry)
    return found
