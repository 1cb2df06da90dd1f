"""Sharing: merges equal maps, joins and pads, as when every reader of a tensor has its own dequantisation."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from ..ir import Call, Join, LoweredGraph, Map, Node, Pad, Read, Storage, Tensor
from ..ir.signed_bytes import SIGNED


def share(graph: LoweredGraph) -> LoweredGraph:
    """Returns the graph without maps, joins and pads that equal an earlier one. Run it before `remove_dead`, which sets `users`.

    A result that the caller receives keeps its own node.
    """
    first: dict[Hashable, Map | Join | Pad] = {}
    replacements: dict[Tensor, Tensor] = {}
    kept: list[Node] = []
    for node in graph.nodes:
        readers: list[Node] = [node]
        if isinstance(node, Call):
            readers += [it for inner in node.inner.values() for it in inner.maps]
        for reader in readers:
            for name, read in reader.operands.items():
                if read.view.tensor in replacements:
                    reader.operands[name] = replace(
                        read, view=replace(read.view, tensor=replacements[read.view.tensor])
                    )
        if (
            isinstance(node, (Map, Join, Pad))
            and node.output.storage is Storage.TEMP
            and not node.output.kept
            and not (node.is_placed if isinstance(node, Join) else node.output.place)
            and (not isinstance(node, Map) or _is_worth_memory(node))
        ):
            existing = first.setdefault(_key(node), node)
            if existing is not node:
                existing.origin = tuple(dict.fromkeys((*existing.origin, *node.origin)))
                replacements[node.output] = existing.output
                continue
        kept.append(node)
    return replace(graph, nodes=kept)


def _is_worth_memory(node: Map) -> bool:
    """Returns False for a map that each reader should compute itself.

    The kernel before it can then store a map of its result instead. Bytes that matrix units multiply stay bytes.
    """
    if not node.inline:
        return True
    return node.is_pointwise and SIGNED not in node.constants and any(view.tensor.producer for view in node.reads)


def _key(node: Map | Join | Pad) -> Hashable:
    """Returns a key of everything that determines the elements of a result. Constants enter as text, because 0.0 equals -0.0 and
    1."""
    operands: tuple[tuple[str, Read], ...] = tuple(node.operands.items())
    if isinstance(node, Join):
        return operands, node.axis
    if isinstance(node, Pad):
        return operands, node.begins, node.output.shape
    constants = tuple((name, repr(value)) for name, value in node.constants.items())
    parameters = (*node.parameters.items(), *node.functions.items())
    text = (node.expression, node.body, node.coordinates, node.groups)
    return text, operands, constants, parameters, node.output.dtype, node.output.shape, node.inline
