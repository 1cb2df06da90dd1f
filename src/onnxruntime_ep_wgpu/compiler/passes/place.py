"""Placement: stores tensors next to each other in one tensor for Concat, or inside of a larger one for Pad.

In: a graph without dead nodes, with `users`. Out: the same graph, in which every `Join` is one of two things:

- a map that selects its operand by the coordinate;
- a join of tensors placed in its output: copies of the operands, with their location in `Tensor.place`. Fusion computes such a
  copy where the operand is computed, so a kernel stores its result there.

A `Pad` becomes a map, or such a join of its operand and the fill around it, which is one dispatch.

A join becomes a map if that takes fewer dispatches, as when its reader's kernel computes it (the swapped halves of a rotary
embedding). It also becomes a map if kernels cannot store the parts: elements share a word with elements of another kernel. (The
builder already made maps for tensors larger than a binding.) A join with another join as its only reader is placed in that one.

A kernel stores its result in as many joins as it has bindings for. Each further part would be a dispatch. So a value that many
joins read, as in a DenseNet, is placed in a few of them. The other joins are maps. Such a map reads a placed join with the same
operands, except for the last ones, as one tensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import field, replace

from ...program.target import Target, elements_per_word
from ...records import dataclass
from ..dims import Dim, quotient
from ..ir import MAX_INLINED_COST, Call, Join, LoweredGraph, Map, Node, Pad, Read, Tensor, View, coalesce, is_read_again
from ..nodes.joins import Shared, count_of_maps, picked
from ..nodes.pads import Strip, filled, inside, padding, strips

LARGE = 1 << 20  # elements; moving this many takes a GPU longer than one more dispatch
_MAX_DEPTH = 8  # maps between a kernel and an operand that it may inline; also the depth of nested pads


@dataclass(frozen=True)
class _Part:
    """An operand and its place. `kernel`: the call or map that runs in any case and can store the operand there, if any."""

    view: View
    place: View
    kernel: Node | None


@dataclass
class _Plan:
    """A possible layout of one tensor: operands, fill, and the nested joins and pads that would be placed in it."""

    parts: list[_Part] = field(default_factory=list)
    strips: list[Strip] = field(default_factory=list)
    inner: list[Join | Pad] = field(default_factory=list)

    def sides(self, node: Join | Pad, place: View) -> list[tuple[View, View]]:
        """Returns the operands of a node placed at `place`, each with its own place. Adds the strips of fill."""
        if isinstance(node, Join):
            return [(read.view, part_place) for read, part_place in _placed_operands(node, place)]
        self.strips += strips(node, place)
        return [(node.operands["x"].view, inside(node, place))]


class _Placer:
    def __init__(self, graph: LoweredGraph, target: Target) -> None:
        self.graph, self.target = graph, target
        self.replacements: dict[Node, list[Node]] = {}
        joins = [node for node in graph.nodes if isinstance(node, Join) and not node.is_placed]
        self.undecided, self.shared = set(joins), Shared(joins)
        self.stores: Counter[Node] = Counter()  # in joins, counted per call or map

    def run(self) -> LoweredGraph:
        for node in reversed(self.graph.nodes):  # an outer join determines where the operands of an inner one are
            if node in self.replacements or not self._is_undecided(node):
                continue
            assert isinstance(node, (Join, Pad))
            self.undecided.discard(node)
            plan = self._plan(node)
            if self._is_stored(node, plan):
                self.stores.update(part.kernel for part in plan.parts if part.kernel is not None)
                self.replacements[node] = self._placed(node, plan)
                self.replacements.update((it, []) for it in plan.inner)
                self.undecided.difference_update(plan.inner)
            else:
                self.replacements[node] = self._as_maps(node) if isinstance(node, Join) else [padding(node)]
        return replace(self.graph, nodes=[it for n in self.graph.nodes for it in self.replacements.get(n, [n])])

    def _is_undecided(self, node: Node | None) -> bool:
        return isinstance(node, Pad) or (isinstance(node, Join) and not node.is_placed)

    def _plan(self, node: Join | Pad) -> _Plan:
        plan = _Plan()
        stores = self.stores.copy()
        pending = [(*side, 0) for side in plan.sides(node, View.of(node.output))]
        while pending:
            view, place, pads = pending.pop(0)
            producer = view.tensor.producer
            if pads < _MAX_DEPTH and self._is_nested(view):
                assert isinstance(producer, (Join, Pad))
                whole = place.reshape(view.tensor.shape)
                if whole is not None and _can_be_cut(producer, whole):
                    plan.inner.append(producer)
                    pads += isinstance(producer, Pad)
                    pending[:0] = [(*side, pads) for side in plan.sides(producer, whole)]
                    continue
            stored = view.stored_as(place)
            if stored is not None and self._is_stored_by_kernel(view.tensor):
                plan.parts.append(_Part(*stored, self._storing_kernel(view.tensor, stores)))
            else:
                plan.parts.append(_Part(view, place, None))
        return plan

    def _is_nested(self, view: View) -> bool:
        """Returns whether a view shows a join with a single reader, which can be placed inside of that reader with all of its
        operands.

        A pad of a tensor that no kernel makes stays a map, which stores it in one dispatch.
        """
        for _ in range(_MAX_DEPTH):
            producer = view.tensor.producer
            if not (self._is_undecided(producer) and self._is_private(view.tensor) and view.is_whole):
                return False
            if isinstance(producer, Join):
                return True
            assert isinstance(producer, Pad)
            view = producer.operands["x"].view
            if self._is_stored_by_kernel(view.tensor):
                return True
        return False

    def _storing_kernel(self, tensor: Tensor, stores: Counter[Node]) -> Node | None:
        """Returns the producer of a tensor if its kernel can store it in one more join, and counts that join in `stores`."""
        anchor = self._anchor(tensor)
        kernel = anchor or tensor.producer
        if kernel is None or (anchor is not None and elements_per_word(tensor.dtype, self.target) > 1):
            return None
        # The first join replaces the tensor's own buffer.
        if stores[kernel] > 0 and stores[kernel] + self._bindings(tensor, kernel) >= self.target.max_storage_buffers:
            return None
        stores[kernel] += 1
        return kernel

    def _bindings(self, tensor: Tensor, kernel: Node) -> int:
        """Returns an upper bound of what the kernel of a tensor binds besides parts of joins, including maps fused after it."""
        bound: set[Tensor] = set(kernel.outputs) | {tensor}
        pending = [*kernel.outputs, tensor]
        bound.update(view.tensor for view in kernel.reads)
        seen = set[Node]()
        while pending and len(bound) < self.target.max_storage_buffers:
            for user in pending.pop().users:
                if isinstance(user, Map) and user.is_pointwise and user not in seen:
                    seen.add(user)
                    bound.update((user.output, *(view.tensor for view in user.reads)))
                    pending.append(user.output)
        return len(bound)

    def _as_maps(self, join: Join) -> list[Node]:
        """Returns maps that compute the join, from another join where possible."""
        short, other = self.shared.shortened(join, self.undecided, self.target)
        maps = list(picked(short, self.target))
        if other is not None:
            other.output.users += [node for node in maps if other.output in {view.tensor for view in node.reads}]
        return [*maps]

    def _is_private(self, tensor: Tensor) -> bool:
        return not tensor.is_stored and len(tensor.users) == 1

    def _is_stored(self, node: Join | Pad, plan: _Plan) -> bool:
        """Returns whether placing the node is cheaper than a map.

        It compares dispatches: one for each operand that no kernel can store in place, and those for the fill.
        """
        if not all(self._owns_words(part.place) for part in plan.parts):
            return False
        if plan.strips and elements_per_word(node.output.dtype, self.target) > 1:
            return False
        more = sum(part.kernel is None for part in plan.parts) + len(filled(plan.strips, (), self.target))
        if self._is_inlined_in_reader(node.output):
            return more == 0
        more -= count_of_maps(len(node.operands), self.target) if isinstance(node, Join) else 1
        moved = sum((part.view.size for part in plan.parts if part.kernel is not None), start=0)
        return more <= 0 or (isinstance(moved, int) and moved >= more * LARGE)

    def _owns_words(self, place: View) -> bool:
        """Returns whether no word contains elements of both this part and another one."""
        lanes = elements_per_word(place.dtype, self.target)
        if lanes == 1:
            return True
        if any(f.stride != 1 for f in place.factors) or quotient(place.offset, lanes) is None:
            return False
        return quotient(place.size, lanes) is not None or place.offset + place.size == place.tensor.size

    def _is_inlined_in_reader(self, tensor: Tensor) -> bool:
        """Returns whether a map for the tensor would need no kernel of its own."""
        if tensor.is_stored:
            return False
        for user in tensor.users:
            for read in user.operands.values():
                if isinstance(user, Map) and read.view.tensor is tensor:
                    if user.is_pointwise and read.view.is_whole and read.view.size == user.output.size:
                        return True
                    if len(tensor.users) == 1 and not is_read_again(user, read) and read.view.size == tensor.size:
                        return True
        return False

    def _anchor(self, tensor: Tensor) -> Call | None:
        """Returns the call that a tensor is computed in, directly or through maps of its result, unless fusion prevents it."""
        pending, at = [tensor], 0
        while at < len(pending) and at < _MAX_DEPTH:
            producer = pending[at].producer
            at += 1
            if isinstance(producer, Call):
                return producer
            if isinstance(producer, Map) and producer.is_pointwise:
                pending += [v.tensor for v in producer.reads if v.is_whole and v.size == producer.output.size]
        return None

    def _is_stored_by_kernel(self, tensor: Tensor) -> bool:
        """Returns whether a kernel would compute and store the tensor even if a map selected its elements."""
        producer = tensor.producer
        if not isinstance(producer, Map):
            return isinstance(producer, Call)
        has_readers = tensor.is_stored or len(tensor.users) > 1
        too_expensive = producer.cost > MAX_INLINED_COST or producer.iterations != 0
        return has_readers or too_expensive or self._anchor(tensor) is not None

    def _placed(self, node: Join | Pad, plan: _Plan) -> list[Node]:
        """Returns a copy of every part in its place, the fill, and the join of them."""
        nodes: list[Node] = []
        for part in plan.parts:
            tensor = Tensor(node.output.dtype, part.place.shape, place=part.place)
            copy = Map(tensor, {"x": Read(part.view, (part.view.rank,))}, expression="x", origin=node.origin)
            tensor.producer = copy
            nodes.append(copy)
        nodes += filled(plan.strips, node.origin, self.target)
        tensors = [tensor for made in nodes for tensor in made.outputs]
        operands = {f"x{k}": Read(View.of(tensor), (len(tensor.shape),)) for k, tensor in enumerate(tensors)}
        made = Join(node.output, operands, node.axis if isinstance(node, Join) else 0, node.origin)
        node.output.producer = made
        return [*nodes, made]


def _can_be_cut(node: Join | Pad, place: View) -> bool:
    """Returns whether the parts of a node placed at `place` are views.

    An axis with several strides cannot be cut. Such an axis comes from a reshape of a tensor placed in another one.
    """
    if isinstance(node, Join):
        cut = [node.axis]
    else:
        inner = node.operands["x"].view.shape
        cut = [axis for axis, extent in enumerate(inner) if extent != place.shape[axis]]
    return all(len(coalesce(place.axes[axis])) <= 1 for axis in cut)


def _placed_operands(join: Join, place: View) -> Iterator[tuple[Read, View]]:
    """Yields the operands of a join placed at `place`, each with its own place."""
    start: Dim = 0
    for read in join.operands.values():
        extent = read.view.shape[join.axis]
        part = place.slice(join.axis, start, 1, extent)
        start = start + extent
        assert part is not None  # an axis that is cut has one stride (`_can_be_cut`)
        yield read, part


def place_joins(graph: LoweredGraph, target: Target) -> LoweredGraph:
    """Returns the graph with every join decided. Run `remove_dead` before it, to set the users, and after it."""
    return _Placer(graph, target).run()
