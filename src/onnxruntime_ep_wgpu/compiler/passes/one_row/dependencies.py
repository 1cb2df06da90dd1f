"""Data dependencies between the groups of a Program: which group stores a tensor, which groups load it, and which of them are
left out in runs with one row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ....records import dataclass
from ...dims import Dim
from ...ir import Tensor, Variant
from ..fuse import FusedGroup

RULE = "one_row"


@dataclass(frozen=True)
class Dependencies:
    """The groups in running order, the group that stores each tensor, and the groups that load it."""

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
        """Returns whether everything that a group needs is stored before `before` runs.

        For a tensor this is the group that stores it, and the tensor itself is exempt.
        """
        at = self.position[self.stored_by[before] if isinstance(before, Tensor) else before]
        needed = (it for it in group.needs() if it in self.stored_by and it is not before)
        return all(self.position[self.stored_by[it]] < at for it in needed)


def disable_where(group: FusedGroup, one: Dim, own: Variant | None = None) -> None:
    """Stops the group from running where `one` is 1. Drops the variant `own`, which only such runs use."""
    call = group.anchor
    assert call is not None
    variants = [it for it in call.variants if it is not own] or list(call.variants)
    call.variants = tuple(replace(it, workgroups=it.workgroups * (1 - one)) for it in variants)


def check_stored(
    groups: Iterable[FusedGroup], runs_if: Mapping[FusedGroup, Dim], skipped_if: Mapping[FusedGroup, Dim]
) -> None:
    """Asserts that a run of one row loads only tensors that a kernel of the same run has stored. A failure is a bug in this
    package.

    Groups of `runs_if` run only where their dim is 1, groups of `skipped_if` only where it is not.
    """
    groups = list(groups)
    stored_anywhere = {tensor for group in groups for tensor in group.stores}
    for one in dict.fromkeys(skipped_if.values()):
        stored: set[Tensor] = set()
        for group in groups:
            if skipped_if.get(group) != one and runs_if.get(group, one) == one:
                missing = [tensor for tensor in group.loads if tensor in stored_anywhere and tensor not in stored]
                assert not missing, f"a run of one row reads {missing} in {group.origin}, which nothing has stored"
                stored.update(group.stores)
