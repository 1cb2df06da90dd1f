"""Whether a compiled model suits an adapter, which ONNX Runtime asks before there is a session.

In: what a session said when it compiled the model, and the adapters of some devices. Out: ONNX Runtime's number for it. Invariant:
a model that is said to suit one of them runs there as it was compiled, with the options of then; of others the graphs are compiled
again.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from ...device.choice import checked_matrices
from ...errors import WgpuEpError
from ...program.settings import DEFAULT
from .made_for import MadeFor

if TYPE_CHECKING:
    from ...device import Adapter

# OrtCompiledModelCompatibility
NOT_APPLICABLE, OPTIMAL, PREFER_RECOMPILATION, UNSUPPORTED = range(4)


def compatibility(info: str, adapters: Iterable[Adapter]) -> int:
    """That of a compiled model with this `info`, on the best of these adapters. What this package did not say is not supported."""
    try:
        made_for = MadeFor.read(info)
    except ValueError:
        return UNSUPPORTED
    found = list(adapters)
    if not found:
        return NOT_APPLICABLE
    for adapter in found:
        with suppress(WgpuEpError):  # a library that is not known or cannot be opened, or does not see the adapter
            seen = adapter.through("", made_for.library)
            now = MadeFor.of(seen.target(matrices=checked_matrices(seen)), DEFAULT)
            if now.suits(made_for):
                return OPTIMAL
    return PREFER_RECOMPILATION
