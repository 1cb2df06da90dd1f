"""The outcomes of nodes in the decision on a graph."""

from __future__ import annotations

from ...records import dataclass


@dataclass(frozen=True)
class Fused:
    """The node is compiled in a group; `group` is the number of the group."""

    group: int


@dataclass(frozen=True)
class Alone:
    """The node runs here by itself, with all its bodies. `name`: the kind of code that runs it."""

    name: str


@dataclass(frozen=True)
class OwnKernel:
    """ONNX Runtime runs the node with a kernel of our registry, which passes tensors to its bodies. `name`: its operator."""

    name: str


@dataclass(frozen=True)
class Elsewhere:
    """The node does not run here, for this reason."""

    reason: str


Outcome = Fused | Alone | OwnKernel | Elsewhere
