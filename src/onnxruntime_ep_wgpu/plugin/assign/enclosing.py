"""Whether nodes of a body may run here.

Invariant: only a body of If, Loop or Scan is free to run here. These copy what a body makes to where it is read, in the bodies
of other operators too. ONNX Runtime's kernels of others read it as host memory.
"""

from __future__ import annotations

from .shown import ShownNode

_COPYING = frozenset({("", "If"), ("", "Loop"), ("", "Scan")})
# A function: ONNX Runtime asks about its nodes again when they stand in place of it, and could not inline groups.
_FUNCTIONS = frozenset({("", "SequenceMap")})


def refusal_within(parent: ShownNode) -> str | None:
    """Why nothing in the bodies of a node may run here, or None."""
    operator = (parent.domain, parent.op_type)
    if operator in _FUNCTIONS:
        return f"ONNX Runtime replaces the {parent.op_type} around it by a Loop"
    if operator not in _COPYING:
        return f"the kernel of the {parent.op_type} around it reads what its bodies make as host memory"
    return None
