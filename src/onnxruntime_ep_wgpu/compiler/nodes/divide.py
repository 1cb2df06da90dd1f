"""Dividing: a node with tensors so large that its kernel lacks bindings becomes several nodes.

In: a map. Out: nodes that fit the available bindings and compute the same result. Invariant: every returned node fits. Otherwise
BindingsError names the tensors. Operators divide their calls themselves (`ops/chunked_rows.py`, `ops/matmul.py`).

A map is divided along an axis of its result if each part then reaches less of its operands. Each part is stored in place. A map
that only selects elements of one operand, like Gather and Pad, processes one page of the operand after the other. The map of a
page computes the elements in this page, and copies the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ...errors import UnsupportedError
from ...program.target import Target, elements_per_word
from ..dims import product, quotient
from ..ir import Body, Element, Join, Map, Node, Read, Tensor, View, coalesce
from ..ir.binding_ranges import is_large, nbytes, of_node, reached_bits

MOST_PARTS = 1024  # of one map


class BindingsError(UnsupportedError):
    """A kernel needs more bindings than the target has."""


def too_many_bindings(node: Node, target: Target) -> str | None:
    """Returns why a kernel of only this node lacks bindings, or None."""
    bound = list(dict.fromkeys([*(v.tensor for v in node.reads), *node.outputs]))
    large = [t for t in bound if is_large(t.memory, target)]
    if not large and len(bound) <= target.max_storage_buffers:
        return None
    needed = min(of_node(node, target, it).bindings for it in (False, True))
    if needed <= target.max_storage_buffers:
        return None
    if not large:
        return f"one kernel needs {needed} bindings, and the adapter has {target.max_storage_buffers}"
    shown = ", ".join(f"{list(t.shape)}" for t in large)
    return (
        f"tensors of shapes {shown} take too many bindings of {target.max_binding_bytes} bytes in one kernel: the adapter has"
        f" {target.max_storage_buffers}"
    )


def check_bindings(node: Node, target: Target) -> None:
    """Raises BindingsError if a kernel of only this node lacks bindings."""
    reason = too_many_bindings(node, target)
    if reason is not None:
        raise BindingsError(reason)


def is_bindable(node: Node, target: Target) -> bool:
    return of_node(node, target).bindings <= target.max_storage_buffers


def divided(node: Map, target: Target) -> list[Map | Join]:
    """Returns nodes that compute the output of a map: the map itself if it fits. Raises BindingsError if no division fits."""
    try:
        check_bindings(node, target)
        return [node]
    except BindingsError:
        own = tuple(Body((it,)) for it in node.coordinates)
        for name, read in node.operands.items():
            if {own} == {it.coordinates for it in node.body.elements(name)}:
                node.operands[name] = replace(read, here=True)
        parts = _parts(node, target)
        if parts is None:
            pages = _pages(node, target)
            if pages is None:
                raise
            return [it for page in pages for it in divided(page, target)]
    return [*parts, joined(node.output, parts, node.origin)]


def placed_copies(view: View, place: View, origin: tuple[str, ...], target: Target) -> list[Map]:
    """Returns maps that store the elements of a view at a place in a large tensor. Raises BindingsError."""
    output = Tensor(view.dtype, view.shape, place=place)
    output.producer = node = Map(output, {"x": Read(view, (view.rank,))}, expression="x", origin=origin)
    parts = _parts(node, target)
    if parts is None:
        check_bindings(node, target)
    assert parts is not None
    return parts


def joined(output: Tensor, parts: list[Map], origin: tuple[str, ...]) -> Join:
    """Returns the join of maps that each store a part of `output`."""
    operands = {f"x{k}": Read(View.of(part.output), (len(part.output.shape),)) for k, part in enumerate(parts)}
    output.producer = join = Join(output, operands, 0, origin)
    return join


def least_reach(options: Sequence[Sequence[tuple[View, int | None]]]) -> int | None:
    """Returns the number of the option that reaches least memory, or None.

    An option halves operands and results, each along the axis given with it.
    """
    best: tuple[int, int] | None = None
    for number, option in enumerate(options):
        extents = {view.shape[axis] for view, axis in option if axis is not None}
        extent = extents.pop() if len(extents) == 1 else 1
        if not isinstance(extent, int) or extent < 2:
            continue
        halves = [view if axis is None else view.slice(axis, 0, 1, extent // 2) for view, axis in option]
        if all(half is not None for half in halves):
            # Sizes unknown at compile time do not count: the graph is compiled again for runs with large sizes.
            found = sum(reached_bits(half) for half in halves if half and nbytes(half.tensor) is not None)
            best = min(best or (found, number), (found, number))
    return best[1] if best is not None else None


# ---- parts of the result


def _parts(node: Map, target: Target) -> list[Map] | None:
    """Returns maps that fit and each store a part of the output, or None if that is impossible."""
    pending, done = [node], list[Map]()
    while pending:
        if len(pending) + len(done) > MOST_PARTS:
            return None
        part = pending.pop()
        if is_bindable(part, target):
            done.append(part)
            continue
        halves = [_halves(part, axis, target) for axis in range(len(part.output.shape))]
        best = min((it for it in halves if it is not None), key=lambda it: sum(map(_reached, it)), default=None)
        if best is None or max(map(_reached, best)) >= _reached(part):
            return None
        pending += best[::-1]
    return done


def _reached(node: Node) -> int:
    """Returns the sum over all tensors of the bits between the first and the last element that a node reads or stores."""
    views = [*node.reads, *(t.place or View.of(t) for t in node.outputs)]
    total = 0
    for tensor in {view.tensor for view in views}:
        if (nbytes(tensor) is not None) and not tensor.is_literal:
            total += reached_bits(*(view for view in views if view.tensor is tensor))
    return total


def _halves(node: Map, axis: int, target: Target) -> list[Map] | None:
    extent = node.output.shape[axis]
    if not isinstance(extent, int) or extent < 2:
        return None
    inside = [_block_extent(read.view, axis) for read in node.operands.values()] if node.is_pointwise else []
    grain = math.lcm(*(it for it in inside if it and extent % it == 0))
    half = extent // 2 // grain * grain or (grain if grain < extent else 0)
    if not half:
        return None
    lanes = elements_per_word(node.output.dtype, target)
    inner = product(node.output.shape[axis + 1 :])
    if lanes > 1 and isinstance(inner, int):  # a part consists of whole words
        step = lanes // math.gcd(inner, lanes)
        half = half // step * step
        if not half:
            return None
    out = [_part(node, axis, start, length) for start, length in ((0, half), (half, extent - half))]
    found = [it for it in out if it is not None]
    if len(found) < 2 or (lanes > 1 and not all(_owns_words(it.output.place, lanes) for it in found)):
        return None
    return found


def _block_extent(view: View, axis: int) -> int:
    """Returns the size of blocks along an axis that a view cannot split."""
    inner = product(factor.extent for factor in coalesce(view.axes[axis])[1:])
    return inner if isinstance(inner, int) else 1


def _owns_words(place: View | None, lanes: int) -> bool:
    return place is not None and all(f.stride == 1 for f in place.factors) and quotient(place.offset, lanes) is not None


def _part(node: Map, axis: int, start: int, length: int) -> Map | None:
    """Returns the map of a part of the output along one axis, or None if an operand has no such view."""
    shape = node.output.shape
    place = (node.output.place or View.of(node.output)).slice(axis, start, 1, length)
    if place is None:
        return None
    output = Tensor(node.output.dtype, (*shape[:axis], length, *shape[axis + 1 :]), place=place)
    if node.is_pointwise:
        views = {name: read.view.slice(axis, start, 1, length) for name, read in node.operands.items()}
        reads = {name: replace(node.operands[name], view=view) for name, view in views.items() if view is not None}
        if len(reads) < len(views):
            return None
        body, coordinates = node.body, node.coordinates
    else:
        found = _part_of_body(node, axis, start, length)
        if found is None:
            return None
        body, coordinates, reads = found
    part = replace(node, output=output, operands=reads, body=body, coordinates=coordinates, inline=False)
    output.producer = part
    return part


def _part_of_body(
    node: Map, axis: int, start: int, length: int
) -> tuple[Body, tuple[str, ...], dict[str, Read]] | None:
    """Returns the body for a part of one coordinate's range. The coordinate counts from the beginning of the part.

    Operands that are read only at this coordinate also begin there.
    """
    group, first = 0, 0
    while first + node.groups[group] <= axis:
        first += node.groups[group]
        group += 1
    if any(d != 1 for d in node.output.shape[first:axis]):
        return None  # a range of an inner axis is not contiguous in the coordinate
    extents = node.output.shape[first : first + node.groups[group]]
    name = node.coordinates[group]
    own = f"{name}_"
    reads, body = {}, node.body
    for operand, read in node.operands.items():
        elements = list(node.body.elements(operand))
        places = [k for k in range(len(read.groups)) if {it.coordinates[k] for it in elements} == {Body((name,))}]
        places = [k for k in places if read.extents[k] == extents]
        view = None
        if places:
            begin = sum(read.groups[: places[0]])
            view = read.view.slice(begin + axis - first, start, 1, length)
        if view is None:
            reads[operand] = read
            continue
        reads[operand] = replace(read, view=view)
        body = body.changed(operand, partial(_with_coordinate, group=places[0], to=own))
    inner = product(extents[axis - first + 1 :])
    if not isinstance(inner, int):
        return None
    head = f"  let {name} = {own} + {start * inner}u;\n"
    coordinates = (*node.coordinates[:group], own, *node.coordinates[group + 1 :])
    return Body((head, *body.parts)), coordinates, reads


def _with_coordinate(element: Element, group: int, to: str) -> Body:
    """Returns the element with a different coordinate of one group."""
    coordinates = list(element.coordinates)
    coordinates[group] = Body((to,))
    return Body((replace(element, coordinates=tuple(coordinates)),))


# ---- pages of an operand


def _pages(node: Map, target: Target) -> list[Map] | None:
    """Returns maps that each read one page of an operand and copy the other elements from the previous map.

    The body may use elements of the operand only as results.
    """
    ranges = of_node(node, target).ranges
    counts = {name: len(ranges.get(read.view.tensor, ())) for name, read in node.operands.items()}
    for name in sorted(counts, key=counts.__getitem__, reverse=True):
        if {it.returned for it in node.body.elements(name)} != {True} or counts[name] < 2:
            continue
        found = _paged(node, name, node.operands[name], target)
        if found is not None:
            return found
    return None


def _paged(node: Map, name: str, read: Read, target: Target) -> list[Map] | None:
    strides = []  # of the outermost axis of each coordinate
    first = 0
    for count in read.groups:
        axis = next((k for k in range(first, first + count) if read.view.shape[k] != 1), None)
        factors = read.view.axes[axis] if axis is not None else ()
        stride = factors[0].stride if len(factors) == 1 else 0
        extent = read.view.shape[axis] if axis is not None else 1
        strides.append(
            (stride if isinstance(stride, int) and isinstance(extent, int) else 0, axis, extent, first + count)
        )
        first += count
    group = max(range(len(strides)), key=lambda k: abs(strides[k][0]), default=None)
    if group is None or not strides[group][0]:
        return None
    _, axis, extent, end = strides[group]
    assert axis is not None and isinstance(extent, int)
    inner = product(read.view.shape[axis + 1 : end])
    if not isinstance(inner, int):
        return None
    pages = 2
    while pages <= min(extent, MOST_PARTS):
        step = -(-extent // pages)
        out: list[Map] = []
        for start in range(0, extent, step):
            page = _page(
                node, name, group, axis, inner, start, min(step, extent - start), out[-1].output if out else None
            )
            if page is None:
                return None
            out.append(page)
        out[-1] = replace(out[-1], output=node.output)
        if all(is_bindable(page, target) or _ranges(page, name, target) == 1 for page in out):
            for page in out:
                page.output.producer = page
            return out
        pages *= 2
    return None


def _ranges(node: Map, name: str, target: Target) -> int:
    return len(of_node(node, target).ranges[node.operands[name].view.tensor])


def _page(
    node: Map, name: str, group: int, axis: int, inner: int, start: int, length: int, before: Tensor | None
) -> Map | None:
    read = node.operands[name]
    view = read.view.slice(axis, start, 1, length)
    if view is None:
        return None
    previous = f"before{sum(it.startswith('before') for it in node.operands)}"
    here = tuple(Body((it,)) for it in node.coordinates)
    otherwise = "return $out_t();" if before is None else Element(previous, here, returned=True)

    def paged(element: Element) -> Body:
        place = element.coordinates[group].parts
        within = f" - {start * inner}u; if (page < {length * inner}u) {{ "
        return Body(("let page = ", *place, within, *_with_coordinate(element, group, "page").parts, " } ", otherwise))

    body = node.body.changed(name, paged)
    operands = {**node.operands, name: replace(read, view=view)}
    if before is not None:
        operands[previous] = Read(View.of(before), node.groups, here=True)
    output = Tensor(node.output.dtype, node.output.shape)
    return replace(node, output=output, operands=operands, body=body, inline=False)
