"""What becomes of a node when a graph is decided on."""

from __future__ import annotations

from ...records import dataclass


@dataclass(frozen=True)
class Fused:
    """It is compiled in a group with others, by the number of that."""

    group: int


@dataclass(frozen=True)
class Alone:
    """It runs here by itself, with all of its bodies. `name` is the kind of code that runs it."""

    name: str


@dataclass(frozen=True)
class OwnKernel:
    """ONNX Runtime runs it with a kernel of our registry, which hands tensors to its bodies. `name` is its operator."""

    name: str


@dataclass(frozen=True)
class Elsewhere:
    """It does not run here, for this reason."""

    reason: str


Outcome = Fused | Alone | OwnKernel | Elsewhere
