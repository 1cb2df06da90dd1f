"""What was decided of a graph, and the reasons that more than one part knows. Imports nothing that decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...compiler.inference.told import Told

FORCED = "named in forceCpuNodeNames"
ISLAND = "only shape arithmetic: cheaper on the CPU"
MOVED = "only views and casts between nodes on the CPU: cheaper there"


@dataclass(frozen=True)
class Claim:
    """`groups` of node places in the graph, each in topological order; `reasons` per node, None for a claimed one.

    `found` is what is known of values, by name, of which ONNX Runtime does not know type or rank: it infers nothing for some
    operators. A group that reads such a value relies on it.
    """

    groups: tuple[tuple[int, ...], ...]
    reasons: tuple[str | None, ...]
    found: Mapping[str, Told] = field(default_factory=dict)
