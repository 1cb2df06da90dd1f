"""Choices for kernels of maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...records import dataclass
from ..dims import Dim
from .base import Parameters, Workgroups

MOST_STEPS = 256


@dataclass(frozen=True)
class MapShape:
    """The grid of a kernel of maps: `workgroup` invocations, each with `steps` steps of a workgroup."""

    workgroup: int
    steps: int = 1
    guard: Dim = 1


@dataclass(frozen=True)
class Grid(Workgroups):
    """Maps by workgroups of `workgroup` invocations, which take `steps` steps, or as many as `elements` per invocation need."""

    kernel: ClassVar[str] = "map"
    about: ClassVar[Mapping[str, str]] = {"size": "elements of the result"}
    # Steps are unrolled.
    allowed: ClassVar = {"steps": range(1, MOST_STEPS + 1), "elements": range(MOST_STEPS + 1)}
    others: ClassVar = ((128,), (64, 4), (256, 2), (256, 4))
    steps: int = 1
    elements: int = 0

    def shape(self, width: int, guard: Dim) -> MapShape:
        """Returns the grid of a kernel with invocations that compute `width` elements per step."""
        return MapShape(self.workgroup, max(self.steps, self.elements // width), guard)


@dataclass(frozen=True)
class Vectors(Parameters):
    """Maps load, calculate and store `width` elements at a time, 4 or 1."""

    kernel: ClassVar[str] = "vectors"
    allowed: ClassVar = {"width": (1, 4)}
    others: ClassVar = ((1,),)
    width: int
