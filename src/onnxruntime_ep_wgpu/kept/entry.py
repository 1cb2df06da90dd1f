"""The byte format of an entry: a JSON header followed by data, under a digest of both.

In: the content and its key. Out: bytes, and the same content from them. Invariants: changed or truncated bytes, or an entry of
another key, raise EntryError and are never misread. Nothing in an entry is executed.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..program.reading import parsed
from ..records import dataclass

_MAGIC = b"wgpucach"
FORMAT = 1
_ALIGNED = 16


class EntryError(ValueError):
    """An entry is damaged, or belongs to another key."""


_MALFORMED = (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError, struct.error)


@contextmanager
def understood() -> Iterator[None]:
    """Turns Python's errors about malformed data in the `with` into EntryErrors. For code that reads untrusted bytes."""
    try:
        yield
    except EntryError:
        raise
    except _MALFORMED as error:
        raise EntryError(f"{type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class Entry:
    """An entry of the cache.

    `facts` maps constants to digests that must match. `about` describes the entry to users. `content` has offsets into
    `data`."""

    kind: str
    facts: Mapping[str, str]
    content: Mapping[str, Any]
    about: Mapping[str, str]
    data: bytes | memoryview = b""


def written(key: str, entry: Entry) -> bytes:
    """Returns the bytes of an entry."""
    header = {"key": key, "kind": entry.kind, "facts": entry.facts, "content": entry.content, "about": entry.about}
    text = json.dumps(header, separators=(",", ":")).encode()
    rest = struct.pack("<II", FORMAT, len(text)) + text
    rest += b"\0" * (-(len(_MAGIC) + 32 + len(rest)) % _ALIGNED) + entry.data
    return _MAGIC + hashlib.sha256(rest).digest() + rest


def read(data: bytes, key: str | None, *kinds: str) -> Entry:
    """Reads an entry of this key and one of these kinds; a key of None accepts any. Raises EntryError."""
    if data[:8] != _MAGIC:
        raise EntryError("it is not an entry of a cache")
    rest = memoryview(data)[40:]
    if hashlib.sha256(rest).digest() != data[8:40]:
        raise EntryError("its digest does not match")
    with understood():
        version, length = struct.unpack("<II", rest[:8])
        if version != FORMAT:
            raise EntryError(f"its format is {version}, this package reads {FORMAT}")
        header = parsed(bytes(rest[8 : 8 + length]))
        start = 8 + length
        found = Entry(
            _checked(str, header["kind"]),
            _texts(header["facts"]),
            _checked(dict, header["content"]),
            _texts(header["about"]),
            rest[start + -(40 + start) % _ALIGNED :],
        )
        if key is not None and (header["key"] != key or found.kind not in kinds):
            raise EntryError("it belongs to another key or kind")
    return found


def _checked(kind: type, it: Any) -> Any:
    if type(it) is not kind:
        raise EntryError(f"expected {kind.__name__}")
    return it


def _texts(it: Any) -> dict[str, str]:
    if not all(type(text) is str for text in _checked(dict, it).values()):
        raise EntryError("expected strings")
    return dict(it)
