"""The file that a model names for a weight. Only this module decides whether it may be read.

In: the path of a model and its entries for a weight. Out: a path without links, or a ModelError.

Invariant: after all links are followed, the file is a regular one in or below the folder of the model. If the model itself is a
link, as in the cache of Hugging Face, the folder of the real file is allowed too. So no model can make a reader open a private
file of its user, a device, or a pipe that blocks. Other code checks whether the file exists and is long enough.
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
    """`length` bytes of a file from `offset` on. None means the bytes of the weight's type and shape."""

    path: Path
    offset: int
    length: int | None


def external_place(model: Path, weight: str, entries: Mapping[str, str]) -> ExternalPlace:
    """Returns the place of a weight of the model at this path, by the keys `location`, `offset` and `length`.

    Raises ModelError.
    """
    path = external_file(model, weight, entries.get("location", ""))
    numbers = {}
    for key in ("offset", "length"):
        text = entries.get(key, "")
        if text and not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) < _MOST):
            raise ModelError(
                f"{model}: the location of the weight {weight!r} is invalid ({key} {cut(text)}): {_WAY_OUT}"
            )
        numbers[key] = int(text) if text else None
    return ExternalPlace(path, numbers["offset"] or 0, numbers["length"])


def external_file(model: Path, weight: str, location: str) -> Path:
    """Returns the file of `location` for a weight of the model at this path. Raises ModelError if the file is not allowed."""
    return file_beside(model, f"the weight {weight!r}", location)


def file_beside(model: Path, what: str, location: str) -> Path:
    """Like `external_file`, for another part of a model; `what` names it in the message."""
    folder = Path(os.path.realpath(model.parent))
    problem = ""
    if not location or "\0" in location:
        problem = "which is not the name of a file"
    elif os.path.isabs(location) or Path(location).drive or Path(location).root:
        problem = "which is not a relative path"
    else:
        path = Path(os.path.realpath(folder / location))
        if not any(path.is_relative_to(it) for it in (folder, Path(os.path.realpath(model)).parent)):
            problem = "which leads out of the folder of the model"
        else:
            problem = _why_no_file(path)
        if not problem:
            return path
    raise ModelError(f"{model}: {what} is in {cut(location)}, {problem}: {_WAY_OUT}")


def _why_no_file(path: Path) -> str:
    """Returns why a path is refused; "" for a regular file, and for a missing one."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:  # too long, a cycle of links, no permission
        return f"which cannot be opened ({error.strerror})"
    return "" if stat.S_ISREG(mode) else "which is not a regular file"
