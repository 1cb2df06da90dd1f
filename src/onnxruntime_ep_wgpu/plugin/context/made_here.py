"""Records which contexts this user made. Their kernels need no bounds checks; kernels of other contexts are untrusted text.

In: the digest of a context. Out: whether a process of this user wrote it, on this machine. Invariant: the record is an entry in
the cache's folder, which no other user can write to. Without a cache, or after the entry was evicted, a context counts as not
made by this user.
"""

from __future__ import annotations

import hashlib

from ...kept.entry import Entry, EntryError, read, written
from ...kept.folder import Folder, folder_path

KIND = "own context"


def record(digest: str, graph: str, adapter: str) -> None:
    """Records a context that this process has just written."""
    path, key = folder_path(), _key(digest)
    if path is not None:
        Folder(path).write(key, written(key, Entry(KIND, {}, {}, {"graph": graph, "adapter": adapter})))


def is_made_here(digest: str) -> bool:
    """Whether a context was recorded."""
    path, key = folder_path(), _key(digest)
    data = None if path is None else Folder(path).read(key)
    try:
        return data is not None and read(data, key, KIND).kind == KIND
    except EntryError:
        return False


def _key(digest: str) -> str:
    return hashlib.sha256(f"{KIND} {digest}".encode()).hexdigest()
