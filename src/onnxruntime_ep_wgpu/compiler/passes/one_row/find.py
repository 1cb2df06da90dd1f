"""Which groups the kernels for one row stand for, or why some of them stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ....program.program import Declined
from ....program.target import Target
from ...dims import Dim
from ...ir import Call, Tensor
from ..fuse import FusedGroup
from .dependencies import Dependencies
from .kernel import kernel_of, misfit
from .norms import between_of, is_norm, keeps_apart, norm_of
from .product import Between, Norm, RowProduct, in_step, row_product_of

RULE = "one_row"


def of_one_row(groups: list[FusedGroup], target: Target) -> tuple[list[FusedGroup], list[Declined]]:
    """The groups with kernels for one row, each before that which it stands for; and what could have been one, and is not."""
    rows = {row.group: row for group in groups if (row := row_product_of(group)) is not None}
    if not rows:
        return groups, []
    search = _Search(rows, Dependencies.of(groups), target)
    search.pair_those_that_wait()
    search.pair_those_of_one_operand()
    for group in groups:
        if is_norm(group):
            search.pass_on(group)
    instead = {
        group: kernel_of(row, search.between)
        for group, row in rows.items()
        if group not in search.taken and (row.others or row.before or row.behind)
    }
    never = {norm.group: rows[search.dependencies.stored_by[norm.x]].one for norm in search.between}
    never |= {it: rows[group].one for group in instead for it in (group, *rows[group].others)}
    out: list[FusedGroup] = []
    for group in groups:
        if group in instead:
            out.append(instead[group])
        if group in never:
            _leave_out(group, never[group], rows.get(group))
        if never.get(group) != 1:
            out.append(group)
    _check_stored(out, instead, never, rows)
    return out, search.declined


class _Search:
    """What is found in the groups of a graph: the products of `taken` are made by the kernels of others; `between` is what passes
    in place of norms."""

    def __init__(self, rows: Mapping[FusedGroup, RowProduct], dependencies: Dependencies, target: Target) -> None:
        self.rows, self.dependencies, self._target = rows, dependencies, target
        self.taken: set[FusedGroup] = set()
        self.between: dict[Norm, Between] = {}
        self.declined: list[Declined] = []

    def pair_those_that_wait(self) -> None:
        """A product whose epilogue waits for another one makes that too."""
        for row in self.rows.values():
            other = self._waited_for(row)
            if other is not None:
                self._add(row, other, [])

    def pair_those_of_one_operand(self) -> None:
        """A product makes those that run later and are of the same operand and size."""
        for row in self.rows.values():
            if row.others or row.group in self.taken:
                continue
            for group, it in self.rows.items():
                later = self.dependencies.position[group] > self.dependencies.position[row.group]
                free = later and not it.others and group not in self.taken
                if free and _alike(row.call, it.call) and self.dependencies.is_ready(group, row.group):
                    self._add(row, group, group.stores)

    def _waited_for(self, row: RowProduct) -> FusedGroup | None:
        """The product for which the epilogue of this one waits and nobody else does, of the same operand and size."""
        for tensor in row.group.loads:
            other = self.rows.get(self.dependencies.stored_by.get(tensor, row.group))
            if other is None or other is row or other.others or not _alike(other.call, row.call):
                continue
            maps = [it for it in row.group.nodes if tensor in [view.tensor for view in it.reads]]
            if other.group.stores != [tensor] or tensor.is_stored or tensor.place or set(tensor.users) != set(maps):
                reason = "its result is stored for others too"
            elif not all(in_step(it, tensor) for it in maps):
                reason = "its result is not read element by element"
            else:
                return other.group
            self._decline(row.group, f"it is not one kernel with {_name(other.group)}: {reason}")
        return None

    def _add(self, row: RowProduct, group: FusedGroup, stores: list[Tensor]) -> None:
        """Makes a product part of another one's kernel, which then stores these tensors too; unless that does not fit."""
        row.others.append(group)
        row.stores += stores
        problem = misfit(kernel_of(row, {}), self._target)
        if problem is None:
            self.taken.add(group)
            return
        row.others.pop()
        del row.stores[len(row.stores) - len(stores) :]
        self._decline(group, f"it is not one kernel with {_name(row.group)}: {problem}")

    def pass_on(self, group: FusedGroup) -> None:
        """Puts into `between` what passes in place of a norm from the product before it to its readers, which then know of it."""
        readers = [self.rows.get(it) for tensor in group.stores for it in self.dependencies.loaded_by.get(tensor, ())]
        known = [it for it in readers if it is not None]
        if known:
            norm = norm_of(group)
            reason = norm if isinstance(norm, str) else self._passed(norm, known, only=len(known) == len(readers))
            if reason is not None:
                self._decline(group, reason)

    def _passed(self, norm: Norm, readers: list[RowProduct], *, only: bool) -> str | None:
        """Why nothing passes in place of a norm; None where it does now. `only`: nobody else reads the norm."""
        first = self.rows.get(self.dependencies.stored_by.get(norm.x, norm.group))
        if first is None or not self.dependencies.is_ready(norm.group, norm.x):
            return "what is normalised comes from no product of one row, or is multiplied by what is made later"
        if first.behind is not None or first.group in self.taken:
            return "the product before the norm is part of another kernel"
        if not only:
            return "not only products of one row read the norm"
        reason = keeps_apart(norm, first, readers)
        if reason is not None:
            return reason
        first.behind = norm
        for it in readers:
            it.before = norm
        self.between[norm] = between_of(norm)
        kernels = [kernel_of(it, self.between) for it in (first, *readers) if it.group not in self.taken]
        problem = next((text for it in kernels if (text := misfit(it, self._target)) is not None), None)
        if problem is not None:
            del self.between[norm]
            first.behind = None
            for it in readers:
                it.before = None
        return problem

    def _decline(self, group: FusedGroup, reason: str) -> None:
        assert group.anchor is not None
        self.declined.append(Declined(RULE, reason, group.anchor.origin))


def _name(group: FusedGroup) -> str:
    assert group.anchor is not None
    return ", ".join(group.anchor.origin)


def _alike(one: Call, other: Call) -> bool:
    """Whether two products are of the same operand, and differ in weights alone."""
    return (
        one.operands["a"] == other.operands["a"]
        and _shape_of_weights(one) == _shape_of_weights(other)
        and (one.variants, one.constants, one.parameters) == (other.variants, other.constants, other.parameters)
        and one.results["y"].groups == other.results["y"].groups
        and one.results["y"].tensor.shape == other.results["y"].tensor.shape
    )


def _shape_of_weights(call: Call) -> tuple[object, ...]:
    """How a product looks at its weights, whichever they are."""
    read = call.operands["b"]
    return read.view.shape, read.view.axes, read.view.offset, read.groups, read.vector, read.run, read.view.dtype


def _leave_out(group: FusedGroup, one: Dim, row: RowProduct | None) -> None:
    """The group does not run with one row."""
    call = group.anchor
    assert call is not None
    variants = [it for it in call.variants if row is None or it is not row.variant] or list(call.variants)
    call.variants = tuple(replace(it, workgroups=it.workgroups * (1 - one)) for it in variants)


def _check_stored(
    groups: list[FusedGroup],
    instead: Mapping[FusedGroup, FusedGroup],
    never: Mapping[FusedGroup, Dim],
    rows: Mapping[FusedGroup, RowProduct],
) -> None:
    """What a kernel loads in a run of one row, another one that runs then has stored: an error here is one of this pass."""
    alone = {made: rows[group].one for group, made in instead.items()}
    made_here = {tensor for group in groups for tensor in group.stores}
    for one in dict.fromkeys(never.values()):
        stored: set[Tensor] = set()
        for group in groups:
            if never.get(group) != one and alone.get(group, one) == one:
                missing = [tensor for tensor in group.loads if tensor in made_here and tensor not in stored]
                assert not missing, f"a run of one row reads {missing} in {group.origin}, which nothing has stored"
                stored.update(group.stores)
