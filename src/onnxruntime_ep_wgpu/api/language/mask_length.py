"""Decides from the nodes what depends on the length of a model's mask, for models that update their caches in place.

In: an ONNX model. Out: whether masks of all lengths that fit a text certainly give the same results; whether the model looks at the
length. Some models choose tables of angles by it. An unknown node on the way counts as such a use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx

from .last_row import readers_of

_COUNTS = {
    "Add", "Cast", "Gather", "Identity", "ReduceMax", "ReduceSum", "Reshape", "Shape", "Squeeze", "Sub", "Unsqueeze",
}  # fmt: skip
"""Operators between a mask and the lengths of sequences."""
_LENGTHS = (5, 6)
"""The inputs seqlens_k and total_sequence_length of GroupQueryAttention."""


def only_gives_lengths(model: onnx.ModelProto, mask: str) -> bool:
    """Returns whether the input `mask` reaches nothing but the lengths of GroupQueryAttention."""
    return _reach_lengths_alone(model, [mask], readers_of(model))


def decides_by_length(model: onnx.ModelProto, mask: str) -> bool:
    """Returns whether the shape of the input `mask` reaches anything but the lengths of GroupQueryAttention."""
    readers, sizes = readers_of(model), set[str]()
    seen, new = {mask}, [mask]
    while new:
        for node in readers.get(new.pop(), ()):
            if node.op_type in ("Cast", "Identity"):
                made = set(node.output) - seen
                seen |= made
                new += made
            elif node.op_type in ("Shape", "Size"):
                sizes.update(node.output)
    return not _reach_lengths_alone(model, sizes, readers)


def _reach_lengths_alone(
    model: onnx.ModelProto, names: Iterable[str], readers: Mapping[str, list[onnx.NodeProto]]
) -> bool:
    """Returns whether values with these names reach nothing but the lengths of GroupQueryAttention."""
    outputs, new = {it.name for it in model.graph.output}, [*names]
    seen = set(new)
    while new:
        name = new.pop()
        if name in outputs:
            return False
        for node in readers.get(name, ()):
            places = [place for place, it in enumerate(node.input) if it == name]
            if node.op_type == "GroupQueryAttention":
                if any(place not in _LENGTHS for place in places):
                    return False
            elif node.op_type not in _COUNTS or not places:
                return False
            else:
                made = set(node.output) - seen
                seen |= made
                new += made
    return True
