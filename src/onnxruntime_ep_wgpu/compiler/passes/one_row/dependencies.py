"""Who stores what a group of a Program loads, and whether that has run when another group begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...ir import Tensor
from ..fuse import FusedGroup


@dataclass(frozen=True)
class Dependencies:
    """Groups in the order in which they run, and which of them stores a tensor and load it."""

    position: Mapping[FusedGroup, int]
    stored_by: Mapping[Tensor, FusedGroup]
    loaded_by: Mapping[Tensor, list[FusedGroup]]

    @staticmethod
    def of(groups: Iterable[FusedGroup]) -> Dependencies:
        position = {group: at for at, group in enumerate(groups)}
        loaded_by: dict[Tensor, list[FusedGroup]] = {}
        for group in position:
            for tensor in group.loads:
                loaded_by.setdefault(tensor, []).append(group)
        return Dependencies(position, {tensor: group for group in position for tensor in group.stores}, loaded_by)

    def is_ready(self, group: FusedGroup, before: FusedGroup | Tensor) -> bool:
        """Whether what a group needs is stored before another group runs, or before the one that stores a tensor, but for that."""
        at = self.position[self.stored_by[before] if isinstance(before, Tensor) else before]
        needed = (it for it in group.needs() if it in self.stored_by and it is not before)
        return all(self.position[self.stored_by[it]] < at for it in needed)
