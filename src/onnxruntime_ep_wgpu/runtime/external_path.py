"""Which file is meant where a model says that a weight lies in another one; the one place that decides whether it may be read.

In: the path of a model and what it says of a weight. Out: a path without links, or a ModelError. Invariant: the file lies in the
folder of the model or below it, after all links are followed, and is a regular one. Where the model itself is a link, as in the
cache of Hugging Face, the folder of the real file is as good. So a model says nothing that makes a reader open what it should not:
a file of its user, a device, or a pipe that blocks. Whether the file is there, and long enough, is for others to find.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from ..errors import ModelError, cut
from ..records import dataclass

_WAY_OUT = "copy all files of the model, or export it again"
_MOST = 1 << 63  # bytes; no file has more


@dataclass(frozen=True)
class ExternalPlace:
    """`length` bytes of a file from `offset` on; None for what its type and shape take."""

    path: Path
    offset: int
    length: int | None


def external_place(model: Path, weight: str, entries: Mapping[str, str]) -> ExternalPlace:
    """Where the weight of a model at this path lies, by the keys `location`, `offset` and `length`. Raises ModelError."""
    path = external_file(model, weight, entries.get("location", ""))
    numbers = {}
    for key in ("offset", "length"):
        text = entries.get(key, "")
        if text and not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) < _MOST):
            raise ModelError(
                f"{model}: where the weight {weight!r} lies makes no sense ({key} {cut(text)}): {_WAY_OUT}"
            )
        numbers[key] = int(text) if text else None
    return ExternalPlace(path, numbers["offset"] or 0, numbers["length"])


def external_file(model: Path, weight: str, location: str) -> Path:
    """The file that `location` names for a weight of a model at this path. Raises ModelError where that is none it may lie in."""
    return file_beside(model, f"the weight {weight!r}", location)


def file_beside(model: Path, what: str, location: str) -> Path:
    """The same for another part of a model, `what` in words."""
    folder = Path(os.path.realpath(model.parent))
    problem = ""
    if not location or "\0" in location:
        problem = "which is no name of a file"
    elif os.path.isabs(location) or Path(location).drive or Path(location).root:
        problem = "which is no path from the folder of the model"
    else:
        path = Path(os.path.realpath(folder / location))
        if not any(path.is_relative_to(it) for it in (folder, Path(os.path.realpath(model)).parent)):
            problem = "which leads out of the folder of the model"
        else:
            problem = _why_no_file(path)
        if not problem:
            return path
    raise ModelError(f"{model}: {what} lies in {cut(location)}, {problem}: {_WAY_OUT}")


def _why_no_file(path: Path) -> str:
    """What is wrong with a path, "" for a file and for what is not there."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:  # too long, links in a circle, no permission
        return f"which cannot be opened ({error.strerror})"
    return "" if stat.S_ISREG(mode) else "which is no file but a folder, a device or a pipe"
