"""Decides whether an export may replace an existing file or folder: only an earlier export.

In: the output path. Out: nothing, or PlaceTakenError. Invariant: a folder with any file that no export wrote is not replaced.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from ..errors import PlaceTakenError
from .original import original_of
from .web_files import files_of, is_export

Check = Callable[[Path], None]


def check_place(place: Path, check: Check) -> None:
    """Calls `check` if the path exists, and raises FileNotFoundError if its parent folder does not."""
    if os.path.lexists(place):
        check(place)
    if not place.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {place.parent} to write {place.name} in")


def is_one_export(place: Path) -> None:
    """Raises PlaceTakenError unless the path is the file or the folder of exactly one export."""
    if not is_export(place):
        _refuse(place)
    if place.is_dir():
        names = files_of(place)
        _refuse_others(place, (it for it in place.iterdir() if it.name not in names))


def is_folder_of_exports(copied: Collection[str]) -> Check:
    """Returns a check for a folder of these files with a subfolder `onnx` of exports and their original models."""

    def check(place: Path) -> None:
        inner = [*(place / "onnx").iterdir()] if (place / "onnx").is_dir() else []
        exports = [it for it in inner if it.is_file() and is_export(it)]
        if not exports:
            _refuse(place)
        originals = {original_of(it) for it in exports}
        _refuse_others(place, (it for it in inner if it not in exports and it not in originals))
        _refuse_others(place, (it for it in place.iterdir() if it.name != "onnx" and it.name not in copied))

    return check


def _refuse(place: Path) -> None:
    raise PlaceTakenError(f"{place} exists already and is not replaced, because it is not an export")


def _refuse_others(place: Path, files: Iterable[Path]) -> None:
    for it in sorted(files):
        raise PlaceTakenError(f"{place} exists already and is not replaced, because no export wrote {it}")
