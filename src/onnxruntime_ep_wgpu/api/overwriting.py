"""What an export may replace: what an export wrote before.

In: the place of an export. Out: nothing, or PlaceTakenError. Invariant: nothing is replaced that has a file which no export wrote.
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
    """Raises what `check` does where something lies, and FileNotFoundError without a folder around."""
    if os.path.lexists(place):
        check(place)
    if not place.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {place.parent} to write {place.name} in")


def is_one_export(place: Path) -> None:
    """Raises PlaceTakenError for what is not the file or the folder of one export alone."""
    if not is_export(place):
        _refuse(place)
    if place.is_dir():
        names = files_of(place)
        _refuse_others(place, (it for it in place.iterdir() if it.name not in names))


def is_folder_of_exports(copied: Collection[str]) -> Check:
    """A check of a folder that has these files, and in `onnx` exports with the models that they were made of."""

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
    raise PlaceTakenError(f"{place} exists already and is no export, so that it is not replaced")


def _refuse_others(place: Path, files: Iterable[Path]) -> None:
    for it in sorted(files):
        raise PlaceTakenError(f"{place} exists already and is not replaced, because no export wrote {it}")
