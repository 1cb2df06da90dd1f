"""Whether a model leaves out what its mask says, as far as its nodes show: its values come to every attention, not their number.

In: an ONNX model. Out: True where the values of a mask are certain to come to the scores of every cache of keys, through nodes
that keep each one a value of its own place; what else a mask may do, as count positions, is none of that. A node that is not known
on the way is an answer of False: nothing is taken for a mask by its name alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import onnx

from .last_row import names_read

_MOVES = {
    "Cast", "CastLike", "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Reshape", "Slice",
    "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
}  # fmt: skip
_FIRST = _MOVES - {"Concat"}
"""Those that give on the values of their first input; of the others they read a place or a shape."""
_CALCULATES = {
    "Abs", "Add", "And", "Clip", "Div", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Max", "Min",
    "Mul", "Neg", "Not", "Or", "Sub", "Sum", "Tanh", "Trilu", "Where", "Xor",
}  # fmt: skip
_OF_MASKS = _MOVES | _CALCULATES | {"ScatterElements", "ScatterND"}
_OF_KEYS = _MOVES | _CALCULATES | {"DequantizeLinear", "Einsum", "FusedMatMul", "MatMul"}
_EXTENTS = {"Shape", "Size"}

_SCORES: Mapping[tuple[str, str], tuple[int, ...]] = {
    ("", "Softmax"): (0,),
    ("", "Attention"): (3,),
    ("com.microsoft", "MultiHeadAttention"): (4, 5),
}
"""Where keys end, and the inputs by which something of them is left out."""


def reaches_scores(model: onnx.ModelProto, mask: str, keys: Iterable[str]) -> bool:
    """`keys` are the inputs with those of every layer."""
    readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
    for node in model.graph.node:
        for name in set(names_read(node)):
            readers[name].append(node)
    masked = _given_on(mask, readers)
    return all(_are_masked(key, readers, masked) for key in keys)


def _given_on(mask: str, readers: Mapping[str, list[onnx.NodeProto]]) -> set[str]:
    """The values in which those of the mask are."""
    found, new = {mask}, [mask]
    while new:
        name = new.pop()
        for node in readers.get(name, ()):
            domain, kind = _kind(node)
            if domain == "" and kind in _OF_MASKS and (name == node.input[0] or kind not in _FIRST):
                made = set(node.output) - found - {""}
                found |= made
                new += made
    return found


def _are_masked(key: str, readers: Mapping[str, list[onnx.NodeProto]], masked: set[str]) -> bool:
    """Whether keys come to scores, to such alone that something is left out of, and on ways that are known."""
    seen, new, ends = {key}, [key], 0
    while new:
        name = new.pop()
        for node in readers.get(name, ()):
            places = _SCORES.get(_kind(node))
            if places is not None:
                if not any(place < len(node.input) and node.input[place] in masked for place in places):
                    return False
                ends += 1
            elif node.op_type not in _EXTENTS:
                if node.op_type not in _OF_KEYS:
                    return False
                made = set(node.output) - seen - {""}
                seen |= made
                new += made
    return ends > 0


def _kind(node: onnx.NodeProto) -> tuple[str, str]:
    return ("" if node.domain == "ai.onnx" else node.domain, node.op_type)
