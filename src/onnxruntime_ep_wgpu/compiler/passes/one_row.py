"""Products of one row, as a token of a decoder has: kernels for that size alone, each in place of several that wait for each other.

In: groups in running order, finished. Out: the same, and beside some products the kernel that runs when they have one row; what it
stands for does not run then. A dispatch that waits for another one costs more than it does in so small a model, so

- products of one operand with as many columns are one kernel: gate and up, whose results meet in its epilogue, keys and values;
- a root mean square between products is in these: the one before stores its rows times the gain, and sums of squares of every
  four elements, and those behind multiply their sums by what follows from the latter.

For more rows everything stays as it is: products are bound by arithmetic there, and their tiles want their operands as they are.
Invariant: a group is replaced only where its kernel fits into the target's bindings, and all that it stored is stored.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ...program.dtypes import DType
from ...program.target import Target
from ..dims import Dim, equal, product, quotient
from ..ir import Call, Map, Node, Read, Tensor, Variant, View
from .fuse import FusedGroup

_TEMPLATES = ("matvec", "packed_rows")


@dataclass(eq=False)
class _Norm:
    """A root mean square of rows of `x`, whose result `y` all of `readers` multiply. `maps` make y of what is normalised."""

    group: FusedGroup
    call: Call
    x: Tensor
    y: Tensor
    maps: list[Map]


@dataclass(eq=False)
class _Between:
    """What passes from a product to those behind it in place of a norm: rows of x times the gain, in f32, the maps that make them,
    and sums of squares of every four elements of x."""

    scaled: Tensor
    maps: list[Map]
    squares: Tensor


@dataclass(eq=False)
class _Row:
    """What the kernel for one row of a product is made of. `one` is 1 in runs with one row. `others`: the products that it makes
    too, and `stores` what it stores for them; `before` and `behind`: the norms of its operand and of a result that it stores."""

    group: FusedGroup
    call: Call
    variant: Variant
    others: list[FusedGroup] = field(default_factory=list)
    stores: list[Tensor] = field(default_factory=list)
    before: _Norm | None = None
    behind: _Norm | None = None

    @property
    def one(self) -> Dim:
        return self.variant.guard


def of_one_row(groups: list[FusedGroup], target: Target) -> list[FusedGroup]:
    """The groups with kernels for one row, each before that which it stands for."""
    rows = {row.group: row for group in groups if (row := _row(group)) is not None}
    stored_by = {tensor: group for group in groups for tensor in group.stores}
    position = {group: k for k, group in enumerate(groups)}
    others: set[FusedGroup] = set()
    for row in rows.values():
        second = _waited_for(row, rows, stored_by)
        if second is not None:
            _add(row, second, [], others, target)
    for row in rows.values():
        if not row.others and row.group not in others:
            for group, it in rows.items():
                ready = position[group] > position[row.group] and not it.others and group not in others
                if ready and _alike(row.call, it.call) and _is_ready(group, row.group, position, stored_by):
                    _add(row, group, group.stores, others, target)
    between: dict[_Norm, _Between] = {}
    for group in groups if rows else ():
        norm = _norm(group)
        # Its factors become those of the product before it, which shall not wait for them.
        if norm is not None and norm.x in stored_by and _is_ready(group, norm.x, position, stored_by):
            readers = [rows.get(it) for it in groups if norm.y in it.loads]
            _place(norm, rows.get(stored_by[norm.x]), readers, others, between, target)
    instead = {
        group: _kernel(row, between)
        for group, row in rows.items()
        if group not in others and (row.others or row.before or row.behind)
    }
    never = {norm.group: rows[stored_by[norm.x]].one for norm in between}
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
    return out


def _check_stored(
    groups: list[FusedGroup],
    instead: Mapping[FusedGroup, FusedGroup],
    never: Mapping[FusedGroup, Dim],
    rows: Mapping[FusedGroup, _Row],
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


def _row(group: FusedGroup) -> _Row | None:
    """What a kernel for one row may be made of, where the product has one that reads the other operand once."""
    call = group.anchor
    if call is None or "PRODUCTS" not in call.constants or call.inner or call.onto or call.repeats != 1:
        return None
    first, write = call.variants[0], call.results["y"]
    alone = (first.template or call.template) in _TEMPLATES and dict(first.constants)["ROWS"] == 1
    batch = product(write.tensor.shape[: write.groups[0]])
    return _Row(group, call, first) if alone and batch == 1 and write.tensor.dtype is DType.FLOAT32 else None


def _waited_for(
    row: _Row, rows: Mapping[FusedGroup, _Row], stored_by: Mapping[Tensor, FusedGroup]
) -> FusedGroup | None:
    """The product for which the epilogue of this one waits and nobody else does, of the same operand and size."""
    for tensor in row.group.loads:
        other = rows.get(stored_by.get(tensor, row.group))
        if other is None or other is row or other.others or other.group.stores != [tensor]:
            continue
        maps = [it for it in row.group.nodes if tensor in [view.tensor for view in it.reads]]
        alone = set(tensor.users) == set(maps) and all(_in_step(it, tensor) for it in maps)
        if alone and not tensor.is_stored and not tensor.place and _alike(other.call, row.call):
            return other.group
    return None


def _alike(one: Call, other: Call) -> bool:
    """Whether two products are of the same operand, and differ in weights alone."""
    return (
        one.operands["a"] == other.operands["a"]
        and _shape_of_weights(one) == _shape_of_weights(other)
        and (one.variants, one.constants, one.parameters) == (other.variants, other.constants, other.parameters)
        and one.results["y"].groups == other.results["y"].groups
        and one.results["y"].tensor.shape == other.results["y"].tensor.shape
    )


def _is_ready(
    group: FusedGroup,
    before: FusedGroup | Tensor,
    position: Mapping[FusedGroup, int],
    stored_by: Mapping[Tensor, FusedGroup],
) -> bool:
    """Whether what a group needs is stored before another group runs, or before the one that stores a tensor, but for that."""
    at = position[stored_by[before] if isinstance(before, Tensor) else before]
    return all(position[stored_by[it]] < at for it in group.needs() if it in stored_by and it is not before)


def _add(row: _Row, group: FusedGroup, stores: list[Tensor], others: set[FusedGroup], target: Target) -> None:
    """Makes a product part of another one's kernel, which then stores these tensors too; unless that does not fit."""
    row.others.append(group)
    row.stores += stores
    if _fits(_kernel(row, {}), target):
        others.add(group)
        return
    row.others.pop()
    del row.stores[len(row.stores) - len(stores) :]


def _shape_of_weights(call: Call) -> tuple[object, ...]:
    """How a product looks at its weights, whichever they are."""
    read = call.operands["b"]
    return read.view.shape, read.view.axes, read.view.offset, read.groups, read.vector, read.run, read.view.dtype


def _in_step(node: Node, tensor: Tensor) -> bool:
    """Whether all that a map reads of a tensor is read at its own index."""
    views = [view for view in node.reads if view.tensor is tensor]
    return isinstance(node, Map) and node.is_pointwise and all(v.is_whole and v.size == node.output.size for v in views)


# ---- norms


def _norm(group: FusedGroup) -> _Norm | None:
    """A group that is a root mean square of rows, maps that multiply it, and nothing else."""
    call = group.anchor
    if call is None or call.template != "layer_norm" or call.constants["CENTRED"] or set(call.results) != {"y"}:
        return None
    x, bias = call.operands["x"], call.operands["bias"].view.tensor
    maps = [it for it in group.nodes if isinstance(it, Map)]
    inside = {call.results["y"].tensor, *(it.output for it in maps)}
    linear = all(_is_linear(it, inside) for it in maps)
    if len(group.stores) != 1 or group.stores[0].is_stored or group.stores[0].place or not linear:
        return None
    if not bias.is_literal or _number(bias) != 0.0 or not x.view.is_whole or x.groups[1] != 1:
        return None
    return _Norm(group, call, x.view.tensor, group.stores[0], maps)


def _number(literal: Tensor) -> float:
    data = literal.data.numpy() if hasattr(literal.data, "numpy") else literal.data
    return float(data.reshape(-1)[0])


def _is_linear(node: Map, inside: set[Tensor]) -> bool:
    """Whether a map makes twice as much of twice the norm, but for rounding: a conversion, or a product with something else."""
    if not node.is_pointwise or not node.output.dtype.is_float:
        return False
    own = [name for name, read in node.operands.items() if read.view.tensor in inside]
    if len(own) != 1 or not _in_step(node, node.operands[own[0]].view.tensor):
        return False
    text = ast.parse(node.expression, mode="eval").body
    if isinstance(text, ast.Name):
        return text.id == own[0]
    if not isinstance(text, ast.BinOp) or not isinstance(text.op, ast.Mult):
        return False
    factors = {it.id for it in (text.left, text.right) if isinstance(it, ast.Name)}
    return factors == set(node.operands) and len(factors) == 2


def _place(
    norm: _Norm,
    first: _Row | None,
    readers: list[_Row | None],
    others: set[FusedGroup],
    between: dict[_Norm, _Between],
    target: Target,
) -> None:
    """Puts into `between` what passes in place of a norm from the product before it to its readers, which then know of it; unless
    one of these cannot, or somebody else reads the norm."""
    known = [it for it in readers if it is not None]
    if first is None or not known or len(known) < len(readers) or first.behind is not None or first.group in others:
        return
    write, columns = first.call.results["y"], norm.call.parameters["columns"]
    fits = (
        write.in_fours
        and quotient(columns, 16) is not None
        and norm.x.place is None
        and equal(norm.x.size, write.tensor.size) == 1
        and equal(first.call.parameters["n"], columns) == 1
        and all(it.one == first.one and it.before is None and _multiplies_rows(it, norm.y, columns) for it in known)
    )
    if not fits:
        return
    first.behind = norm
    for it in known:
        it.before = norm
    between[norm] = _between(norm)
    kernels = [_kernel(it, between) for it in (first, *known) if it.group not in others]
    if not all(_fits(kernel, target) for kernel in kernels):
        del between[norm]
        first.behind = None
        for it in known:
            it.before = None


def _multiplies_rows(row: _Row, y: Tensor, columns: Dim) -> bool:
    """Whether a product reads y once, whole rows as they are, and nothing else in its kernel does."""
    read = row.call.operands["a"]
    whole = read.view.tensor is y and read.view.is_whole and equal(row.call.parameters["k"], columns) == 1
    return whole and len(row.group.loads[y]) == 1


def _between(norm: _Norm) -> _Between:
    """The norm's own maps, of x times the gain instead of the norm, and in f32: of those a number may be large."""
    x, call = norm.x, norm.call
    rank = len(x.shape)
    operands = {"x": View.of(x), "gain": call.operands["gain"].view.expand(x.shape)}
    maps = [
        Map(
            Tensor(DType.FLOAT32, x.shape),
            {name: Read(view, (rank,)) for name, view in operands.items()},
            "x * gain",
            origin=call.origin,
        )
    ]
    now = {call.results["y"].tensor: maps[0].output}
    for node in norm.maps:
        own = next(read.view.tensor for read in node.operands.values() if read.view.tensor in now)
        if len(node.operands) == 1:  # a conversion
            now[node.output] = now[own]
            continue
        read = {
            name: replace(it, view=replace(it.view, tensor=now.get(it.view.tensor, it.view.tensor)))
            for name, it in node.operands.items()
        }
        maps.append(replace(node, output=Tensor(DType.FLOAT32, node.output.shape), operands=read))
        now[node.output] = maps[-1].output
    for it in maps:
        it.output.producer = it
    quarter = quotient(call.parameters["columns"], 4)
    assert quarter is not None
    return _Between(now[norm.y], maps, Tensor(DType.FLOAT32, (call.parameters["rows"], quarter)))


# ---- kernels


def _kernel(row: _Row, between: Mapping[_Norm, _Between]) -> FusedGroup:
    """The kernel for one row."""
    call, group, inlined = row.call, row.group, set(row.group.inlined)
    nodes: list[Node] = [it for it in group.nodes if it is not call]
    stores = [*group.stores, *row.stores]
    operands, write, constants = dict(call.operands), call.results["y"], dict(call.constants)
    origin, flops = call.origin, call.flops
    for number, it in enumerate(row.others, 1):
        other = it.anchor
        assert other is not None
        nodes = [*(node for node in it.nodes if node is not other), *nodes]
        inlined |= it.inlined
        operands[f"b{number}"] = other.operands["b"]
        write = replace(write, also=(*write.also, other.results["y"].tensor))
        origin, flops = (*other.origin, *origin), flops + other.flops
    constants["PRODUCTS"] = 1 + len(row.others)
    if row.before is not None:
        passed = between[row.before]
        view = View.of(passed.scaled).reshape(operands["a"].view.shape)
        assert view is not None
        operands["a"] = replace(operands["a"], view=view)
        operands["squares"] = Read(View.of(passed.squares), (1, 1), vector=True)
        constants |= {"SCALED": True, "EPSILON": row.before.call.constants["EPSILON"]}
        origin = (*row.before.group.origin, *origin)
    if row.behind is not None:
        passed = between[row.behind]
        nodes += passed.maps
        stores += [passed.scaled, passed.squares]
        write = replace(write, squares=(row.behind.x, passed.squares))
    made = replace(
        call,
        operands=operands,
        results={"y": write},
        # Other runs have more rows, for which there is nothing to do here.
        variants=(replace(row.variant, guard=1, workgroups=row.variant.workgroups * row.one),),
        constants=constants,
        origin=tuple(dict.fromkeys(origin)),
        flops=flops,
    )
    if row.behind is not None:
        between[row.behind].squares.producer = made
    before = [it for it in nodes if it in inlined]
    return FusedGroup([*before, made, *(it for it in nodes if it not in inlined)], made, inlined, stores)


def _fits(group: FusedGroup, target: Target) -> bool:
    call = group.anchor
    assert call is not None
    (variant,) = call.variants
    invocations, constants = variant.workgroup_size, {**call.constants, **dict(variant.constants)}
    products = int(constants["PRODUCTS"])
    packed = (variant.template or call.template) == "packed_rows"
    # vec4s: of each invocation, for all products at once or for one after the other and totals; and a number of each.
    fours = products * invocations if packed else invocations + products * int(constants["COLUMNS4"])
    memory = 16 * fours + (4 * invocations if constants["SCALED"] else 0)
    bindings = group.placement(group.stores, target).bindings
    return bindings <= target.max_storage_buffers and memory <= target.max_workgroup_storage


def _leave_out(group: FusedGroup, one: Dim, row: _Row | None) -> None:
    """The group does not run with one row."""
    call = group.anchor
    assert call is not None
    variants = [it for it in call.variants if row is None or it is not row.variant] or list(call.variants)
    call.variants = tuple(replace(it, workgroups=it.workgroups * (1 - one)) for it in variants)
