"""The byte format of an entry: a JSON header followed by data, under a digest of both.

Entries are the files of the cache, and the contexts of compiled models, which users keep. In: the content and its key. Out:
bytes, and the same content from them. Invariants: changed or truncated bytes, or an entry of another key, raise EntryError and
are never misread. Nothing in an entry is executed.
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
DIGEST = slice(len(_MAGIC), len(_MAGIC) + hashlib.sha256().digest_size)
"""The place of the digest in an entry. It is the digest of all bytes behind it."""
_SIZES = struct.Struct("<II")  # the format, and the number of bytes of the header, which follows
HEADER_START = DIGEST.stop + _SIZES.size
_ALIGNED = 16


class EntryError(ValueError):
    """An entry is damaged, or belongs to another key."""


class FormatError(EntryError):
    """An entry has another version of the format."""


_MALFORMED = (
    ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, struct.error,
)  # fmt: skip


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
    """An entry of the cache or a context.

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
    return packed(json.dumps(header, separators=(",", ":")).encode(), entry.data)


def packed(header: bytes, data: bytes | memoryview) -> bytes:
    """Returns the bytes of an entry with this header as JSON."""
    rest = _SIZES.pack(FORMAT, len(header)) + header
    rest += b"\0" * (-(DIGEST.stop + len(rest)) % _ALIGNED) + data
    return _MAGIC + hashlib.sha256(rest).digest() + rest


def digest_of(data: bytes) -> str:
    """Returns the digest in the bytes of an entry, which identifies them. `read` verifies it."""
    return data[DIGEST].hex()


def header_of(data: bytes) -> bytes:
    """Returns the header in the bytes of an entry, as JSON. Raises struct.error, FormatError."""
    version, length = _SIZES.unpack_from(data, DIGEST.stop)
    if version != FORMAT:
        raise FormatError(f"its format is {version}, this package reads {FORMAT}")
    return data[HEADER_START : HEADER_START + length]


def read(data: bytes, key: str | None, *kinds: str) -> Entry:
    """Reads an entry of this key and one of these kinds; a key of None accepts any. Raises EntryError."""
    if not data.startswith(_MAGIC):
        raise EntryError("its first bytes are not those of this format")
    if hashlib.sha256(memoryview(data)[DIGEST.stop :]).digest() != data[DIGEST]:
        raise EntryError("its digest does not match")
    with understood():
        text = header_of(data)
        header = parsed(text)
        end = HEADER_START + len(text)
        found = Entry(
            _checked(str, header["kind"]),
            _texts(header["facts"]),
            _checked(dict, header["content"]),
            _texts(header["about"]),
            memoryview(data)[end + -end % _ALIGNED :],
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
