"""The work of a kernel: arithmetic operations and memory traffic. In: a fused group. Out: both as dims, for profiles.

Invariant: the counts describe the operators, not the algorithm of the kernel. A value that is calculated twice counts once. An
element that is read again counts as a cache hit. So the resulting rates are the useful ones, and never exceed what the hardware
did.
"""

from __future__ import annotations

import ast
from functools import lru_cache

from ..dims import Dim, ceildiv, maximum, minimum
from ..ir import Call, Map, Node, Read, Tensor
from ..ir.expression import parse
from ..ir.kinds import KINDS
from .fuse import FusedGroup

_OPERATIONS = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.Call)
_FREE = (*KINDS, "narrow")


def operations(group: FusedGroup) -> Dim:
    """Returns the number of arithmetic operations. A multiply-add counts as two.

    A Call declares its own count (0 if unknown). A pointwise map counts the operators and functions of its expression. Other maps
    only move data and count as 0.
    """
    total: Dim = 0
    for node in group.nodes:
        total = total + _of_node(node)
    return total


def _of_node(node: Node) -> Dim:
    if isinstance(node, Call):
        return node.flops
    return _per_element(node.expression) * node.output.size if isinstance(node, Map) else 0


@lru_cache(maxsize=1024)
def _per_element(expression: str) -> int:
    if not expression:
        return 0
    found = [node for node in ast.walk(parse(expression)) if isinstance(node, _OPERATIONS)]
    free = [
        node
        for node in found
        if (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FREE)
        or (isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant))
    ]
    return len(found) - len(free)


def traffic(group: FusedGroup) -> Dim:
    """Returns the bytes read and written. Each stored result counts once. Of each tensor the elements read count, at most all of
    it."""
    inside = {tensor for node in group.nodes for tensor in node.outputs}
    read: dict[Tensor, Dim] = {}
    for node in group.nodes:
        for operand in node.operands.values():
            tensor = operand.view.tensor
            if tensor not in inside:
                elements = _elements_read(node, operand)
                read[tensor] = elements if tensor not in read else maximum(read[tensor], elements)
    total: Dim = 0
    for tensor, elements in read.items():
        total = total + ceildiv(minimum(tensor.size, elements) * tensor.dtype.bits, 8)
    for tensor in group.stores:
        total = total + ceildiv(tensor.size * tensor.dtype.bits, 8)
    return total


def _elements_read(node: Node, operand: Read) -> Dim:
    """Returns how many elements of an operand are read. A map without reuse reads one element per element of its result, like
    Gather."""
    if isinstance(node, Map) and not operand.reuse:
        return minimum(operand.view.size, node.output.size)
    return operand.view.size
