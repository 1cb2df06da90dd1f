"""How a program's weights can be read again after the device was lost.

In: weights as arrays, when they are uploaded, and the model's file if it has one. Out: a `WeightSource` for each; its `read()`
returns the same array later. Invariant: a source returns exactly the bytes that were uploaded, or raises an error. It uses host
memory only for bytes that are in no file.

A `FileIdentity`, taken before the bytes of a file were read, detects changes of the file. If ONNX Runtime names the file of a
weight, the bytes are not read here. The bytes of other weights are compared with the file's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..errors import ModelChangedError
from ..program.weights import Permuted, weight_array, weight_bytes
from ..records import dataclass
from .weight_file import FileIdentity, FileRange, MappedFiles, ModelFile

Array = np.ndarray[Any, np.dtype[Any]]


class WeightSource(Protocol):
    """One weight, readable at any time."""

    def read(self) -> Array:
        """Returns the weight. Raises ModelChangedError if its bytes are no longer available."""


# Makes the source of a weight. Called with its name and value at upload.
SourceOf = Callable[[str, Array], WeightSource]


@dataclass(frozen=True)
class InMemory:
    """A weight that stays in host memory."""

    array: Array

    def read(self) -> Array:
        return self.array


@dataclass(frozen=True)
class InFile:
    """A weight in a file, which had this `identity`, settled, before the upload."""

    name: str
    span: FileRange
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    identity: FileIdentity

    def read(self) -> Array:
        try:
            found = self.span.map()
            same = FileIdentity.of(self.span.path) == self.identity
        except (OSError, ValueError) as error:
            raise ModelChangedError(self._why(f"cannot be read: {error}")) from error
        if not same:
            raise ModelChangedError(self._why("has changed since the session was made"))
        return found.view(self.dtype).reshape(self.shape)

    def _why(self, what: str) -> str:
        return (
            f"the weight {self.name!r} ({self.span.nbytes} bytes at offset {self.span.offset} of {self.span.path}) is needed"
            f" again because the device was lost, and the file {what}: create the session again"
        )


@dataclass(frozen=True)
class PermutedSource:
    """A weight that is another one with permuted axes."""

    source: WeightSource
    permutation: tuple[int, ...]

    def read(self) -> Array:
        return self.source.read().transpose(self.permutation)


class WeightSources:
    """The sources of a model's weights. `source_of` is called once for each, and not again for permuted ones."""

    def __init__(self, source_of: SourceOf) -> None:
        self._source_of = source_of
        self.by_name: dict[str, WeightSource] = {}  # by name in the model; calculated weights have none

    def of(self, name: str, weight: Any) -> WeightSource:
        """Returns the source of a weight: an array, a lazy tensor, or `Permuted` of one that has elements or is known."""
        if isinstance(weight, Permuted):
            return PermutedSource(self.of(weight.of, weight.data), weight.permutation)
        if name in self.by_name:
            return self.by_name[name]
        source = self._source_of(name, weight_array(weight))
        if name:
            self.by_name[name] = source
        return source


def in_memory(_name: str, array: Array) -> WeightSource:
    """For arrays that are freed with this reference: keeps the reference."""
    return InMemory(array)


@dataclass(frozen=True)
class FilePlace:
    """Bytes of a file, and the file's identity before they were read.

    The identity is None if a file that was written later could have the same. `mapped`: the memory stays valid as long as it is
    referenced, even if the file is renamed or deleted.
    """

    span: FileRange
    identity: FileIdentity | None
    mapped: bool = False


class FromModel:
    """For arrays in memory that their owner frees after the upload. Looks for them in the model's files, otherwise keeps a copy.

    `path` is "" for a model without a file. For a model that was given as bytes with a folder of external data, it is a path in
    that folder, and `content` are the bytes. `lent` maps addresses of memory to the bytes of a file that they contain, until
    `freed` is called.
    """

    def __init__(
        self, path: str | Path, content: bytes | None = None, lent: Mapping[int, FilePlace] | None = None
    ) -> None:
        self._file = ModelFile(path, content) if path else None
        self._lent = dict(lent or {})
        self._copies: dict[int, Array] = {}
        self._mapped = MappedFiles()

    def freed(self) -> None:
        """Call this before the owner frees the lent memory. Other data may be at its addresses afterwards."""
        self._lent, self._copies = {}, {}
        self._mapped = MappedFiles()

    def copied(self, raw: Array) -> Array:
        """Returns a copy of the owner's bytes, which sources of the same bytes share."""
        known = self._copies.get(raw.ctypes.data)
        if known is None:
            known = self._copies[raw.ctypes.data] = raw.copy()
        return known

    def __call__(self, name: str, array: Array) -> WeightSource:
        place = self.place(name, array) if array.nbytes else None
        if place is not None and place.mapped:
            return InMemory(array)
        if place is not None and place.identity is not None:
            return InFile(name, place.span, array.dtype, array.shape, place.identity)
        known = self._copies.get(array.__array_interface__["data"][0]) if array.flags.c_contiguous else None
        if known is not None and known.nbytes == array.nbytes:
            return InMemory(known.view(array.dtype).reshape(array.shape))
        # An array that owns its memory was calculated here, and is freed here.
        return InMemory(array if array.flags.owndata else array.copy())

    def place(self, name: str, array: Array) -> FilePlace | None:
        """Returns the place in a file with the bytes of an array named `name` in the model; None if no file has them."""
        lent = self._lent.get(array.__array_interface__["data"][0]) if array.flags.c_contiguous else None
        if lent is not None and lent.span.nbytes == array.nbytes:
            return lent
        return self._compared(name, array)

    def lend(self, name: str, array: Array) -> FilePlace | None:
        """Like `place`, for memory of the owner, which is constant until `freed` is called. It is compared once."""
        place = self.place(name, array)
        if place is not None:
            self._lent[array.__array_interface__["data"][0]] = place
        return place

    def _compared(self, name: str, array: Array) -> FilePlace | None:
        data = np.frombuffer(weight_bytes(array), np.uint8)
        for span in self._file.spans(name) if self._file is not None else ():
            with suppress(OSError):
                identity = FileIdentity.settled(span.path)  # before its bytes are compared
                if self._mapped.has_bytes(span, identity, data):
                    return FilePlace(span, identity)
        return None
