"""The lowered graph.

- `view`: tensors, views and the base class of nodes.
- `body`: the body of a map and the elements it reads.
- `graph`: the kinds of nodes.
- `expression`: the language of pointwise maps.
- `kinds`: the types of values in expressions.
- `floats`: types that only exist in memory.
- `signed_bytes`: integers that matrix units can multiply as bytes.
- `binding_ranges`: how tensors larger than a binding are bound.
"""

from ..templates.preprocess import Constant
from .body import Body, Element
from .graph import (
    MAX_COST,
    MAX_INLINED_COST,
    MOST_ELEMENTS,
    REPETITION,
    Bits,
    Call,
    DataAssertion,
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
    "MAX_COST",
    "MAX_INLINED_COST",
    "MOST_ELEMENTS",
    "REPETITION",
    "Axis",
    "Bits",
    "Body",
    "Call",
    "Constant",
    "DataAssertion",
    "Element",
    "Factor",
    "Function",
    "Inner",
    "Join",
    "LoweredGraph",
    "Map",
    "Message",
    "Node",
    "Pad",
    "Read",
    "Shape",
    "Storage",
    "Tensor",
    "Variant",
    "View",
    "Write",
    "broadcast_shapes",
    "coalesce",
    "distribute",
    "is_read_again",
    "packed_run",
    "split_groups",
]  # fmt: skip
