"""Where a program's weights can be read again once their memory on the device is lost.

In: weights as arrays, when they are uploaded, and the model's file where it has one. Out: a `WeightSource` for each, whose
`read()` gives the same array later. Invariant: a source gives exactly the bytes that were uploaded, or an error; it costs
host memory only for bytes that no file holds.

That a file has not changed its `FileIdentity` says, taken before its bytes were read. So no byte of a weight is looked at where
ONNX Runtime says in which file it lies; of others the bytes are compared with the file's.
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
        """The weight. Raises ModelChangedError when its bytes are not to be had any more."""


# How to come by a weight again: called with its name and value at upload.
SourceOf = Callable[[str, Array], WeightSource]


@dataclass(frozen=True)
class InMemory:
    """A weight that stays in host memory."""

    array: Array

    def read(self) -> Array:
        return self.array


@dataclass(frozen=True)
class InFile:
    """A weight that lies in a file, which was the one of this `identity`, settled, before the upload."""

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
    """A weight that is another one with its axes permuted."""

    source: WeightSource
    permutation: tuple[int, ...]

    def read(self) -> Array:
        return self.source.read().transpose(self.permutation)


class WeightSources:
    """Where the weights of a model can be read again: `source_of` is asked once for each, and not again for what is permuted."""

    def __init__(self, source_of: SourceOf) -> None:
        self._source_of = source_of
        self.by_name: dict[str, WeightSource] = {}  # in the model, which has none for what was calculated

    def of(self, name: str, weight: Any) -> WeightSource:
        """Where a weight of this name is, an array, lazy tensor, or `Permuted` of one that has elements or is known."""
        if isinstance(weight, Permuted):
            return PermutedSource(self.of(weight.of, weight.data), weight.permutation)
        if name in self.by_name:
            return self.by_name[name]
        source = self._source_of(name, weight_array(weight))
        if name:
            self.by_name[name] = source
        return source


def in_memory(_name: str, array: Array) -> WeightSource:
    """For arrays that are freed by this reference alone: keeps a reference."""
    return InMemory(array)


@dataclass(frozen=True)
class FilePlace:
    """Bytes of a file, and which one that was before they were read; None where it could not be distinguished from one written
    after. They may be `mapped` for as long as there is a reference to their memory, whatever becomes of the file's name."""

    span: FileRange
    identity: FileIdentity | None
    mapped: bool = False


class FromModel:
    """For arrays in memory that their owner frees after the upload: looks into the model's files, else keeps a copy.

    `path` is "" for a model without a file. Of one that was given as bytes with a folder of external data it is a path in
    that folder, and `content` are its bytes. `lent` says of memory, by its address, which bytes of a file it has, until it is
    `freed`.
    """

    def __init__(
        self, path: str | Path, content: bytes | None = None, lent: Mapping[int, FilePlace] | None = None
    ) -> None:
        self._file = ModelFile(path, content) if path else None
        self._lent = dict(lent or {})
        self._copies: dict[int, Array] = {}
        self._mapped = MappedFiles()

    def freed(self) -> None:
        """The owner of what was lent may free it from here on: at its addresses may lie what is calculated later."""
        self._lent, self._copies = {}, {}
        self._mapped = MappedFiles()

    def copied(self, raw: Array) -> Array:
        """A copy of bytes of the owner, which a source of the same bytes has too."""
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
        # What owns its memory was calculated here, and is freed here.
        return InMemory(array if array.flags.owndata else array.copy())

    def place(self, name: str, array: Array) -> FilePlace | None:
        """Where a file has the bytes of an array that is called `name` in the model; None where no file has them."""
        lent = self._lent.get(array.__array_interface__["data"][0]) if array.flags.c_contiguous else None
        if lent is not None and lent.span.nbytes == array.nbytes:
            return lent
        return self._compared(name, array)

    def lend(self, name: str, array: Array) -> FilePlace | None:
        """The same for memory of the owner, which stays as it is until it is `freed`: it is compared once."""
        place = self.place(name, array)
        if place is not None:
            self._lent[array.__array_interface__["data"][0]] = place
        return place

    def _compared(self, name: str, array: Array) -> FilePlace | None:
        data = np.frombuffer(weight_bytes(array), np.uint8)
        for span in self._file.spans(name) if self._file is not None else ():
            with suppress(OSError):
                identity = FileIdentity.settled(span.path)  # before its bytes are compared
                if self._mapped.hold(span, identity, data):
                    return FilePlace(span, identity)
        return None
