"""Weights by reference: a context refers to bytes of files beside it, and has a copy of constants that are in none of them.

In: constants of a model, and the folder of the compiled model. Out: rows of JSON, and data; and the same bytes from these,
mapped.
Invariants: a file is in the folder of the compiled model or below it, after all links are resolved. Its bytes are those at
compilation: a file of the same size and time counts as unchanged, as for make and git. In other files, the digest of each
weight must match.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ModelError, cut
from ...kept.entry import EntryError
from ...records import dataclass
from ...runtime.external_path import file_beside
from ...runtime.weight_file import FileIdentity, FileRange
from ...runtime.weight_sources import Array, FilePlace, FromModel
from ..assign.shown import Bytes, Constant
from ..recompiling import COPIED_BYTES
from .graphs import Place

_ALIGNED = 16
_UNSETTLED = -1  # the time of an unsettled file
_APART = ""  # the name of the file of constants in no other file
LEAST_APART = 1 << 16  # bytes of such a constant; smaller ones are in the context
_ADVICE = "compile the model again, or restore the file that it was compiled with"


class UnsettledError(EntryError):
    """A file is not settled: it may still change while its identity stays the same."""


class ReferenceWriter:
    """Stores the constants of one context, by reference or as copies.

    * `folder`: the folder of the compiled model, None if it has none.
    * `lasting`: stores digests of weights, so that copied files are accepted. Otherwise files must be settled.
    * `most`: the largest number of bytes in the context, None for no limit.
    * `most_apart`: the largest number of bytes in a separate file. Its content is `apart`: copies, in order.
    """

    def __init__(
        self,
        folder: str | None,
        model: FromModel,
        lasting: bool = True,
        most: int | None = None,
        most_apart: int = 0,
    ) -> None:
        self._folder = None if folder is None else os.path.realpath(folder)
        self._model, self._lasting, self._most, self._most_apart = model, lasting, most, most_apart
        self.apart: list[Array] = []
        self._numbers: dict[str, int] = {}
        self.files: list[list[Any]] = []
        self.data = bytearray()

    def keep(self, name: str, it: Constant) -> Place:
        """Returns the place of a constant's elements: `[file, offset, digest]`, or `[offset in the data]`."""
        found = self._model.lend(name, it.raw) if name and it.raw.nbytes > COPIED_BYTES else None
        number = None if found is None else self._number(found)
        if found is None or number is None:
            apart = self._most_apart and name and it.raw.nbytes >= LEAST_APART
            return self._append_apart(it.raw) if apart else [self.append(it.raw.data)]
        if not self._lasting and found.identity is None:
            raise UnsettledError(f"the file of {name!r} is being written")
        return [number, found.span.offset, it.digest() if self._lasting else ""]

    def append(self, data: memoryview) -> int:
        """Appends bytes to the data, and returns their offset. Raises EntryError for too many."""
        if self._most is not None and len(self.data) + data.nbytes > self._most:
            raise EntryError(f"it has more than {self._most} bytes")
        self.data += b"\0" * (-len(self.data) % _ALIGNED)
        at = len(self.data)
        self.data += data.cast("B") if data.nbytes else b""
        return at

    def _append_apart(self, raw: Bytes) -> Place:
        """Appends bytes to the content of the separate file, and returns their place. Raises EntryError for too many."""
        if _APART not in self._numbers:
            self._numbers[_APART] = len(self.files)
            self.files.append([_APART, 0, _UNSETTLED])
        number = self._numbers[_APART]
        at = self.files[number][1]
        if at + raw.nbytes > self._most_apart:
            raise EntryError(f"more than {self._most_apart} bytes of its constants are in no file")
        self.files[number][1] = at + raw.nbytes + -raw.nbytes % _ALIGNED
        self.apart.append(self._model.copied(raw))
        return [number, at, ""]

    def _number(self, found: FilePlace) -> int | None:
        """Returns the number of a file; None if it is not below the folder."""
        path = os.path.realpath(found.span.path)
        if self._folder is None or not Path(path).is_relative_to(self._folder):
            return None
        location = Path(path).relative_to(self._folder).as_posix()
        if location not in self._numbers:
            known = found.identity
            size = found.span.path.stat().st_size if known is None else known.nbytes
            self.files.append([location, size, _UNSETTLED if known is None else known.modified])
            self._numbers[location] = len(self.files) - 1
        return self._numbers[location]


@dataclass(frozen=True)
class _File:
    path: Path
    identity: FileIdentity | None
    trusted: bool  # its bytes need no comparison of digests


class ReferenceReader:
    """Finds the constants of a context.

    * `compiled`: the path of the compiled model, "" if it has none.
    * `apart`: the file of constants that are in no other file.
    * `in_files`: the places in files, by the address of memory with their bytes.
    """

    def __init__(self, files: Any, data: memoryview, compiled: str, apart: Path | None = None) -> None:
        if type(files) is not list or any(
            list(map(type, row)) != [str, int, int] if type(row) is list else True for row in files
        ):
            raise EntryError("the name, size or time of a file is invalid")
        self._files, self._data, self._compiled, self._apart = files, data, compiled, apart
        self._file = cache(self._opened)
        self.in_files: dict[int, FilePlace] = {}

    def find(self, name: str, place: Any, nbytes: int) -> Bytes:
        """Returns the elements of a constant. Raises EntryError for an invalid place, ModelError for a changed file."""
        if type(place) is not list or any(type(it) is not int or it < 0 for it in place[:2]):
            raise EntryError("the place of a constant is invalid")
        if len(place) == 1:
            return self._in_data(place[0], nbytes)
        number, offset, digest = place
        if number >= len(self._files):
            raise EntryError("the number of a file is invalid")
        return self._mapped(name, self._file(number), FileRange(self._file(number).path, offset, nbytes), digest)

    def _in_data(self, at: int, nbytes: int) -> Bytes:
        if at + nbytes > len(self._data):
            raise EntryError("its data are truncated")
        return np.frombuffer(self._data[at : at + nbytes], np.uint8) if nbytes else np.empty(0, np.uint8)

    def _opened(self, number: int) -> _File:
        location, nbytes, modified = self._files[number]
        if location == _APART and self._apart is not None:
            # The caller has already checked that the file belongs to this context and is unchanged.
            try:
                settled = FileIdentity.settled(self._apart)
            except OSError as error:
                raise ModelError(f"{self._apart} cannot be read ({error.strerror or error})") from error
            return _File(self._apart, settled, settled is not None and settled.nbytes == nbytes)
        if not self._compiled:
            raise ModelError(
                f"the compiled model has weights in {cut(location)}, and is in memory: set ep.context_file_path to its path,"
                " or compile it with ep.context_embed_mode=1 from a model in memory"
            )
        path = file_beside(Path(self._compiled), "a weight", location)
        try:
            now, identity = FileIdentity.of(path), FileIdentity.settled(path)
        except OSError as error:
            raise ModelError(
                f"{self._compiled}: its weights are in {cut(location)}, which cannot be read"
                f" ({error.strerror or error}): {_ADVICE}"
            ) from error
        same = identity is not None and (now.nbytes, now.modified) == (nbytes, modified)
        return _File(path, identity, same and identity == now)

    def _mapped(self, name: str, file: _File, span: FileRange, digest: Any) -> Bytes:
        try:
            raw = np.asarray(span.map()) if span.nbytes else np.empty(0, np.uint8)
        except (OSError, ValueError) as error:
            raise ModelError(
                f"{self._compiled}: {self._where(name, span)} cannot be read ({error}): {_ADVICE}"
            ) from error
        if not file.trusted and not (digest and hashlib.sha256(raw.data).hexdigest() == digest):
            raise ModelError(
                f"{self._compiled}: {self._where(name, span)} differs from the one at compilation: {_ADVICE}"
            )
        if span.nbytes:
            # The cache may remove its file while sessions use it, if the system permits that.
            mapped = file.path == self._apart and os.name == "posix"
            self.in_files[raw.ctypes.data] = FilePlace(span, file.identity, mapped)
        return raw

    def _where(self, name: str, span: FileRange) -> str:
        return f"the weight {cut(name)}, {span.nbytes} bytes at byte {span.offset} of {span.path},"


def parts_apart(arrays: Sequence[Array]) -> Iterator[memoryview | bytes]:
    """Yields the content of the separate file of constants."""
    for it in arrays:
        yield it.data
        yield bytes(-it.nbytes % _ALIGNED)
