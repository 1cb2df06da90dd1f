"""Checks output paths before a command works for minutes.

In: paths of the command line. Out: nothing, or a note on stderr about overwritten files. Invariant: an unwritable path raises
OptionError with the option and the reason. Parent folders are never created.
"""

from __future__ import annotations

import os
import re
import tempfile
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from ..errors import OptionError
from ._output import show_note

_UNSAFE = re.compile(r'[/\\:*?"<>|\x00-\x1f\x7f]')
_DEVICE = re.compile(
    r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE
)  # reserved device names of Windows, with any suffix
_LONGEST = 200  # bytes of a name; file systems allow 255


def check_files(option: str, *paths: Path) -> None:
    """Checks output files. Raises OptionError for folders, and for files that cannot be written."""
    for path in paths:
        if path.is_dir():
            raise OptionError(f"{option} {path}: that is a folder; name a file")
        _check_parent(option, path)
        if path.exists():
            if not os.access(path, os.W_OK):
                raise OptionError(f"{option} {path}: the file is there and cannot be written")
            if path.is_file():  # it is replaced by a temporary file beside it, or beside the target of a link
                _check_writable(option, path, path.resolve().parent)
            show_note(f"note: {path} is there already and will be overwritten")


def check_folder(option: str, path: Path) -> None:
    """Checks a folder for output files, which is created if missing. Raises OptionError for a file or an unwritable folder."""
    if not path.exists():
        _check_parent(option, path)
    elif not path.is_dir():
        raise OptionError(f"{option} {path}: that is a file; name a folder, which gets a file per output")
    else:
        _check_writable(option, path, path)


def file_names(names: Sequence[str], suffix: str) -> dict[str, str]:
    """Returns a file name for each of the different `names`, unique on every file system.

    Characters that a file system may refuse become "_", and long names are cut. On a collision, names that need no change have
    priority, and others get a number.
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
    """Returns the name normalised like on case-insensitive file systems, and on those that compose letters."""
    return unicodedata.normalize("NFKC", name).casefold()


def _check_parent(option: str, path: Path) -> None:
    if not path.parent.is_dir():
        raise OptionError(f"{option} {path}: there is no folder {path.parent} to write {path.name} in")
    if not path.exists():
        _check_writable(option, path, path.parent)


def _check_writable(option: str, path: Path, folder: Path) -> None:
    """Tests by writing, because permissions do not reveal /proc, a read-only or a full file system."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise OptionError(
            f"{option} {path}: nothing can be written in the folder {folder} ({error.strerror or error}); name another"
        ) from error
