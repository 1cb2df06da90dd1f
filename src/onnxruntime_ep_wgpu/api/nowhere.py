"""Nodes that no provider runs.

In: ONNX Runtime's error for a session, and the placement of the nodes. Out: an error with the node, the reason and the remedy;
None for any other error.
"""

from __future__ import annotations

import re
from typing import Any

from ..errors import UnsupportedError, cut
from ..plugin.assign.decision import FORCED

_WITHOUT_PROVIDER = re.compile(
    r"Provider type for (?P<type>\S+) node with name '(?P<name>.*)' is not set"
    r"|Could not find an implementation for (?P<type2>\S+) node with name '(?P<name2>.*)'",
    re.DOTALL,
)
"""The messages of ONNX Runtime 1.24 to 1.32 (transformer_memcpy.cc, session_state.cc)."""


def without_provider(error: BaseException, provider: Any) -> UnsupportedError | None:
    """Returns the error to raise instead. `provider` belongs to the failed session; it is None if ONNX Runtime created none."""
    found = _WITHOUT_PROVIDER.search(str(error))
    if found is None:
        return None
    operator, name = found["type"] or found["type2"], found["name"] or found["name2"] or ""
    state = None if provider is None else provider.state
    placed = [] if state is None else state.assignment.placements()
    reason = next((it.reason for it in placed if it.name == name and it.reason), None)
    if reason == FORCED:
        why = "It is named in forceCpuNodeNames: remove it there"
    else:
        why = f"It does not run on WebGPU: {reason}" if reason else "No provider of the session takes it"
    return UnsupportedError(
        f"node {cut(name)} ({operator}): the CPU provider has no kernel for its types. {why}, or change its types by Cast"
    )
