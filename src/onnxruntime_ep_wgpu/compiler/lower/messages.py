"""Messages of checks: texts with sizes that are filled in when a plan is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from ...errors import FreeSizeError, UnsupportedError
from ..dims import Dim
from ..graph.inference.bodies import has_body
from ..ir import Message
from .operand import Operand

Part = Operand | Sequence[Dim] | Dim


def message(origin: tuple[str, ...], text: str, parts: Sequence[Part], limit: bool) -> Message:
    """Returns a text with a `{}` for each part, prefixed with the name of the node that it is about. A part may have several
    dims."""
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


def unknown_rank(value: ir.Value, is_known: Callable[[ir.Value], bool]) -> UnsupportedError:
    """Returns the error for a value of unknown rank. It names the producer, or the value that the rank follows from, and the
    way out."""
    origin = _origin(value, is_known)
    text = f"the rank of {value.name!r} is unknown"
    if origin is not value:
        text += f", which follows from that of {origin.name!r}"
    maker = origin.producer()
    if maker is not None and has_body(maker):
        text += f": {maker.op_type} {maker.name or maker.outputs[0].name!r} decides it in a run"
        first = maker.inputs[0] if maker.inputs else None
        if maker.op_type == "If" and first is not None and first.producer() is None:
            return UnsupportedError(f"{text}; give both branches results of the same rank")
        return FreeSizeError(f"{text}; fixed dimensions of inputs may determine it before a run")
    if maker is not None:
        operator = f"{maker.domain}.{maker.op_type}" if maker.domain else maker.op_type
        text += f": no shape is inferred for the results of {operator} {maker.name!r}"
    where = "in the model" if maker is None else "in the model, in graph.value_info"
    return UnsupportedError(f"{text}; declare it {where}; a rank is enough, such as [?, ?] for two axes")


def _origin(value: ir.Value, is_known: Callable[[ir.Value], bool]) -> ir.Value:
    """Returns the first value of unknown rank on a path to this one."""
    seen = {value}
    while (maker := value.producer()) is not None and not has_body(maker):
        unknown = [it for it in maker.inputs if it is not None and it not in seen and not is_known(it)]
        if not unknown:
            break
        value = unknown[0]
        seen.add(value)
    return value
