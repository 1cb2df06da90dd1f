"""Messages of checks: texts whose sizes are known when a plan is made."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from ..errors import FreeSizeError, UnsupportedError
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


def unknown_rank(value: ir.Value) -> UnsupportedError:
    """Why a value without a rank cannot be read: what makes it, where that says more."""
    text = f"the rank of {value.name!r} is unknown"
    maker = value.producer()
    if maker is None:
        return UnsupportedError(text)
    if not any(it.type == ir.AttributeType.GRAPH for it in maker.attributes.values()):
        operator = f"{maker.domain}.{maker.op_type}" if maker.domain else maker.op_type
        return UnsupportedError(
            f"{text}: no shape is inferred for what {operator} {maker.name!r} makes; declare it in the model, in"
            " graph.value_info"
        )
    return FreeSizeError(
        f"{text}: {maker.op_type} {maker.name!r} decides it in a run; fixed dimensions of inputs may tell it before"
    )
