"""The byte ranges of initializers in an ONNX file, by name; and whether a file has changed.

In: the path of a model, and its bytes if they are not in a file. Out: `FileRange`s of it and of its external data. Only the bytes
around the tensors are read, so a file of gigabytes takes milliseconds. Invariants: an invalid file has no ranges. Nothing here
raises except where a docstring says so.

There are no ranges for tensors that protobuf encodes in another form than memory (integers in `int32_data` and `int64_data`),
nor for initializers in the bodies of control-flow nodes.
"""

from __future__ import annotations

import mmap
import time
from pathlib import Path
from typing import Any

import numpy as np

from ..device.mapped import same_bytes
from ..errors import ModelError
from ..records import dataclass
from .external_path import external_place
from .protobuf import Data, fields, last_number

# Field numbers of onnx.proto: ModelProto, GraphProto, TensorProto and StringStringEntryProto.
_GRAPH, _INITIALIZER, _NAME = 7, 5, 8
_RAW_DATA, _FLOAT_DATA, _DOUBLE_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 9, 4, 10, 13, 14
_KEY, _VALUE = 1, 2
_EXTERNAL = 1  # the data_location of external data
_TICK = 20_000_000  # ns: the clocks of file timestamps tick every 1 to 16 ms
_COARSE, _COARSE_TICK = 10_000_000, 2_000_000_000  # those of old file systems tick every 10 ms, 1 s, or 2 s (FAT)


@dataclass(frozen=True)
class FileIdentity:
    """Identifies a file and its last change (ns), as make and git do. Files with equal identities have the same bytes, if they
    were `settled`."""

    device: int
    number: int
    nbytes: int
    modified: int
    changed: int

    @classmethod
    def of(cls, path: Path) -> FileIdentity:
        """Raises OSError."""
        it = path.stat()
        return cls(it.st_dev, it.st_ino, it.st_size, it.st_mtime_ns, it.st_ctime_ns)

    @classmethod
    def settled(cls, path: Path) -> FileIdentity | None:
        """Returns the identity after the clock of file timestamps has ticked, so that any later write changes it.

        Waits a moment for the tick. Returns None if that would take long, or if the file is being written. Raises OSError.
        """
        for _ in range(2):
            found = cls.of(path)
            stamps = found.modified, found.changed
            tick = _TICK if any(it % _COARSE for it in stamps) else _COARSE_TICK
            left = max(stamps) + tick - time.time_ns()
            if left < 0:
                return found
            if left > _TICK:
                break
            time.sleep((left + 1) / 1e9)
        return None


@dataclass(frozen=True)
class FileRange:
    """`nbytes` bytes of a file from `offset` on."""

    path: Path
    offset: int
    nbytes: int

    def map(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Maps the bytes without reading them. Raises OSError or ValueError if the file is missing or shorter."""
        try:
            return np.memmap(self.path, np.uint8, "r", self.offset, (self.nbytes,))
        except OverflowError as error:  # beyond the largest offset of a file
            raise ValueError(f"{self.path} ends before byte {self.offset}") from error


class MappedFiles:
    """Files that are compared with memory, each mapped once."""

    def __init__(self) -> None:
        self._files: dict[Path, tuple[FileIdentity | None, np.ndarray[Any, np.dtype[np.uint8]]]] = {}

    def has_bytes(
        self, span: FileRange, identity: FileIdentity | None, data: np.ndarray[Any, np.dtype[np.uint8]]
    ) -> bool:
        """Whether a range of a file has these bytes. The caller took the file's `identity` before."""
        if len(data) != span.nbytes:
            return False
        known = self._files.get(span.path)
        if known is None or identity is None or known[0] != identity:
            try:
                known = self._files[span.path] = identity, np.memmap(span.path, np.uint8, "r")
            except (OSError, ValueError):
                return False
        mine = known[1][span.offset : span.offset + span.nbytes]
        return len(mine) == len(data) and same_bytes(mine.ctypes.data, data.ctypes.data, len(data))


class ModelFile:
    """The initializers of the ONNX model at `path`.

    With `content` there is no such file, but external data are relative to it.
    """

    def __init__(self, path: str | Path, content: bytes | None = None) -> None:
        self._path = Path(path).absolute()
        self._content = content
        self._spans: dict[str, list[FileRange]] | None = None

    def spans(self, name: str) -> list[FileRange]:
        """Returns the ranges that may contain the initializer `name`; empty if the file has none of that name."""
        if self._spans is None:
            try:
                self._spans = self._read()
            except (OSError, ValueError, IndexError, UnicodeDecodeError):
                self._spans = {}
            self._content = None
        return self._spans.get(name, [])

    def _read(self) -> dict[str, list[FileRange]]:
        if self._content is not None:
            return self._found(self._content)
        with open(self._path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return self._found(data)

    def _found(self, data: Data) -> dict[str, list[FileRange]]:
        found: dict[str, list[FileRange]] = {}
        for number, start, end in fields(data, 0, len(data)):
            if number == _GRAPH:
                for inner, at, until in fields(data, start, end):
                    if inner == _INITIALIZER:
                        self._initializer(data, at, until, found)
        return found

    def _initializer(self, data: Data, start: int, end: int, found: dict[str, list[FileRange]]) -> None:
        name, span, entries = "", None, {}
        for number, at, until in fields(data, start, end):
            if number == _NAME:
                name = data[at:until].decode()
            elif number in (_RAW_DATA, _FLOAT_DATA, _DOUBLE_DATA) and self._content is None:
                span = FileRange(self._path, at, until - at)
            elif number == _EXTERNAL_DATA:
                entry = {inner: data[a:b].decode() for inner, a, b in fields(data, at, until)}
                entries[entry.get(_KEY, "")] = entry.get(_VALUE, "")
        if last_number(data, start, end, _DATA_LOCATION) == _EXTERNAL:
            try:
                place = external_place(self._path, name, entries)
                length = place.path.stat().st_size - place.offset if place.length is None else place.length
                span = FileRange(place.path, place.offset, length)
            except (OSError, ModelError):  # only this weight has no range
                span = None
        if name and span is not None and span.nbytes > 0:
            found.setdefault(name, []).append(span)
