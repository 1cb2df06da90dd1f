"""Compiled models that ONNX Runtime cannot write.

In: ONNX Runtime's error for a session that compiles a model. Out: an error with the constant's name and the remedy; None for
any other error."""

from __future__ import annotations

import re

import onnxruntime as ort

from ..errors import UnsupportedError, cut

# The message of ONNX Runtime 1.32 (graph.cc).
_IN_MEMORY = re.compile(r"Initializer '(?P<name>.*)' references an ORT in-memory address marker", re.DOTALL)


def unwritten(error: BaseException, enabled: bool) -> UnsupportedError | None:
    """Returns the error to raise instead. `enabled`: whether the session writes a compiled model."""
    found = _IN_MEMORY.search(str(error)) if enabled else None
    if found is None:
        return None
    return UnsupportedError(
        f"the compiled model cannot be written: ONNX Runtime {ort.__version__} writes no constant of more than 127 bytes"
        f" in the body of a node, as {cut(found['name'])} does; move it into the graph around the node, as an initializer"
    )
