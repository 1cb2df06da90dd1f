"""Tests whether a compiled model suits an adapter. ONNX Runtime needs the result before it makes a session.

In: the `BuildKey` that a session wrote when it compiled the model, and the adapters of some devices. Out: ONNX Runtime's number
for the compatibility. Invariant: a model that suits one of the adapters runs there as compiled, with the same options. For
others, its graphs are compiled again.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from ...device.choice import checked_matrices
from ...errors import WgpuEpError
from ...program.settings import DEFAULT
from .build_key import BuildKey

if TYPE_CHECKING:
    from ...device import Adapter

# OrtCompiledModelCompatibility
NOT_APPLICABLE, OPTIMAL, PREFER_RECOMPILATION, UNSUPPORTED = range(4)


def compatibility(info: str, adapters: Iterable[Adapter]) -> int:
    """Returns the compatibility of a compiled model with the best of these adapters.

    It is UNSUPPORTED if this package did not write `info`.
    """
    try:
        build_key = BuildKey.read(info)
    except ValueError:
        return UNSUPPORTED
    found = list(adapters)
    if not found:
        return NOT_APPLICABLE
    for adapter in found:
        with suppress(WgpuEpError):  # a library that is unknown, cannot be opened, or does not find the adapter
            seen = adapter.through("", build_key.library)
            now = BuildKey.of(seen.target(matrices=checked_matrices(seen)), DEFAULT)
            if now.suits(build_key):
                return OPTIMAL
    return PREFER_RECOMPILATION
