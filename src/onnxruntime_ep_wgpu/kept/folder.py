"""The folder of cache entries: its location, its access rights and its size limit.

In: the environment, names and bytes. Out: the bytes stored under a name, or None.

Invariants:

- Nothing here raises OSError. A full, read-only or missing disk only disables the cache.
- An entry appears completely or not at all, even if a process is killed.
- A folder or file that another user can write is not read.
- At most `most` bytes stay: the most recently used entries.
- An entry may have a second file for large constants, which readers map. It is removed with the entry.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from collections.abc import Iterable
from contextlib import suppress

from ..errors import WriteError
from ..records import dataclass
from ..writing import atomic_file

VARIABLE = "WGPU_EP_CACHE"
OFF = "off"
NAME = "onnxruntime-ep-wgpu"
SUFFIX, APART_SUFFIX = ".wgpucache", ".wgpuweights"
MOST_BYTES = 512 << 20  # limit of all entries
MOST_ENTRY_BYTES = 32 << 20
MOST_APART_BYTES = MOST_BYTES // 2  # limit of an entry's second file
_KEPT_PART = 0.75  # of the limit that eviction leaves
_ABANDONED = 3600  # seconds after which an unfinished file is assumed to belong to a killed process
# The package's own file names. Other files in the folder are not counted, read or removed.
_ENTRY = re.compile(r"([0-9a-f]{64})\.wgpu(cache|weights)")
_PARTIAL = re.compile(r"\.[0-9a-f]{40}\.[0-9a-f]{8}\.partial")


def folder_path() -> str | None:
    """Returns the folder of entries, from WGPU_EP_CACHE or the system's conventions; None if the cache is turned off."""
    setting = os.environ.get(VARIABLE, "").strip()
    if setting.lower() in (OFF, "0"):  # 0 turns it off, as for other variables; `./0` is a folder
        return None
    if setting:
        place = os.path.expanduser(setting)
        with suppress(OSError):  # the current folder may have been deleted
            place = os.path.abspath(place)
        return os.path.join(place, "programs")
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "")
    elif sys.platform == "darwin":
        base = os.path.expanduser("~/Library/Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME", "")
        base = base if os.path.isabs(base) else os.path.expanduser("~/.cache")
    return os.path.join(base, NAME, "programs") if os.path.isabs(base) else None


@dataclass(frozen=True)
class Kept:
    """An entry. `nbytes` is the size of all its files, `used` the time of the last read or write in seconds since 1970."""

    name: str
    nbytes: int
    used: float


class Folder:
    """The entries at a path. `problem` is the reason why the folder cannot be used, else ""."""

    def __init__(self, path: str, most: int = MOST_BYTES) -> None:
        self.path, self.most = path, most
        self.problem = ""

    def check(self) -> str:
        """Returns why nothing can be kept here, or "". Makes the folder if it is missing."""
        return "" if self._is_ours(make=True) else self.problem

    def read(self, name: str, *, used: bool = True) -> bytes | None:
        """Returns the bytes of an entry, or None if it is missing or not private. Without `used`, its age does not change."""
        if not self._is_ours():
            return None
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        path = self._path(name)
        try:
            number = os.open(path, flags)
        except (OSError, ValueError):
            return None
        try:
            found = os.fstat(number)
            if not stat.S_ISREG(found.st_mode) or not _is_private(found) or found.st_size > MOST_ENTRY_BYTES:
                return None
            with open(number, "rb", closefd=False) as file:
                data = file.read(MOST_ENTRY_BYTES)
        except OSError:
            return None
        finally:
            os.close(number)
        if used:
            with suppress(OSError):
                os.utime(path)
        return data

    def write(self, name: str, data: bytes) -> bool:
        """Writes an entry, and evicts the oldest ones if necessary. Returns whether it was written."""
        if len(data) > MOST_ENTRY_BYTES or not self._is_ours(make=True):
            return False
        try:
            with atomic_file(self._path(name), durable=False, private=True) as file:
                file.write(data)
        except (WriteError, OSError) as error:
            self.problem = str(error)
            return False
        self._make_room()
        return True

    def second_path(self, name: str) -> str:
        """Returns the path of an entry's second file, which may not exist."""
        return os.path.join(self.path, name + APART_SUFFIX)

    def write_second(self, name: str, parts: Iterable[bytes | memoryview]) -> bool:
        """Writes an entry's second file, before the entry. Returns whether it was written.

        The file is flushed to the disk, because readers do not verify it."""
        if not self._is_ours(make=True):
            return False
        try:
            with atomic_file(self.second_path(name), private=True) as file:
                for it in parts:
                    file.write(it)
        except (WriteError, OSError) as error:
            self.problem = str(error)
            return False
        return True

    def remove(self, name: str) -> bool:
        """Removes an entry. Returns whether it is gone."""
        return self._unlink(self._path(name)) and self.remove_second(name)

    def remove_second(self, name: str) -> bool:
        """Removes the second file of an entry. Returns whether it is gone."""
        return self._unlink(self.second_path(name))

    def _unlink(self, path: str) -> bool:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return True
        except (OSError, ValueError) as error:
            self.problem = f"{path} cannot be removed: {getattr(error, 'strerror', None) or error}"
            return False
        return True

    def entries(self) -> list[Kept]:
        """Returns all entries, the most recently used one last."""
        found, apart = self._files()
        kept = [Kept(name, nbytes + apart.get(name, (0, 0.0))[0], used) for name, (nbytes, used) in found.items()]
        return sorted(kept, key=lambda it: it.used)

    def _files(self) -> tuple[dict[str, tuple[int, float]], dict[str, tuple[int, float]]]:
        """Returns the sizes and times of entries and of their second files, by name."""
        found: dict[str, dict[str, tuple[int, float]]] = {"cache": {}, "weights": {}}
        with suppress(OSError, ValueError), os.scandir(self.path) as items:
            for it in items:
                if name := _ENTRY.fullmatch(it.name):
                    with suppress(OSError):
                        known = it.stat(follow_symlinks=False)
                        found[name[2]][name[1]] = known.st_size, known.st_mtime
        return found["cache"], found["weights"]

    def clear(self) -> int:
        """Removes every entry, and returns how many are gone."""
        if not self._is_ours():
            return 0
        gone = [self.remove(it.name) for it in self.entries()]
        self._remove_unfinished(0)
        return sum(gone)

    def _path(self, name: str) -> str:
        return os.path.join(self.path, name + SUFFIX)

    def _make_room(self) -> None:
        found = self.entries()
        left = sum(it.nbytes for it in found)
        if left > self.most:
            for it in found:
                if left <= _KEPT_PART * self.most:
                    break
                self.remove(it.name)
                left -= it.nbytes
        self._remove_unfinished(_ABANDONED)

    def _remove_unfinished(self, age: float) -> None:
        """Removes leftovers of killed processes that are older than `age` seconds: unfinished files and orphaned second
        files."""
        entries, apart = self._files()
        for name, (_, written) in apart.items():
            if name not in entries and written <= time.time() - age:
                self.remove_second(name)
        with suppress(OSError, ValueError), os.scandir(self.path) as items:
            for it in items:
                if _PARTIAL.fullmatch(it.name):
                    with suppress(OSError):
                        if it.stat(follow_symlinks=False).st_mtime <= time.time() - age:
                            os.unlink(it.path)

    def _is_ours(self, make: bool = False) -> bool:
        """Returns whether the folder exists and no other user can write to it."""
        try:
            if make and not os.path.lexists(self.path):
                os.makedirs(os.path.dirname(self.path), exist_ok=True)
                with suppress(FileExistsError):
                    os.mkdir(self.path, 0o700)
            found = os.lstat(self.path)
        except (OSError, ValueError) as error:
            if isinstance(error, FileNotFoundError) and not make:
                return False  # nothing is stored yet
            self.problem = f"{self.path} cannot be used: {getattr(error, 'strerror', None) or error}"
            return False
        if not stat.S_ISDIR(found.st_mode):
            self.problem = f"{self.path} is not a folder"
        elif not _is_private(found):
            self.problem = f"{self.path} belongs to another user, or others can write to it"
        else:
            return True
        return False


def _is_private(found: os.stat_result) -> bool:
    """Returns whether this user owns a file and no other user can write it. Outside POSIX, the user's profile ensures that."""
    return os.name != "posix" or (found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
