"""Compiled models that `session()` keeps in the cache, and opens instead of the models that they were made of.

In: a model's path and what a session of it is asked for; later a `MadeModel`. Out: a `KeptModel`, or None. Invariants: it is opened
where its session would be as one of the model: the same files, options, code, onnxruntime, adapter and library. Whatever is not
certain costs the time to open the model, and nothing more.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import WgpuEpError
from ...fields import settings_from
from ...kept.entry import Entry, EntryError, read, understood, written
from ...kept.folder import Folder, folder_path
from ...options import Options
from ...program.settings import CompileSettings
from ...records import dataclass
from ...runtime.model_files import model_files
from ...runtime.settings import RunSettings
from ...runtime.weight_file import FileIdentity
from ..device_choice import context_for, library_for
from ..settings import asked, settings_of
from ..store.identity import code_identity
from .content import GroupContext
from .made_for import MadeFor
from .one_node import model_of_one

if TYPE_CHECKING:
    from ...device import Adapter
    from .keeping import MadeModel

KIND = "compiled model"
_DOUBTFUL = frozenset(
    {"forceCpuNodeNames", "enableGraphCapture", "enablePIXCapture", "webgpuDevice", "webgpuInstance", "dawnProcTable"}
)
"""Options whose sessions look at the model's nodes, or at what a caller has in memory."""

_Files = list[list[Any]]
"""A path each, with the fields of its FileIdentity."""


@dataclass(frozen=True)
class KeptModel:
    """`model` is an ONNX file of one node, whose `context` needs no file; `nodes` are the names of those that it stands for.
    `matrices` are the model's, by which a library is chosen; `says` is what a session says of the model at `path`."""

    path: str
    model: bytes
    context: GroupContext
    nodes: tuple[str, ...]
    matrices: frozenset[str]
    says: Mapping[str, Any]
    files: _Files

    def is_current(self) -> bool:
        """Whether all files are as they were when it was made, of which weights are read."""
        try:
            return all([*_identity(path)] == identity for path, *identity in self.files)
        except OSError:
            return False


class KeptModels:
    """What the cache has for one way to open a model."""

    def __init__(self, folder: Folder, path: str, key: str, adapter: Adapter, options: Options) -> None:
        self._folder, self.path, self._key = folder, path, key
        self._adapter, self._options = adapter, options
        self._before: _Files | None = None

    @classmethod
    def of(cls, path: str, adapter: Adapter, options: Options, *more: object) -> KeptModels | None:
        """None where nothing is to be kept. `more` is what else decides how a session is."""
        place, code = folder_path(), code_identity()
        if place is None or code is None or not _DOUBTFUL.isdisjoint(options.given):
            return None
        given = sorted(options.values.items(), key=lambda it: it[0]), sorted(options.given)
        known = KIND, os.path.abspath(path), code, adapter.index, adapter.name, given, more
        key = hashlib.sha256(repr(known).encode("utf-8", "backslashreplace")).hexdigest()
        return cls(Folder(place), path, key, adapter, options)

    def find(self) -> KeptModel | None:
        """What is kept, for files that are as they were. Otherwise the files are looked at, for `keep`."""
        data = self._folder.read(self._key)
        with suppress(EntryError, OSError, WgpuEpError):
            entry = read(data or b"", self._key, KIND)
            with understood():
                found = self._found(entry)
            if found is not None:
                return found
        with suppress(OSError):
            paths = model_files(self.path)
            self._before = None if paths is None else _looked_at(paths)
        return None

    def _found(self, entry: Entry) -> KeptModel | None:
        content = entry.content
        at = content["context"]
        context = GroupContext(bytes(entry.data[at:]), os.path.abspath(os.sep) + "model")
        matrices = frozenset(content["matrices"])
        found = KeptModel(
            self.path,
            bytes(entry.data[:at]),
            context,
            tuple(content["nodes"]),
            matrices,
            content["says"],
            content["files"],
        )
        differs = not found.is_current() or context.made_for.differs(self._made_for(matrices))
        return None if differs else found

    def _made_for(self, matrices: frozenset[str]) -> MadeFor:
        """For what a session would compile. Raises WgpuEpError."""
        options = self._options
        library = library_for(self._adapter, options, lambda: matrices).name
        context = context_for(self._adapter, options, library, settings_from(RunSettings, options.values).bounds_checks)
        member = context.join(settings_of(options, context.view), asked(options))
        try:
            return MadeFor.of(context.target, settings_from(CompileSettings, options.values))
        finally:
            member.leave()

    def keep(self, made: MadeModel, matrices: frozenset[str], says: Mapping[str, Any]) -> bool:
        """Keeps what a session has made, which says this of itself: for the files that `find` looked at, if they are the same."""
        if self._before is None:
            return False
        with suppress(OSError):
            if self._before != _looked_at([path for path, *_ in self._before]):
                return False
            model = model_of_one(says["meta"], made.name, made.inputs, made.outputs, made.given, made.results)
            content = {
                "files": self._before,
                "context": len(model),
                "nodes": list(made.nodes),
                "matrices": sorted(matrices),
                "says": says,
            }
            about = {"graph": says["meta"]["graph_name"], "adapter": self._adapter.name}
            entry = Entry(KIND, {}, content, about, model + made.context)
            return self._folder.write(self._key, written(self._key, entry))
        return False


def _identity(path: str) -> Sequence[int]:
    return astuple(FileIdentity.of(Path(path)))


def _looked_at(paths: Sequence[str]) -> _Files | None:
    """None where somebody may be writing one of them. Raises OSError."""
    found = [(path, FileIdentity.settled(Path(path))) for path in paths]
    return (
        None if any(it is None for _, it in found) else [[path, *astuple(it)] for path, it in found if it is not None]
    )
