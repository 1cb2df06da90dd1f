"""The decision on a graph, and the reasons that several modules use. Imports none of the modules that decide."""

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
SHAPE_ARITHMETIC = "only shape arithmetic, which is cheaper on the CPU"
VIEWS_AND_CASTS = "only views and casts between nodes on the CPU, which are cheaper there"


@dataclass(frozen=True)
class Claim:
    """One outcome per node of a graph.

    `found`: types and shapes, by name, of values without a type or rank in ONNX Runtime, which infers nothing for some
    operators. A group that reads such a value relies on them.
    """

    outcomes: tuple[Outcome, ...]
    found: Mapping[str, ValueInfo] = field(default_factory=dict)

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The positions of nodes that are compiled together, in topological order. A node that runs alone is a group of one."""
        fused: dict[int, list[int]] = {}
        for place, outcome in enumerate(self.outcomes):
            if isinstance(outcome, Fused):
                fused.setdefault(outcome.group, []).append(place)
        alone = ((place,) for place, outcome in enumerate(self.outcomes) if isinstance(outcome, Alone))
        return *(tuple(fused[number]) for number in sorted(fused)), *alone

    @cached_property
    def kernels(self) -> tuple[int, ...]:
        """The positions of nodes that ONNX Runtime runs with our kernels."""
        return tuple(place for place, outcome in enumerate(self.outcomes) if isinstance(outcome, OwnKernel))

    @property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """The positions of all nodes that run here: groups, then kernels."""
        return *self.groups, *((place,) for place in self.kernels)

    @cached_property
    def reasons(self) -> tuple[str | None, ...]:
        """Per node, why it does not run here; None if it does."""
        return tuple(it.reason if isinstance(it, Elsewhere) else None for it in self.outcomes)
