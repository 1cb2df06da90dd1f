"""The places that a command writes to, checked before it works for minutes.

In: paths of the command line. Out: nothing, or a note on stderr about what is overwritten. Invariant: a path that cannot be
written is refused here with the option and the reason; folders above it are never made.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from ..errors import OptionError

_UNSAFE = re.compile(r'[/\\:*?"<>|\x00-\x1f\x7f]')
_DEVICE = re.compile(
    r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE
)  # of Windows, whatever is behind them
_LONGEST = 200  # bytes of a name, of the 255 that file systems have


def check_files(option: str, *paths: Path) -> None:
    """For files that will be written. Raises OptionError for a folder, and where no file can be written."""
    for path in paths:
        if path.is_dir():
            raise OptionError(f"{option} {path}: that is a folder; name a file")
        _check_parent(option, path)
        if path.exists():
            if not os.access(path, os.W_OK):
                raise OptionError(f"{option} {path}: the file is there and cannot be written")
            if path.is_file():  # it is replaced by a file that is written beside it, or beside what a link leads to
                _check_writable(option, path, path.resolve().parent)
            print(f"note: {path} is there already and will be overwritten", file=sys.stderr)


def check_folder(option: str, path: Path) -> None:
    """For a folder that gets files, and is made when it is missing. Raises OptionError for a file, and where none can be."""
    if not path.exists():
        _check_parent(option, path)
    elif not path.is_dir():
        raise OptionError(f"{option} {path}: that is a file; name a folder, which gets a file per output")
    else:
        _check_writable(option, path, path)


def file_names(names: Sequence[str], suffix: str) -> dict[str, str]:
    """A name of a file for each of the different `names`, all of them different on every file system.

    A character that a file system may not take becomes "_", and a long name is cut. Where two would be one file, names that
    need no change go first, and others get a number.
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in sorted(names, key=lambda it: _file_name(it) != it):
        numbers = (_file_name(name) + more for more in ("", *(f"-{k}" for k in range(2, len(names) + 2))))
        found[name] = next(it for it in numbers if _folded(it) not in taken) + suffix
        taken.add(_folded(found[name].removesuffix(suffix)))
    return found


def _file_name(name: str) -> str:
    kept = _UNSAFE.sub("_", name).encode("utf-8", "replace")[:_LONGEST].decode("utf-8", "ignore")
    return f"_{kept}" if not kept or kept.startswith(".") or _DEVICE.fullmatch(kept) else kept


def _folded(name: str) -> str:
    """Equal for names that are one file on file systems without cases, and on those that compose letters."""
    return unicodedata.normalize("NFKC", name).casefold()


def _check_parent(option: str, path: Path) -> None:
    if not path.parent.is_dir():
        raise OptionError(f"{option} {path}: there is no folder {path.parent} to write {path.name} in")
    if not path.exists():
        _check_writable(option, path, path.parent)


def _check_writable(option: str, path: Path, folder: Path) -> None:
    """Tried, because permissions say little about /proc, or about a file system that is read-only or full."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise OptionError(
            f"{option} {path}: nothing can be written in the folder {folder} ({error.strerror or error}); name another"
        ) from error
