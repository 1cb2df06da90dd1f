"""What a kernel has to do: arithmetic and memory traffic. In: a fused group. Out: both as dims, for profiles.

Invariant: counted is what the operators ask for, not how a kernel goes about it: a value that is calculated twice counts
once, and an element that is read again counts as if it came from a cache. So the rates that follow are what a user gets
for the time, never more than the hardware did.
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
    """Arithmetic operations; a multiplication and an addition are two.

    A Call says itself (0 where it does not know), pointwise maps count the operators and functions of their expression,
    and other maps, which move data, count nothing.
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
    """Bytes read and written: each stored result once, and of each tensor read what is looked at, at most all of it."""
    inside = {tensor for node in group.nodes for tensor in node.outputs}
    read: dict[Tensor, Dim] = {}
    for node in group.nodes:
        for operand in node.operands.values():
            tensor = operand.view.tensor
            if tensor not in inside:
                elements = _looked_at(node, operand)
                read[tensor] = elements if tensor not in read else maximum(read[tensor], elements)
    total: Dim = 0
    for tensor, elements in read.items():
        total = total + ceildiv(minimum(tensor.size, elements) * tensor.dtype.bits, 8)
    for tensor in group.stores:
        total = total + ceildiv(tensor.size * tensor.dtype.bits, 8)
    return total


def _looked_at(node: Node, operand: Read) -> Dim:
    """Elements of an operand: a map that does not use them again reads one per element of its result, as Gather does."""
    if isinstance(node, Map) and not operand.reuse:
        return minimum(operand.view.size, node.output.size)
    return operand.view.size
