"""The lowered graph: `view` (tensors, how they are looked at, what a node is), `body` (what a map reads where), `graph` (the kinds
of nodes)."""

from .body import Body, Element
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
    Pad,
    Variant,
    Write,
    is_read_again,
    packed_run,
)
from .view import (
    Axis,
    Factor,
    Node,
    Read,
    Shape,
    Storage,
    Tensor,
    View,
    broadcast_shapes,
    coalesce,
    distribute,
    split_groups,
)

__all__ = [
    "MOST_ELEMENTS", "REPETITION", "Assertion", "Axis", "Body", "Call", "Constant", "Element", "Factor", "Function",
    "Inner", "Join", "LoweredGraph", "Map", "Message", "Node", "Pad", "Read", "Shape", "Storage", "Tensor",
    "Variant", "View", "Write", "broadcast_shapes", "coalesce", "distribute", "is_read_again", "packed_run",
    "split_groups",
]  # fmt: skip
