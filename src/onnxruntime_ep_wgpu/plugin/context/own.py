"""Which contexts this user made: their kernels need no checks. Of others they are text from anybody.

In: the digest of a context. Out: whether it was written by a process of this user, on this machine. Invariant: what says so lies in
the folder of the cache, which no other user can write to. Without a cache, or when an entry made room for others, it has no owner.
"""

from __future__ import annotations

import hashlib

from ...kept.entry import Entry, EntryError, read, written
from ...kept.folder import Folder, folder_path

KIND = "own context"


def note(digest: str, graph: str, adapter: str) -> None:
    """Notes a context that was written just now."""
    path, key = folder_path(), _key(digest)
    if path is not None:
        Folder(path).write(key, written(key, Entry(KIND, {}, {}, {"graph": graph, "adapter": adapter})))


def is_own(digest: str) -> bool:
    """Whether a context was noted."""
    path, key = folder_path(), _key(digest)
    data = None if path is None else Folder(path).read(key)
    try:
        return data is not None and read(data, key, KIND).kind == KIND
    except EntryError:
        return False


def _key(digest: str) -> str:
    return hashlib.sha256(f"{KIND} {digest}".encode()).hexdigest()
