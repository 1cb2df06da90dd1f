"""What was decided of a graph, and the reasons that more than one part knows. Imports nothing that decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING

from ...records import dataclass
from .outcome import Alone, Elsewhere, Fused, Outcome, OwnKernel

if TYPE_CHECKING:
    from ...compiler.graph.inference.value_info import ValueInfo

FORCED = "named in forceCpuNodeNames"
ISLAND = "only shape arithmetic: cheaper on the CPU"
MOVED = "only views and casts between nodes on the CPU: cheaper there"


@dataclass(frozen=True)
class Claim:
    """An outcome per node of a graph.

    `found` is what is known of values, by name, of which ONNX Runtime does not know type or rank: it infers nothing for some
    operators. A group that reads such a value relies on it.
    """

    outcomes: tuple[Outcome, ...]
    found: Mapping[str, ValueInfo] = field(default_factory=dict)

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The places of nodes that are compiled as one, each in topological order; a node that runs by itself is one alone."""
        fused: dict[int, list[int]] = {}
        for place, outcome in enumerate(self.outcomes):
            if isinstance(outcome, Fused):
                fused.setdefault(outcome.group, []).append(place)
        alone = ((place,) for place, outcome in enumerate(self.outcomes) if isinstance(outcome, Alone))
        return *(tuple(fused[number]) for number in sorted(fused)), *alone

    @cached_property
    def kernels(self) -> tuple[int, ...]:
        """The places of nodes that ONNX Runtime runs with kernels of ours."""
        return tuple(place for place, outcome in enumerate(self.outcomes) if isinstance(outcome, OwnKernel))

    @property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """The places of all nodes that run here: groups, then kernels."""
        return *self.groups, *((place,) for place in self.kernels)

    @cached_property
    def reasons(self) -> tuple[str | None, ...]:
        """Why nodes do not run here; None for those that do."""
        return tuple(it.reason if isinstance(it, Elsewhere) else None for it in self.outcomes)
