"""Decides from the nodes whether a model's mask applies to every attention.

In: an ONNX model. Out: True if the values of a mask certainly reach the scores of every key cache, through nodes that keep each
value in its own place. Other uses of a mask, such as counting positions, do not count. An unknown node on the way gives False:
a name alone does not make a mask.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx

from .last_row import readers_of

_MOVES = {
    "Cast", "CastLike", "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Reshape", "Slice",
    "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
}  # fmt: skip
_FIRST = _MOVES - {"Concat"}
"""Operators that pass on the values of their first input. Other inputs are positions or shapes."""
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
"""The operators where keys end, and the indices of their mask inputs."""


def reaches_scores(model: onnx.ModelProto, mask: str, keys: Iterable[str]) -> bool:
    """Returns whether the input `mask` applies to all attention scores of the inputs `keys`, one per layer."""
    readers = readers_of(model)
    masked = _reached_from(mask, readers)
    return all(_are_masked(key, readers, masked) for key in keys)


def _reached_from(mask: str, readers: Mapping[str, list[onnx.NodeProto]]) -> set[str]:
    """Returns the names of values that contain the mask's values."""
    found, new = {mask}, [mask]
    while new:
        name = new.pop()
        for node in readers.get(name, ()):
            domain, kind = _kind(node)
            if domain == "" and kind in _OF_MASKS and (name in node.input[:1] or kind not in _FIRST):
                made = set(node.output) - found - {""}
                found |= made
                new += made
    return found


def _are_masked(key: str, readers: Mapping[str, list[onnx.NodeProto]], masked: set[str]) -> bool:
    """Returns whether keys reach only masked scores, at least one, and only through known operators."""
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
