"""Adds to each kernel the prelude functions that it uses."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from ..templates.functions import NAME, definitions
from .branches import with_single_branches


@lru_cache(maxsize=256)
def _mentioned(text: str) -> tuple[str, ...]:
    """Returns the names in a text, in order. Cached, since the layers of a network have equal texts."""
    return tuple(sorted(set(NAME.findall(text))))


_BEGIN = "  let w = id.x"  # of `main`, which `writer.py` writes


def with_needed(text: str, pairs: bool, own: Mapping[str, str] | None = None) -> str:
    """Returns a kernel with its `main`, after the definitions that it uses. `main` sets the variables these need."""
    functions = needed(text, pairs, own)
    if "hidden_zero" in functions:
        assert _BEGIN in text, "an entry point begins with the number of its workgroup"
        text = text.replace(_BEGIN, f"  hidden_zero = id.z;  // a grid has two dimensions\n{_BEGIN}", 1)
    return f"{functions}\n{text}"


def needed(text: str, pairs: bool, own: Mapping[str, str] | None = None) -> str:
    """Returns the definitions that `text` uses, directly or indirectly, in an order that declares before use.

    `own` are functions of the kernel by name, in addition to those of the prelude. The kernel may call them very often.
    """
    known = definitions(pairs)
    if own:
        mentions = {
            name: (with_single_branches(code), frozenset(NAME.findall(code)) - {name}) for name, code in own.items()
        }
        known = {**known, **mentions}
    wanted: dict[str, None] = {}

    def want(name: str) -> None:
        if name in wanted or name not in known:
            return
        for other in sorted(known[name][1]):
            want(other)
        wanted[name] = None

    for name in _mentioned(text):
        want(name)
    return "\n".join(known[name][0] for name in wanted)
