"""Where a node of a session runs, as data for people and tools. Imports nothing of this package."""

from __future__ import annotations

from collections.abc import Iterable

from ...records import dataclass


@dataclass(frozen=True)
class Placement:
    """One node. `partition` numbers the compiled groups of its graph; `reason` says why it is not in one.

    `within` is the control-flow node whose body the node is in, "" for the main graph. `kernels` are the
    dispatches that calculate it, number and kernel; none for a view or a result that is known per input shape. `declined`
    are the rules of the compiler that looked at it and did not apply, with the reasons. `provider` is the name under which
    ONNX Runtime lists it, which here is either of this provider's two: `on_webgpu` says whether it is ours.
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
    """The inputs of a compiled group, by name, whose elements a run looks at: those that are in `sizes` alone, and those that
    `kernels` are made for, once for each value that comes."""

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
    """The first three different reasons against nodes, each with the first node that it holds for."""
    first: dict[str, Placement] = {}
    for node in nodes:
        if node.reason:
            first.setdefault(f"{node.op_type}: {node.reason}", node)
    shown = [f"{node.op_type} ({node.name}): {node.reason}" for node in list(first.values())[:3]]
    more = len(first) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")
