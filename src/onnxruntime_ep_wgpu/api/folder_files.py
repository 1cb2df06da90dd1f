"""Safe reading of a model's folder, which may be untrusted: files only inside the folder, and JSON with checked field types.

In: a folder and a file name. Out: its path, its text, or its `Fields`. Raises ModelError with the file, the field, its value and
the expected value.
"""

from __future__ import annotations

import json
from pathlib import Path, PurePath
from typing import Any

from ..errors import ModelError, cut
from ..records import dataclass

_MOST = 2**63 - 1
_ABOVE = 3  # folder levels: a snapshot in Hugging Face's cache, or a folder in it, has its files in `blobs` so many levels above


def file_inside(folder: Path, name: str) -> Path | None:
    """Returns the path of a file, or None if it does not exist. Links may only lead to files in the folder.

    There is one exception: files in Hugging Face's cache are links into a folder `blobs` beside the snapshots.
    """
    parts = PurePath(name)
    if parts.is_absolute() or parts.drive or ".." in parts.parts:
        raise ModelError(f"{cut(name)} leads out of the folder {folder}: name a file inside it")
    path = folder / parts
    try:
        if not path.is_file():
            return None
        real, within = path.resolve(strict=True), folder.resolve(strict=True)
    except (OSError, ValueError, RuntimeError) as error:  # name too long or with NUL, no permission, circular links
        reason = error.strerror if isinstance(error, OSError) else error
        raise ModelError(f"the file {cut(name)} of the folder {folder} cannot be opened: {reason}") from error
    allowed = (within, *(it / "blobs" for it in within.parents[:_ABOVE]))
    if not any(real.is_relative_to(it) for it in allowed):
        raise ModelError(f"{path} is a link to {real}, which is out of the folder: put the file itself there")
    return path


def text_inside(folder: Path, name: str) -> str | None:
    """Returns the text of a file in UTF-8, or None if it does not exist."""
    path = file_inside(folder, name)
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    except ValueError as error:
        raise ModelError(f"{path} is not text in UTF-8 ({error}): copy or export the model again") from error


def fields_inside(folder: Path, name: str) -> Fields | None:
    """Returns the fields of a JSON file, or None if it does not exist."""
    text = text_inside(folder, name)
    if text is None:
        return None
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise ModelError(f"{folder / name} cannot be parsed as JSON: objects or lists are nested too deeply") from error
    except ValueError as error:
        raise ModelError(f"{folder / name} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ModelError(f"{folder / name}: the content is {cut(found)}; expected an object with names")
    return Fields(folder / name, found)


@dataclass(frozen=True)
class Fields:
    """A JSON object. `within` is the path of names that leads to it, for messages. null is the same as an absent field."""

    path: Path
    values: dict[str, Any]
    within: str = ""

    def wrong(self, name: str, wanted: str) -> ModelError:
        """Returns the error for a field with a wrong value. `wanted` describes the expected value."""
        return ModelError(f"{self.path}: {self.within}{name} is {cut(self.values.get(name))}; expected {wanted}")

    def object(self, name: str) -> Fields:
        """Returns an object field, empty if absent."""
        value = self.values.get(name)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self.wrong(name, "an object with names")
        return Fields(self.path, value, f"{self.within}{name}.")

    def objects(self, name: str) -> list[Fields]:
        """Returns a field that is a list of objects, empty if absent."""
        value = self.values.get(name)
        if value is None:
            value = []
        if not isinstance(value, list) or not all(isinstance(it, dict) for it in value):
            raise self.wrong(name, "a list of objects with names")
        return [Fields(self.path, it, f"{self.within}{name}[{k}].") for k, it in enumerate(value)]

    def text(self, name: str) -> str | None:
        value = self.values.get(name)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, "a text")
        return value

    def file(self, name: str, usual: str) -> Path:
        """Returns the path of a file inside the folder; `usual` is the default name. Raises ModelError if it is missing."""
        given = self.text(name)
        try:
            found = file_inside(self.path.parent, usual if given is None else given)
        except ModelError as error:
            raise ModelError(f"{self.path}: {self.within}{name}: {error}") from error
        if found is None and given is not None:
            raise self.wrong(
                name, f"the name of a file in the folder {self.path.parent}, which has no file of that name"
            )
        if found is None:
            raise ModelError(f"{self.path.parent / usual} is missing")
        return found

    def count(self, name: str, least: int) -> int | None:
        """Returns an integer of at least `least` that ONNX can store as a size, or None if absent."""
        value: int | None = self.values.get(name)
        if value is not None and not (_is_count(value, least) and value <= _MOST):
            raise self.wrong(name, f"an integer of at least {least} and at most {_MOST}")
        return value

    def ids(self, name: str) -> tuple[int, ...] | None:
        """Returns one or several token ids, or None if absent."""
        value = self.values.get(name)
        if value is None:
            return None
        found = value if isinstance(value, list) else [value]
        if not all(_is_count(it, 0) for it in found):
            raise self.wrong(name, "an id or a list of ids")
        return tuple(found)


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
