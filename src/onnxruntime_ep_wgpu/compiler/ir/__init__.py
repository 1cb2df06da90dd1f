"""The lowered graph: `view` (tensors, and how they are looked at), `graph` (the nodes that read and make them)."""

from .graph import (
    MOST_ELEMENTS,
    REPETITION,
    Assertion,
    Call,
    Constant,
    Function,
    Inner,
    Join,
    LoweredGraph,
    Map,
    Message,
    Node,
    Pad,
    Read,
    Variant,
    Write,
    packed_run,
    split_groups,
)
from .view import Axis, Factor, Shape, Storage, Tensor, View, broadcast_shapes, coalesce, distribute

__all__ = [
    "MOST_ELEMENTS", "REPETITION", "Assertion", "Axis", "Call", "Constant", "Factor", "Function", "Inner", "Join",
    "LoweredGraph", "Map", "Message", "Node", "Pad", "Read", "Shape", "Storage", "Tensor", "Variant", "View", "Write",
    "broadcast_shapes", "coalesce", "distribute", "packed_run", "split_groups",
]  # fmt: skip
