"""Which convolutions of a graph make images whose channels are last in memory, a memory format that `memory_format.py` hands on.

In: an ONNX graph. Out: its convolutions that do, where `channels_last` is chosen for the target, and the transposes whose results
they take as such images. What convolutions hand on to each other, through operators that leave the order of memory as it is, has
one order: that which its readers want. Convolutions read windows of neighbouring channels nearly twice as fast, and a transpose
that puts the channels last, as before a LayerNorm, is nothing then; every other reader, and the caller, wants the order of ONNX.
Invariant: any answer is right, so whatever a node is like, there is one.

This is decided before lowering and is no rule of the lowered graph, because lowering depends on it: which kernel a convolution or
a pool becomes, in which order all that is made of its result has its axes, and in which the device gets weights. What an
operator does about images it declares itself (`chooses_format`, `keeps_format`, `any_format` in `ops/registry.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from .ops import conv_groups, host, registry

READERS_PER_OTHER = 4
"""How many readers have to want the channels last for each other one, which reads them across then. Not measured closely: on an
H200 DenseNet, VGG and MobileNet, with 20 and more for each, gain 5 to 25 %; ViT and ShuffleNet, with fewer than 1, lose."""


def channels_last_in(graph: ir.Graph, every: bool = False) -> frozenset[ir.Node]:
    """The convolutions whose results have their channels last, `every` one or those whose readers want it, and the transposes that
    make what these read of what has them last."""
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
                found |= {maker for it in together for maker in _makers(it) if _puts_channels_second(maker)}
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
    """The nodes that make the images that a node reads."""
    for number, value in enumerate(node.inputs):
        if _is_convolution(node) and not _reads_image(node, number):
            continue
        producer = value.producer() if value is not None else None
        if producer is not None:
            yield producer


def _hands_on(node: ir.Node) -> bool:
    """Whether the result lies as what it is made of."""
    operator = registry.declared(node.op_type, node.domain)
    return (operator is not None and operator.keeps_format) or _is_convolution(node)


def _is_convolution(node: ir.Node) -> bool:
    """Of one group, or of a channel or whole vectors of channels each; others read a part of a vector at a time."""
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


def _puts_channels_last(node: ir.Node) -> bool:
    order = _transposes(node)
    return order == (0, *range(2, len(order)), 1)


def _puts_channels_second(node: ir.Node) -> bool:
    order = _transposes(node)
    return order == (0, len(order) - 1, *range(1, len(order) - 1))


def _transposes(node: ir.Node) -> tuple[int, ...]:
    """How a node orders the axes of an image; () for others."""
    perm = node.attributes.get("perm")
    if node.op_type != "Transpose" or node.domain not in ("", "ai.onnx") or perm is None:
        return ()
    order = tuple(perm.as_ints())
    return order if len(order) > 2 else ()


def _reads_image(convolution: ir.Node, number: int) -> bool:
    """Whether an input is an image: what it convolves, and what FusedConv adds."""
    operator = registry.declared(convolution.op_type, convolution.domain)
    return operator is not None and operator.operands[number] in operator.chooses_format


def _reads_any(node: ir.Node) -> bool:
    """Whether it reads images in any memory format equally well."""
    operator = registry.declared(node.op_type, node.domain)
    return host.reads_shape_alone(node.op_type, node.domain) or (operator is not None and operator.any_format)


def _readers(together: set[ir.Node]) -> tuple[int, int]:
    """How often nodes with the channels last read what these nodes make, and how often others do, or these read what others
    make."""
    wanted = others = 0
    for node in together:
        for value in node.outputs:
            others += value.is_graph_output()
            for reader, number in value.uses():
                if reader in together and _is_convolution(reader):
                    wanted += number == 0
                    others += not _reads_image(reader, number)
                elif _puts_channels_last(reader):
                    wanted += 1
                else:
                    others += reader not in together and not _reads_any(reader)
        if not _is_convolution(node):
            made = [it for it in _makers(node) if it not in together and not _puts_channels_second(it)]
            others += sum(it.op_type != "Constant" and not _reads_any(it) for it in made)
    return wanted, others
