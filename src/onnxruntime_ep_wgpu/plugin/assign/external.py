"""Which initializers ONNX Runtime reads from files of external data, and where.

In: an OrtValueInfo of a graph. Out: its `FilePlace`; None for what lies in the model, in memory, or was calculated. Invariant: the
file is looked at before ONNX Runtime reads the initializer, and each file once.
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
    """That of one graph, of a model at `path`, "" for one in memory. Of one that was given as bytes with a folder of external data
    it is a path in that folder."""

    def __init__(self, ort: Ort, path: str) -> None:
        self._ort, self._model = ort, Path(path).absolute() if path else None
        self._identity = cache(_identity)
        self._file = cache(self._found)  # hundreds of weights lie in one

    def of(self, info: Any) -> FilePlace | None:
        """Where the initializer of this OrtValueInfo lies."""
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
            return None  # ONNX Runtime reads it, or says why not; nothing else does
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
        return None  # ONNX Runtime will say so
