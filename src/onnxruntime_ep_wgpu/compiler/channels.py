"""Which convolutions of a graph make images whose channels are last in memory.

In: an ONNX graph. Out: its convolutions that do, where `channels_last` is chosen for the target. What convolutions hand on to each
other, through operators that leave the order of memory as it is, has one order: that which its readers want. Convolutions read
windows of neighbouring channels nearly twice as fast; every other reader, and the caller, wants the order of ONNX. Invariant: any
answer is right, so whatever a node is like, there is one.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from .ops import registry

_CONVOLUTIONS = frozenset({("", "Conv"), ("ai.onnx", "Conv"), ("com.microsoft", "FusedConv")})
_IMAGES = frozenset({"AveragePool", "Concat", "MaxPool", "Pad", "Resize", "Slice", "Split", "Upsample"})
_REDUCED = frozenset({"GlobalAveragePool", "GlobalMaxPool", "ReduceMean", "ReduceMax", "ReduceSum", "Shape", "Size"})
READERS_PER_OTHER = 4
"""How many convolutions have to read images for each other reader, which reads them across then. Not measured closely: on an H200
DenseNet, VGG and MobileNet, with 20 and more for each, gain 5 to 25 %; ViT and ShuffleNet, with fewer than 1, lose."""


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
    for number, value in enumerate(node.inputs):
        if _is_convolution(node) and not _reads_image(number):
            continue
        producer = value.producer() if value is not None else None
        if producer is not None:
            yield producer


def _hands_on(node: ir.Node) -> bool:
    """Whether the result lies as what it is made of."""
    images = node.domain in ("", "ai.onnx") and node.op_type in _IMAGES
    return images or registry.is_elementwise(node.op_type, node.domain) or _is_convolution(node)


def _is_convolution(node: ir.Node) -> bool:
    """Of one group, or of a channel each; others read a part of the channels at a time."""
    if (node.domain, node.op_type) not in _CONVOLUTIONS or len(node.inputs) < 2:
        return False
    group, weights = node.attributes.get("group"), node.inputs[1]
    each = weights is not None and weights.shape is not None and len(weights.shape) > 1 and weights.shape[1] == 1
    return group is None or group.value == 1 or each


def _reads_image(number: int) -> bool:
    """Whether an input is an image for a convolution: what it convolves, and what FusedConv adds."""
    return number in (0, 3)


def _readers(together: set[ir.Node]) -> tuple[int, int]:
    """How often convolutions read what these nodes make, and how often others do, or these read what others make."""
    convolutions = others = 0
    for node in together:
        for value in node.outputs:
            others += value.is_graph_output()
            for reader, number in value.uses():
                if reader in together and _is_convolution(reader):
                    convolutions += number == 0
                    others += not _reads_image(number)
                else:
                    others += reader not in together and reader.op_type not in _REDUCED
        if not _is_convolution(node):
            made = [it for it in _makers(node) if it not in together]
            others += sum(it.op_type not in _REDUCED | {"Constant"} for it in made)
    return convolutions, others
