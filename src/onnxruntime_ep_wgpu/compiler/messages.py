"""Messages of checks: texts whose sizes are known when a plan is made."""

from __future__ import annotations

from collections.abc import Sequence

from .dims import Dim
from .ir import Message
from .operand import Operand

Part = Operand | Sequence[Dim] | Dim


def message(origin: tuple[str, ...], text: str, parts: Sequence[Part], limit: bool) -> Message:
    """A text with a `{}` for each part, which may have several dims, behind the name of the node that it is about."""
    shown, dims = [], list[Dim]()
    for part in parts:
        label = part.dtype.label if isinstance(part, Operand) else ""
        shape = part.shape if isinstance(part, Operand) else part
        if isinstance(shape, Sequence):
            shown.append(f"{label}[{', '.join('{}' for _ in shape)}]")
            dims += shape
        else:
            shown.append("{}")
            dims.append(shape)
    node = f"node {origin[0]!r}: ".replace("{", "{{").replace("}", "}}") if origin else ""
    return Message(node + text.format(*shown), tuple(dims), limit)
