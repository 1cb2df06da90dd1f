"""Opens the device for a compiled model of the cache while the modules that make sessions are imported.

In: the arguments of `session()`. Out: the cache entry of the model, and a device that another thread is opening. Invariants:
`make` uses these only for the adapter and the options that it finds itself. Errors are left to `make`, which raises them again.
The thread that opens a device for a compiled model imports nothing, so this module imports what is needed. It also imports what
the lookup in the cache needs, ONNX Runtime among it, because the driver enumerates its adapters meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

import onnxruntime  # noqa: F401

from ..device import adapters
from ..device import device as device_module  # noqa: F401
from ..device import request as request_module  # noqa: F401
from ..options import as_text
from ..plugin.context import kept_model as kept_model_module  # noqa: F401
from ..plugin.preparation import SessionPreparation
from .arguments import check_options, model_argument, whole_number
from .kept import kept_models

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ..device import Adapter
    from ..options.types import ProviderOptions
    from ..plugin.context.kept_model import KeptModel, KeptModels


class SessionAhead:
    """A context manager around the making of a session from the compiled model `opened`, an entry of `kept`."""

    def __init__(self, adapter: Adapter, given: Mapping[str, str], kept: KeptModels, opened: KeptModel) -> None:
        self._adapter, self._given = adapter, given
        self.kept, self.opened = kept, opened
        self.preparation = SessionPreparation(adapter, given, kept.path, opened)

    def __enter__(self) -> SessionAhead:
        self.preparation.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.preparation.__exit__(*error)

    def is_for(self, adapter: Adapter, given: Mapping[str, str], sizes: Mapping[str, int]) -> bool:
        """Returns whether this is the session of an adapter, provider options as text, and fixed dimensions."""
        return self._adapter is adapter and self._given == given and not sizes


def begun_ahead(
    model: str | os.PathLike[str] | bytes,
    device: Any,
    free_dimensions: Mapping[str, int] | None,
    options: ProviderOptions,
    owned: bool,
) -> AbstractContextManager[SessionAhead | None]:
    """Returns a context of a session that the cache has a compiled model for, or of None.

    `owned`: the caller passes its own device or SessionOptions, so the cache is not used. For fixed dimensions the model must be
    read first, and for the name of a device ONNX Runtime's list.
    """
    with suppress(Exception):
        check_options(options)
        given = {key: as_text(key, value) for key, value in options.items()}
        index = int(given.get("adapterIndex", 0)) if device is None else whole_number(device)
        if not owned and not free_dimensions and index is not None and "webgpuDevice" not in given:
            adapter = adapters()[index]
            kept = kept_models(model_argument(model), adapter, given, {}, None)
            opened = None if kept is None else kept.find()
            if kept is not None and opened is not None:
                return SessionAhead(adapter, given, kept, opened)
    return nullcontext()
