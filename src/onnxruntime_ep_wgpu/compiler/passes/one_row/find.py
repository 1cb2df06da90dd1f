"""Selects the groups that kernels for one row replace, and records why others stay."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from ....program.program import Declined
from ....program.target import Target
from ....records import dataclass
from ...dims import Dim
from ...ir import Call, Tensor
from ..fuse import FusedGroup
from .assembled import kernel_of, misfit
from .dependencies import RULE, Dependencies, check_stored, disable_where
from .norms import between_of, is_norm, norm_obstacle, norm_of
from .product import OneRowProduct, reads_elementwise, row_product_of


@dataclass(frozen=True)
class Change:
    """Products with their new parts. Kernels of other products replace those of `taken`."""

    products: tuple[OneRowProduct, ...]
    taken: tuple[FusedGroup, ...] = ()


Outcome = Change | str | None
"""A change for a group, the reason why there is none, or None if the group is no candidate for a kernel of one row."""


def add_one_row_kernels(groups: list[FusedGroup], target: Target) -> tuple[list[FusedGroup], list[Declined]]:
    """Returns the groups with kernels for one row, each before the group it replaces, and the reasons for rejected
    candidates."""
    rows = {row.group: row for group in groups if (row := row_product_of(group)) is not None}
    if not rows:
        return groups, []
    search = _Search(rows, Dependencies.of(groups), target)
    search.pair_epilogue_dependencies()
    search.pair_common_operands()
    for group in groups:
        if is_norm(group):
            search.settle(group, search.norm_replacement(group))
    changed = {group: row for group, row in rows.items() if group not in search.taken and not row.is_alone}
    replacements = {group: kernel_of(row) for group, row in changed.items()}
    skipped_if: dict[FusedGroup, Dim] = {}
    for group, row in changed.items():
        skipped_if |= dict.fromkeys((group, *row.others), row.one)
        if row.after is not None:
            row.after.squares.producer = replacements[group].anchor
            skipped_if[row.after.norm.group] = row.one
    out: list[FusedGroup] = []
    for group in groups:
        if group in replacements:
            out.append(replacements[group])
        if group in skipped_if:
            disable_where(group, skipped_if[group], rows[group].variant if group in rows else None)
        if skipped_if.get(group) != 1:
            out.append(group)
    check_stored(out, {made: rows[group].one for group, made in replacements.items()}, skipped_if)
    return out, search.declined


class _Search:
    """The search over the groups of a graph.

    As with rules in `rewrite/`, the search itself changes nothing. Only `settle` applies a change, if the kernels fit the target,
    or records the reason why it does not.
    """

    def __init__(self, rows: dict[FusedGroup, OneRowProduct], dependencies: Dependencies, target: Target) -> None:
        self.rows, self.dependencies, self._target = rows, dependencies, target
        self.taken: set[FusedGroup] = set()
        self.declined: list[Declined] = []

    def settle(self, group: FusedGroup, outcome: Outcome, failed: str = "") -> None:
        """Applies a change or records why it is rejected. `failed` is put before the reason: the fusion that fails."""
        if isinstance(outcome, Change):
            kernels = (kernel_of(it) for it in outcome.products if it.group not in self.taken)
            outcome = next((problem for it in kernels if (problem := misfit(it, self._target))), outcome)
        if isinstance(outcome, Change):
            self.rows |= {it.group: it for it in outcome.products}
            self.taken.update(outcome.taken)
        elif outcome is not None:
            assert group.anchor is not None
            self.declined.append(Declined(RULE, failed + outcome, group.anchor.origin))

    def pair_epilogue_dependencies(self) -> None:
        """Merges a product into the kernel of the product that waits for it in its epilogue."""
        for group in self.rows:
            other = self._epilogue_dependency(self.rows[group])
            if other is not None:
                self._pair(group, other, ())

    def pair_common_operands(self) -> None:
        """Merges later products into the kernel of an earlier one with the same operand and size."""
        of_operand: dict[Tensor, list[FusedGroup]] = defaultdict(list)
        for group, row in self.rows.items():
            of_operand[row.call.operands["a"].view.tensor].append(group)
        for first, row in self.rows.items():
            if row.others or first in self.taken:
                continue
            for group in of_operand[row.call.operands["a"].view.tensor]:
                it = self.rows[group]
                later = self.dependencies.position[group] > self.dependencies.position[first]
                free = later and not it.others and group not in self.taken
                if free and _same_but_weights(row.call, it.call) and self.dependencies.is_ready(group, first):
                    self._pair(first, group, tuple(group.stores))

    def _pair(self, group: FusedGroup, other: FusedGroup, stores: tuple[Tensor, ...]) -> None:
        """Merges `other` into the kernel of `group`, which then also stores `stores`."""
        row = self.rows[group]
        merged = replace(row, others=(*row.others, other), stores=(*row.stores, *stores))
        self.settle(other, Change((merged,), taken=(other,)), _not_fused_with(group))

    def _epilogue_dependency(self, row: OneRowProduct) -> FusedGroup | None:
        """Returns the product that only the epilogue of this one waits for, if both have the same operand and size."""
        for tensor in row.group.loads:
            other = self.rows.get(self.dependencies.stored_by.get(tensor, row.group))
            if other is None or other is row or other.others or not _same_but_weights(other.call, row.call):
                continue
            maps = [it for it in row.group.nodes if tensor in [view.tensor for view in it.reads]]
            if other.group.stores != [tensor] or tensor.is_stored or tensor.place or set(tensor.users) != set(maps):
                reason = "its result has another reader"
            elif not all(reads_elementwise(it, tensor) for it in maps):
                reason = "its result is not read elementwise"
            else:
                return other.group
            self.settle(row.group, reason, _not_fused_with(other.group))
        return None

    def norm_replacement(self, group: FusedGroup) -> Outcome:
        """Returns the change that replaces a norm with values passed from the product before it to its readers."""
        readers = [self.rows.get(it) for tensor in group.stores for it in self.dependencies.loaded_by.get(tensor, ())]
        row_products = [it for it in readers if it is not None]
        norm = norm_of(group) if row_products else None
        if norm is None or isinstance(norm, str):
            return norm
        first = self.rows.get(self.dependencies.stored_by.get(norm.x, group))
        if first is None or not self.dependencies.is_ready(group, norm.x):
            return "the input of the norm is not a product of one row, or a factor is computed later"
        if first.after is not None or first.group in self.taken:
            return "the product before the norm is part of another kernel"
        if len(row_products) < len(readers):
            return "the norm has readers other than products of one row"
        reason = norm_obstacle(norm, first, row_products)
        if reason is not None:
            return reason
        between = between_of(norm)
        return Change((replace(first, after=between), *(replace(it, before=between) for it in row_products)))


def _not_fused_with(group: FusedGroup) -> str:
    assert group.anchor is not None
    return f"it cannot be fused with {', '.join(group.anchor.origin)}: "


def _same_but_weights(one: Call, other: Call) -> bool:
    """Returns whether two products have the same operand and differ only in their weights."""
    return (
        one.operands["a"] == other.operands["a"]
        and _weight_access(one) == _weight_access(other)
        and (one.variants, one.constants, one.parameters) == (other.variants, other.constants, other.parameters)
        and one.results["y"].groups == other.results["y"].groups
        and one.results["y"].tensor.shape == other.results["y"].tensor.shape
    )


def _weight_access(call: Call) -> tuple[object, ...]:
    """Returns how a product accesses its weights, independent of the tensor."""
    read = call.operands["b"]
    return read.view.shape, read.view.axes, read.view.offset, read.groups, read.vector, read.run, read.view.dtype
