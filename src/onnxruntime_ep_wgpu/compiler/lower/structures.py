"""Sequences and optional values during lowering. Their operands are known then, so kernels never see the structures.

They have no memory. The node that creates one and the nodes that read it are in one group, or all run elsewhere.
"""

from __future__ import annotations

from ...records import dataclass
from .operand import Operand


@dataclass(frozen=True)
class SequenceValue:
    """A sequence of tensors."""

    elements: tuple[Operand, ...]


@dataclass(frozen=True)
class OptionalValue:
    """A tensor, a sequence, or None for an empty value."""

    content: Operand | SequenceValue | None


Structure = SequenceValue | OptionalValue
Value = Operand | Structure

MADE_ELSEWHERE = "is a sequence or an optional value that is made elsewhere, and cannot be stored on a device"
LEAVES = "is a sequence or an optional value that leaves the nodes that run here, and cannot be stored on a device"
