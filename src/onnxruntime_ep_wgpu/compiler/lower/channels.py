"""Decides which convolutions of a graph store their images channels-last. `memory_format.py` propagates the layout.

In: an ONNX graph. Out: the convolutions that use the layout, where `channels_last` is chosen for the target. The result also
contains the transposes that these convolutions read as channels-last images.

Convolutions that pass images to each other, through operators that keep the memory order, share one layout: the one that most
readers prefer. Convolutions read windows of neighbouring channels nearly twice as fast. A transpose that moves the channels
to the end, as before a LayerNorm, then costs nothing. Every other reader, and the caller, prefers the order of ONNX.
Invariant: layout never affects results, so every node is accepted.

The decision comes before lowering, and is no rule of the lowered graph, because lowering depends on it:

* the kernel of a convolution or a pool,
* the axis order of everything computed from its result,
* the order in which weights are uploaded.

Each operator declares how it handles images (`chooses_format`, `keeps_format`, `any_format` in `ops/registry.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from .ops import conv_groups, host, registry

READERS_PER_OTHER = 4
"""The number of readers that prefer channels-last for each other reader, which then reads with strides. Not measured closely.
On an H200, DenseNet, VGG and MobileNet have 20 and more per other reader, and gain 5 to 25 %. ViT and ShuffleNet have fewer
than 1, and lose."""


def channels_last_in(graph: ir.Graph, every: bool = False) -> frozenset[ir.Node]:
    """Returns the convolutions with channels-last results, and the transposes of such tensors that these convolutions read.
    With `every`, all convolutions qualify, else those with enough readers that prefer the layout."""
    found: set[ir.Node] = set()
    seen: set[ir.Node] = set()
    for node in graph:
        if _is_convolution(node) and node not in seen:
            connected = _connected(node)
            seen |= connected
            convolutions = set(filter(_is_convolution, connected))
            reading, others = _count_readers(connected)
            if every or (reading and reading >= READERS_PER_OTHER * others):
                found |= convolutions
                found |= {maker for it in connected for maker in _image_producers(it) if _moves_channels_second(maker)}
    return frozenset(found)


def _connected(first: ir.Node) -> set[ir.Node]:
    """Returns the convolutions and the layout-preserving nodes that are connected to `first` by images."""
    found, pending = {first}, [first]
    while pending:
        node = pending.pop()
        for other in (*_image_producers(node), *(it for value in node.outputs for it, _ in value.uses())):
            if other not in found and _keeps_layout(other):
                found.add(other)
                pending.append(other)
    return found


def _image_producers(node: ir.Node) -> Iterator[ir.Node]:
    """The producers of the images that a node reads."""
    for number, value in enumerate(node.inputs):
        if _is_convolution(node) and not _reads_image(node, number):
            continue
        producer = value.producer() if value is not None else None
        if producer is not None:
            yield producer


def _keeps_layout(node: ir.Node) -> bool:
    """Whether the result has the layout of the operands."""
    operator = registry.declared(node.op_type, node.domain)
    return (operator is not None and operator.keeps_format) or _is_convolution(node)


def _is_convolution(node: ir.Node) -> bool:
    """Whether it is a convolution with one group, or with groups of one channel or of whole vectors of channels. Others read
    part of a vector at a time."""
    operator = registry.declared(node.op_type, node.domain)
    if operator is None or not operator.chooses_format or len(node.inputs) < 2:
        return False
    group, weights = node.attributes.get("group"), node.inputs[1]
    if group is None or group.value == 1:
        return True
    shape = tuple(weights.shape) if weights is not None and weights.shape is not None else ()
    if len(shape) < 3 or not all(isinstance(it, int) for it in shape):
        return False
    features, channels, *kernel = (int(it) for it in shape if isinstance(it, int))
    return channels == 1 or conv_groups.are_whole_vectors(features, channels, group.as_int(), kernel)


def _moves_channels_last(node: ir.Node) -> bool:
    order = _permutation_of(node)
    return order == (0, *range(2, len(order)), 1)


def _moves_channels_second(node: ir.Node) -> bool:
    order = _permutation_of(node)
    return order == (0, len(order) - 1, *range(1, len(order) - 1))


def _permutation_of(node: ir.Node) -> tuple[int, ...]:
    """The permutation of an image's axes by a transpose; () for other nodes."""
    perm = node.attributes.get("perm")
    if node.op_type != "Transpose" or node.domain not in ("", "ai.onnx") or perm is None:
        return ()
    order = tuple(perm.as_ints())
    return order if len(order) > 2 else ()


def _reads_image(convolution: ir.Node, number: int) -> bool:
    """Whether an input is an image: the input of the convolution, or the tensor that FusedConv adds."""
    operator = registry.declared(convolution.op_type, convolution.domain)
    return operator is not None and operator.operands[number] in operator.chooses_format


def _reads_any_layout(node: ir.Node) -> bool:
    """Whether the node reads images in any memory format equally well."""
    operator = registry.declared(node.op_type, node.domain)
    return host.reads_shape_alone(node.op_type, node.domain) or (operator is not None and operator.any_format)


def _count_readers(connected: set[ir.Node]) -> tuple[int, int]:
    """Returns two counts of edges: those that prefer channels-last, and those that prefer the order of ONNX. The latter
    include the images from other producers that these nodes read."""
    wanted = others = 0
    for node in connected:
        for value in node.outputs:
            others += value.is_graph_output()
            for reader, number in value.uses():
                if reader in connected and _is_convolution(reader):
                    wanted += number == 0
                    others += not _reads_image(reader, number)
                elif _moves_channels_last(reader):
                    wanted += 1
                else:
                    others += reader not in connected and not _reads_any_layout(reader)
        if not _is_convolution(node):
            made = [it for it in _image_producers(node) if it not in connected and not _moves_channels_second(it)]
            others += sum(it.op_type != "Constant" and not _reads_any_layout(it) for it in made)
    return wanted, others
