"""Finds the places in files of external data from which ONNX Runtime reads initializers.

In: an OrtValueInfo of a graph. Out: its `FilePlace`; None for a value in the model or in memory, and for a computed value.
Invariant: the identity of a file is taken once, before ONNX Runtime reads the initializer.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from ..._ort import ffi
from ...errors import ModelError
from ...runtime.external_path import external_file
from ...runtime.weight_file import FileIdentity, FileRange
from ...runtime.weight_sources import FilePlace
from ..abi import Ort, file_text


class ExternalData:
    """The external data of one graph.

    `path`: the path of the model, "" for a model in memory. For a model in bytes with a folder of external data, it is a path
    in that folder.
    """

    def __init__(self, ort: Ort, path: str) -> None:
        self._ort, self._model = ort, Path(path).absolute() if path else None
        self._identity = cache(_identity)
        self._file = cache(self._found)  # one file can have hundreds of weights

    def of(self, info: Any) -> FilePlace | None:
        """Returns the place of the initializer of this OrtValueInfo."""
        if self._model is None:
            return None
        api = self._ort.api
        place = self._ort.get(api.ValueInfo_GetExternalInitializerInfo, info, "OrtExternalInitializerInfo *")
        if place == ffi.NULL:
            return None
        try:
            path = self._file(file_text(api.ExternalInitializerInfo_GetFilePath(place)))
            offset = int(api.ExternalInitializerInfo_GetFileOffset(place))
            span = FileRange(path, offset, int(api.ExternalInitializerInfo_GetByteSize(place)))
        except ModelError:
            return None  # ONNX Runtime alone reads it, or reports the error
        finally:
            api.ReleaseExternalInitializerInfo(place)
        return FilePlace(span, self._identity(path))

    def _found(self, location: str) -> Path:
        assert self._model is not None
        return external_file(self._model, "", location)


def _identity(path: Path) -> FileIdentity | None:
    try:
        return FileIdentity.settled(path)
    except OSError:
        return None  # ONNX Runtime will report it
