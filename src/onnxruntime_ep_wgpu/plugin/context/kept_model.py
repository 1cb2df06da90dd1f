"""Compiled models that `session()` stores in the cache, and opens instead of the original models.

In: a model's path and the options of a session; later a `MadeModel`, or why there is none. Out: a `KeptModel`, or None.
Invariants: a stored model is opened only if its session equals one of the original model: the same files, options, code,
onnxruntime, adapter and library. If this is uncertain, the original model is opened, which costs only time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import WgpuEpError
from ...fields import settings_from
from ...kept.entry import Entry, EntryError, read, understood, written
from ...kept.folder import Folder, folder_path
from ...options import OPTIONS, Options
from ...program.settings import CompileSettings
from ...records import dataclass
from ...runtime.model_files import model_files
from ...runtime.product_types import matrix_types
from ...runtime.settings import RunSettings
from ...runtime.weight_file import FileIdentity
from ...threads import start_deferred, wait_deferred
from ..device_choice import context_for, library_for
from ..settings import fields_set, settings_of
from ..store.identity import code_identity
from .build_key import BuildKey
from .content import KIND as CONTEXT
from .content import GroupContext
from .one_node import model_of_one
from .references import parts_apart

if TYPE_CHECKING:
    from ...device import Adapter
    from .keeping import MadeModel

KIND, REFUSED = "compiled model", "no compiled model"
_ELSEWHERE = "data other than initializers of the main graph are in another file"

_Files = list[list[Any]]
"""Per file, its path and the fields of its FileIdentity."""


@dataclass(frozen=True)
class KeptModel:
    """A compiled model from the cache.

    * `path`: the path of the original model.
    * `model`: the bytes of an ONNX file with one node; `context`: the context of this node.
    * `nodes`: the names of the original nodes.
    * `matrices`: the original model's matrix types, if they decided the choice of a library; otherwise None.
    * `description`: a session's description of the original model.
    """

    path: str
    model: bytes
    context: GroupContext
    nodes: tuple[str, ...]
    matrices: frozenset[str] | None
    description: Mapping[str, Any]
    files: _Files

    def is_current(self) -> bool:
        """Whether all files are unchanged since the model was made. Weights are read from them."""
        return _are_current(self.files)


class KeptModels:
    """The cache entry for a model and the options of its session.

    `refused`: why there is no compiled model, if an earlier session of the same files could not make one; otherwise "".
    """

    def __init__(self, folder: Folder, path: str, key: str, adapter: Adapter, options: Options) -> None:
        self._folder, self.path, self._key = folder, path, key
        self._adapter, self._options = adapter, options
        self._before: _Files | None = None
        self._elsewhere = False  # whether the model may have files that are not in `_before`
        self.refused = ""

    @classmethod
    def of(cls, path: str, adapter: Adapter, options: Options, *more: object) -> KeptModels | None:
        """Returns the entry, or None if nothing may be stored. `more`: other values that a session depends on."""
        place, code = folder_path(), code_identity()
        set_to = [(OPTIONS[key], text) for key, text in options.given.items()]
        if place is None or code is None or any(it.needs_original and text != it.default for it, text in set_to):
            return None
        given = sorted(options.values.items(), key=lambda it: it[0]), sorted(options.given)
        known = KIND, os.path.abspath(path), code, adapter.index, adapter.name, given, more
        key = hashlib.sha256(repr(known).encode("utf-8", "backslashreplace")).hexdigest()
        return cls(Folder(place), path, key, adapter, options)

    def find(self) -> KeptModel | None:
        """Returns the stored model if its files are unchanged, otherwise None.

        Waits first until this process has written its entries. With None, records the identities of the files for `keep`.
        """
        wait_deferred()
        data = self._folder.read(self._key)
        with suppress(EntryError, OSError, WgpuEpError):
            entry = read(data or b"", self._key, KIND, REFUSED)
            with understood():
                found = self._found(entry)
            if found is not None or self.refused:
                return found
        with suppress(OSError, ValueError):  # ValueError: a path with NUL
            paths = model_files(self.path)
            self._before = _identified([os.path.abspath(self.path)] if paths is None else paths)
            self._elsewhere = paths is None
        return None

    def _found(self, entry: Entry) -> KeptModel | None:
        content = entry.content
        matrices = None if content["matrices"] is None else frozenset(content["matrices"])
        if entry.kind == REFUSED:
            build_key = BuildKey.read(content["made_for"])
            if _are_current(content["files"]) and not build_key.differs(self._build_key(matrices)):
                self.refused = str(content["why"])
            return None
        at = content["context"]
        apart = Path(self._folder.second_path(self._key)) if content["apart"] else None
        context = GroupContext(bytes(entry.data[at:]), os.path.abspath(os.sep) + "model", apart)
        found = KeptModel(
            self.path,
            bytes(entry.data[:at]),
            context,
            tuple(content["nodes"]),
            matrices,
            content["says"],
            content["files"],
        )
        differs = not found.is_current() or context.build_key.differs(self._build_key(matrices))
        return None if differs else found

    def _build_key(self, matrices: frozenset[str] | None) -> BuildKey:
        """Returns adapter, options and version for which a session would compile. Raises WgpuEpError."""
        options = self._options
        types = partial(matrix_types, self.path) if matrices is None else lambda: matrices
        library = library_for(self._adapter, options, types).name
        context = context_for(self._adapter, options, library, settings_from(RunSettings, options.values).bounds_checks)
        member = context.join(settings_of(options, context.view), fields_set(options))
        try:
            return BuildKey.of(context.target, settings_from(CompileSettings, options.values))
        finally:
            member.leave()

    def keep(self, made: MadeModel, matrices: frozenset[str] | None, description: Mapping[str, Any]) -> None:
        """Stores the compiled model of a session with this description, if the files are unchanged since `find`.

        A background thread, which receives no interrupts, writes it. Since a process can be killed at any time, the entry is
        written last, and states whether it has a second file.
        """
        if self._elsewhere:
            self.refuse(_ELSEWHERE, BuildKey.read(made.context.content["made_for"]), matrices)
            return
        if self._before is not None:
            model = model_of_one(description["meta"], made.name, made.inputs, made.outputs, made.given, made.results)
            start_deferred(partial(self._write_made, self._before, made, matrices, description, model))

    def _write_made(
        self,
        files: _Files,
        made: MadeModel,
        matrices: frozenset[str] | None,
        description: Mapping[str, Any],
        model: bytes,
    ) -> None:
        if made.apart:
            if not self._folder.write_second(self._key, parts_apart(made.apart)):
                return
            path = self._folder.second_path(self._key)
            try:
                files = [*files, [path, *_identity(path)]]
            except OSError:  # another process removed it
                return
        content = {
            "files": files,
            "apart": bool(made.apart),
            "context": len(model),
            "nodes": list(made.nodes),
            "matrices": None if matrices is None else sorted(matrices),
            "says": description,
        }
        self._write(KIND, content, description["meta"]["graph_name"], model + written(CONTEXT, made.context))

    def refuse(self, why: str, build_key: BuildKey, matrices: frozenset[str] | None) -> None:
        """Records that the files at `find` give no compiled model, and why, so that later sessions do not try again."""
        content = {
            "why": why,
            "apart": False,
            "made_for": build_key.as_json(),
            "matrices": None if matrices is None else sorted(matrices),
            "files": self._before,
        }
        if self._before is not None:
            graph = f"{os.path.basename(self.path)}: {why}"
            self._write(REFUSED, content, graph, b"")

    def _write(self, kind: str, content: Mapping[str, Any], graph: str, data: bytes) -> None:
        done = False
        with suppress(OSError):
            if self._before is not None and self._before == _identified([path for path, *_ in self._before]):
                about = {"graph": graph, "adapter": self._adapter.name}
                done = self._folder.write(self._key, written(self._key, Entry(kind, {}, content, about, data)))
        if not done or not content["apart"]:
            self._folder.remove_second(self._key)


def _are_current(files: _Files) -> bool:
    try:
        return all([*_identity(path)] == identity for path, *identity in files)
    except OSError:
        return False


def _identity(path: str) -> Sequence[int]:
    return astuple(FileIdentity.of(Path(path)))


def _identified(paths: Sequence[str]) -> _Files | None:
    """Returns the files with their identities; None if one of them may be in the process of being written. Raises OSError."""
    found = [(path, FileIdentity.settled(Path(path))) for path in paths]
    return (
        None if any(it is None for _, it in found) else [[path, *astuple(it)] for path, it in found if it is not None]
    )
