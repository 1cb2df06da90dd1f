"""The placement of a session's nodes, as data for users and tools. Imports of this package only `records`."""

from __future__ import annotations

from collections.abc import Iterable

from ...records import dataclass


@dataclass(frozen=True)
class Placement:
    """The placement of one node.

    * `within`: the control-flow node that has the node in a body, "" for the main graph.
    * `provider`: the provider's name in ONNX Runtime. This package has two; `on_webgpu` covers both.
    * `partition`: the number of its compiled group in its graph; None if it does not run here.
    * `kernels`: the dispatches that compute it, as number and kernel. A view, or a result that follows from input shapes, has
      none.
    * `reason`: why it is not in a group.
    * `declined`: the rules of the compiler that examined it and did not apply, with the reasons.
    """

    name: str
    op_type: str
    domain: str
    within: str
    provider: str
    partition: int | None
    kernels: tuple[str, ...]
    reason: str | None
    declined: tuple[str, ...] = ()

    @property
    def on_webgpu(self) -> bool:
        """Whether this provider runs the node."""
        return self.partition is not None


@dataclass(frozen=True)
class GroupValues:
    """The inputs of a compiled group with elements that a run reads on the host, by name.

    `sizes`: inputs that only sizes depend on. `kernels`: inputs that kernels depend on, which are made once for each new value.
    """

    within: str
    partition: int
    sizes: tuple[str, ...]
    kernels: tuple[str, ...]

    def __str__(self) -> str:
        inside = f" in {self.within}" if self.within else ""
        parts = [
            f"{what} the values of {', '.join(map(repr, names))}"
            for what, names in (("sizes follow from", self.sizes), ("kernels are made for", self.kernels))
            if names
        ]
        return f"group {self.partition}{inside}: {'; '.join(parts)}"


def reasons_of(nodes: Iterable[Placement]) -> str:
    """Returns the first three different reasons against nodes, each with the first node that has it."""
    first: dict[str, Placement] = {}
    for node in nodes:
        if node.reason:
            first.setdefault(f"{node.op_type}: {node.reason}", node)
    shown = [f"{node.op_type} ({node.name}): {node.reason}" for node in list(first.values())[:3]]
    more = len(first) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")
