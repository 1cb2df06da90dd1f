"""Choices for kernels of maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

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
    steps: int = 1
    elements: int = 0

    def __post_init__(self) -> None:
        self._require(self.workgroup > 0 < self.steps, "workgroup and steps are at least 1")
        self._require(
            max(self.steps, self.elements) <= MOST_STEPS, f"steps, which are unrolled, are at most {MOST_STEPS}"
        )

    @classmethod
    def candidates(cls) -> tuple[Self, ...]:
        return cls(128), cls(64, 4), cls(256, 2), cls(256, 4)

    def shape(self, width: int, guard: Dim) -> MapShape:
        """Returns the grid of a kernel with invocations that compute `width` elements per step."""
        return MapShape(self.workgroup, max(self.steps, self.elements // width), guard)


@dataclass(frozen=True)
class Vectors(Parameters):
    """Maps load, calculate and store `width` elements at a time, 4 or 1."""

    kernel: ClassVar[str] = "vectors"
    width: int

    def __post_init__(self) -> None:
        self._require(self.width in (1, 4), "the width is 1 or 4")

    @classmethod
    def candidates(cls) -> tuple[Self, ...]:
        return (cls(1),)
