"""Which convolutions of a graph make images whose channels are last in memory.

In: an ONNX graph. Out: its convolutions that do, where `channels_last` is chosen for the target. What convolutions hand on to each
other, through operators that leave the order of memory as it is, has one order: that which its readers want. Convolutions read
windows of neighbouring channels nearly twice as fast; every other reader, and the caller, wants the order of ONNX.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

_CONVOLUTIONS = frozenset({"Conv", "FusedConv"})
_ELEMENTS = frozenset({
    "Abs", "Add", "BatchNormalization", "Cast", "Celu", "Clip", "Div", "Dropout", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid",
    "HardSwish", "Identity", "LeakyRelu", "Log", "Max", "Min", "Mish", "Mul", "Neg", "PRelu", "Pow", "QuickGelu", "Relu", "Selu",
    "Sigmoid", "Softplus", "Softsign", "Sqrt", "Sub", "Swish", "Tanh", "ThresholdedRelu", "Where",
})  # fmt: skip
_IMAGES = frozenset({"AveragePool", "Concat", "MaxPool", "Pad", "Resize", "Slice", "Split", "Upsample"})
_REDUCED = frozenset({"GlobalAveragePool", "GlobalMaxPool", "ReduceMean", "ReduceMax", "ReduceSum", "Shape", "Size"})
READERS_PER_OTHER = 4
"""Convolutions that have to read images for each other reader, which has to read them across."""


def channels_last_in(graph: ir.Graph, every: bool = False) -> frozenset[ir.Node]:
    """The convolutions whose results have their channels last; `every` one, or those whose readers want it."""
    found: set[ir.Node] = set()
    seen: set[ir.Node] = set()
    for node in graph:
        if _is_convolution(node) and node not in seen:
            together = _together(node)
            seen |= together
            convolutions = set(filter(_is_convolution, together))
            reading, others = _readers(together)
            if every or (reading and reading >= READERS_PER_OTHER * others):
                found |= convolutions
    return frozenset(found)


def _together(first: ir.Node) -> set[ir.Node]:
    """Convolutions, and what follows them, that hand images on to each other."""
    found, pending = {first}, [first]
    while pending:
        node = pending.pop()
        for other in (*_makers(node), *(it for value in node.outputs for it, _ in value.uses())):
            if other not in found and _hands_on(other):
                found.add(other)
                pending.append(other)
    return found


def _makers(node: ir.Node) -> Iterator[ir.Node]:
    """Who makes the images that a node reads."""
    for value in node.inputs[:1] if _is_convolution(node) else node.inputs:
        producer = value.producer() if value is not None else None
        if producer is not None:
            yield producer


def _hands_on(node: ir.Node) -> bool:
    return node.op_type in _ELEMENTS or node.op_type in _IMAGES or _is_convolution(node)


def _is_convolution(node: ir.Node) -> bool:
    """Of one group, or of a channel each; others read a part of the channels at a time."""
    if node.op_type not in _CONVOLUTIONS:
        return False
    group = node.attributes.get("group")
    weights = node.inputs[1]
    each = weights is not None and weights.shape is not None and weights.shape[1] == 1
    return group is None or group.as_int() == 1 or each


def _readers(together: set[ir.Node]) -> tuple[int, int]:
    """How often convolutions read what these nodes make, and how often others do, or these read what others make."""
    convolutions = others = 0
    for node in together:
        for value in node.outputs:
            others += value.is_graph_output()
            for reader, number in value.uses():
                read = _is_convolution(reader) and number == 0
                convolutions += read
                others += not (read or reader in together or reader.op_type in _REDUCED)
        if not _is_convolution(node):
            made = [it for it in _makers(node) if it not in together]
            others += sum(it.op_type not in _REDUCED | {"Constant"} for it in made)
    return convolutions, others
