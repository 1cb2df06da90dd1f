"""Prepares a session's device while ONNX Runtime reads the model: chooses a library, loads it, and opens the device.

In: an adapter, the session's options, its model. Out: a context manager; a thread does this work during its `with`. Invariants:
the session makes the same choices and reports the errors itself. It waits until the library is chosen, so that no library is
loaded twice. The end of the `with` waits for the driver, and leaves the device to the session.
"""

from __future__ import annotations

from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING

from ..fields import settings_from
from ..kept.folder import Folder, folder_path
from ..options import Options, parse, program_defaults
from ..runtime.product_types import matrix_types
from ..runtime.settings import RunSettings
from ..threads import start_ahead
from .context.in_file import context_nodes
from .device_choice import context_for, library_for
from .settings import fields_set, settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..device import Adapter, Context
    from ..device.contexts import Member
    from .context.kept_model import KeptModel


class SessionPreparation:
    """A context manager around the making of one session with these options and without SessionOptions."""

    def __init__(
        self,
        adapter: Adapter,
        given: Mapping[str, str],
        model: str | bytes,
        opened: KeptModel | None = None,
        compiles: bool = False,
    ) -> None:
        """`opened`: the model that ONNX Runtime gets instead of `model`. `compiles`: the session probably compiles the model, as
        one does with an empty cache."""
        self._adapter, self._given, self._model, self._opened = adapter, given, model, opened
        self._compiles = compiles
        self._chosen, self._ended = SimpleQueue[None](), SimpleQueue[None]()
        self._member: Member | None = None
        # The types of the model's matrix products, set when the library is chosen by them.
        self.matrices_found: frozenset[str] | None = None if opened is None else opened.matrices

    def __enter__(self) -> SessionPreparation:
        if not start_ahead(self._work):
            self._chosen.put(None)
            self._ended.put(None)
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.get()
        if self._member is not None:
            self._member.leave()

    def wait_for_library(self) -> None:
        """Returns when the library is chosen."""
        self._chosen.put(self._chosen.get())  # puts the item back for the next waiting thread

    def _work(self) -> None:
        context, options, compiles = None, Options({}, {}), False
        with suppress(Exception):
            new = self._opened is None and (self._compiles or _cache_is_empty())
            compiles = new and not context_nodes(self._model)
            options = parse(self._given, [program_defaults()])
            context = self._context(options)
        self._chosen.put(None)
        with suppress(Exception):
            if context is not None:
                self._member = context.join(settings_of(options, context.view), fields_set(options))
                opening = context.open_ahead()
                try:
                    if compiles:
                        from . import compiling as compiling  # loads the compiler

                    context.device()
                finally:
                    opening.end()  # one that starts later would open another device, perhaps for a session that keeps none
        self._ended.put(None)

    def _context(self, options: Options) -> Context:
        name = library_for(self._adapter, options, self._matrices).name
        return context_for(self._adapter, options, name, settings_from(RunSettings, options.values).bounds_checks)

    def _matrices(self) -> frozenset[str]:
        if self.matrices_found is None:
            self.matrices_found = matrix_types(self._model)
        return self.matrices_found


def _cache_is_empty() -> bool:
    """Returns whether there is no cache, or nothing in it."""
    path = folder_path()
    return path is None or not Folder(path).entries()
