"""The sources of a session's provider options.

In: ONNX Runtime's configuration of a session and of its environment, and the options of `session()`. Out: checked `Options`.
Invariant: a key with two different values is an error. The options of `session()` take precedence over the SessionOptions,
these over `set_default_options`, and these over the environment's.

A session has one entry per option, `ep.<provider>.<key>`, with the provider's name in lower case. `add_provider_for_devices`
stores options in the same form. The entries of both provider names are read, whichever the session uses.

The environment has `ep_factory.<provider>.<key>`. Only programs that make the environment themselves can set these entries, by
`CreateEnvWithOptions` of the C interface. The Python module of ONNX Runtime makes its environment on import, without options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import OptionError
from ..options import Layer, Options, parse, program_defaults
from . import watch
from .abi import Ort


def options_of(ort: Ort, session: Any, names: Sequence[str]) -> Options:
    """Returns the options of a session, given as OrtSessionOptions. `names`: those of the provider. Raises OptionError."""
    entries = entries_of(ort, session)
    around = _read(ort, ort.get_out(ort.ep.GetEnvConfigEntries, "OrtKeyValuePairs *"))
    own = options_under(entries, [f"ep.{name.lower()}." for name in names])
    defaults = options_under(around, [f"ep_factory.{name}." for name in names])
    return parse({**own, **watch.options()}, [Layer("environment configuration", defaults), program_defaults()])


def entries_of(ort: Ort, session: Any) -> dict[str, str]:
    """Returns the configuration of a session, given as OrtSessionOptions."""
    return _read(ort, ort.get(ort.api.GetSessionOptionsConfigEntries, session, "OrtKeyValuePairs *"))


def _read(ort: Ort, pairs: Any) -> dict[str, str]:
    """Reads key-value pairs and releases them."""
    try:
        return ort.read_pairs(pairs)
    finally:
        ort.api.ReleaseKeyValuePairs(pairs)


def options_under(entries: Mapping[str, str], prefixes: Sequence[str]) -> dict[str, str]:
    """Returns the options among configuration entries. Raises OptionError if two prefixes give a key different values."""
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
