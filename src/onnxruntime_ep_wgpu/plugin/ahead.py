"""What a session needs of its device, while ONNX Runtime reads the model: a library is chosen, loaded, and opens the device.

In: an adapter, a session's options, its model. Out: a `with`, in which a thread does that. Invariants: the session takes what it
would take by itself, and says itself what is wrong; it waits until the library is chosen, so that none is loaded twice; the end
of the `with` waits for the driver, and leaves the device to the session.
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
from ..threads import begin_ahead
from .context.in_file import context_nodes
from .device_choice import context_for, library_for
from .settings import asked, settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..device import Adapter, Context
    from ..device.contexts import Member
    from .context.kept_model import KeptModel


class Ahead:
    """A `with` around the making of one session, which is given these options and no SessionOptions."""

    def __init__(
        self, adapter: Adapter, given: Mapping[str, str], model: str | bytes, opened: KeptModel | None = None
    ) -> None:
        """`opened` is what ONNX Runtime gets instead of the model."""
        self._adapter, self._given, self._model, self._opened = adapter, given, model, opened
        self._chosen, self._ended = SimpleQueue[None](), SimpleQueue[None]()
        self._member: Member | None = None
        # What the model multiplies, once the library was chosen by it.
        self.matrices_found: frozenset[str] | None = None if opened is None else opened.matrices

    def __enter__(self) -> Ahead:
        if not begin_ahead(self._work):
            self._chosen.put(None)
            self._ended.put(None)
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.get()
        if self._member is not None:
            self._member.leave()

    def wait_for_library(self) -> None:
        """Returns when the library is chosen."""
        self._chosen.put(self._chosen.get())  # for the next one that waits

    def _work(self) -> None:
        context, options, compiles = None, Options({}, {}), False
        with suppress(Exception):
            compiles = self._opened is None and _nothing_is_kept() and not context_nodes(self._model)
            options = parse(self._given, [program_defaults()])
            context = self._context(options)
        self._chosen.put(None)
        with suppress(Exception):
            if context is not None:
                self._member = context.join(settings_of(options, context.view), asked(options))
                opening = context.open_ahead()
                if compiles:
                    from . import compiling as compiling  # with the compiler

                context.device()
                opening.end()  # one that has not begun yet would open another device, for a session that may keep none
        self._ended.put(None)

    def _context(self, options: Options) -> Context:
        name = library_for(self._adapter, options, self._matrices).name
        return context_for(self._adapter, options, name, settings_from(RunSettings, options.values).bounds_checks)

    def _matrices(self) -> frozenset[str]:
        if self.matrices_found is None:
            self.matrices_found = matrix_types(self._model)
        return self.matrices_found


def _nothing_is_kept() -> bool:
    """Whether no Program can come from the cache."""
    path = folder_path()
    return path is None or not Folder(path).entries()
