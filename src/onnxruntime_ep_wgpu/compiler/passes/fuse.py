"""Fusion: which maps share a kernel with the call or the maps around them.

One rule about accessors, not one per pair of operators. A map joins the group that computes one of its operands when it
reads that operand at its own index, so its value can be computed where the operand is stored (an epilogue, or one kernel
for a chain of maps). A map that only a call reads once joins the call (a prologue), and so does one marked `inline`.
Groups never form a cycle, never bind more buffers than the target allows, and stay small enough to compile quickly.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ...program.target import Target, elements_per_word
from ..ir import MAX_COST, MAX_INLINED_COST, Call, Join, LoweredGraph, Map, Node, Read, Tensor, View, is_read_again
from ..ir.binding_ranges import KernelBindings, is_large, is_storable, is_way_to_read, placed
from ..ir.signed_bytes import are_multiplied

MOST_BETWEEN = 256  # groups looked at to find that two can be one, so that the work is linear in the size of a graph


@dataclass(eq=False)
class FusedGroup:
    """Nodes of one kernel. `stores` are the results that must be in memory, filled in when fusion is finished."""

    nodes: list[Node]
    anchor: Call | None = None
    inlined: set[Node] = field(default_factory=set)  # computed where they are read, never stored
    stores: list[Tensor] = field(default_factory=list)
    first: int = 0
    last: int = 0

    @property
    def cost(self) -> int:
        return sum(n.cost for n in self.nodes if isinstance(n, Map))

    @property
    def origin(self) -> tuple[str, ...]:
        """Names of the ONNX nodes in it, in order, each once."""
        return tuple(dict.fromkeys(name for n in self.nodes for name in n.origin))

    def needs(self) -> list[Tensor]:
        """What other kernels must have stored before."""
        inside = {t for n in self.nodes for t in n.outputs}
        reads = [v.tensor for n in self.nodes for v in n.reads if v.tensor not in inside]
        return list(dict.fromkeys([*reads, *(self.anchor.onto.values() if self.anchor else ())]))

    @property
    def loads(self) -> dict[Tensor, list[View]]:
        """What the kernel binds to read, and how it looks at it."""
        inside = {t for n in self.nodes for t in n.outputs}
        out: dict[Tensor, list[View]] = {}
        for node in self.nodes:
            for read in node.operands.values():
                tensor = read.view.tensor
                if tensor not in inside and not tensor.is_literal:
                    out.setdefault(tensor, []).append(read.view)
        return out

    def placement(self, stores: list[Tensor], target: Target) -> KernelBindings:
        """How the kernel binds what it reads and `stores`."""
        return placed(self.nodes, self.loads, stores, target)


class _Fusion:
    def __init__(self, graph: LoweredGraph, target: Target) -> None:
        self.graph, self.target = graph, target
        tensors = (t for n in graph.nodes for t in (*(v.tensor for v in n.reads), *n.outputs))
        self._has_large = any(is_large(t, target) for t in tensors)
        self.group: dict[Node, FusedGroup] = {}
        for k, node in enumerate(graph.nodes):
            self.group[node] = FusedGroup([node], node if isinstance(node, Call) else None, first=k, last=k)
        self.position = {node: k for k, node in enumerate(graph.nodes)}

    def run(self) -> list[FusedGroup]:
        for node in self.graph.nodes:
            if isinstance(node, Map):
                self._join_producers(node)
        for node in self.graph.nodes:
            if isinstance(node, Map) and elements_per_word(node.output.dtype, self.target) > 1:
                self._join_producers(node)  # now that it is known whether a narrow result is stored
        if any(it.multiplies_bytes for it in self.target.matrices):
            for node in self.graph.nodes:
                self._leave_to_reader(node)
        for node in reversed(self.graph.nodes):
            self._absorb_producers(node)
        return self._ordered()

    # ---- the rules

    def _join_producers(self, node: Map) -> None:
        if not node.is_pointwise:
            return
        producers = {v.tensor.producer: v for v in node.reads if v.tensor.producer in self.group}
        for producer in sorted(producers, key=lambda n: -self.position[n] if n else 0):
            assert producer is not None
            view = producers[producer]
            ours, theirs = self.group[node], self.group[producer]
            if self._belongs_to_reader(node, view.tensor):
                continue
            if ours is not theirs and view.is_whole and view.size == node.output.size and self._can_merge(ours, theirs):
                self._merge(theirs, ours)

    def _belongs_to_reader(self, node: Map, operand: Tensor) -> bool:
        """True when only a call reads the node, each element once, and what the node reads is in memory anyway: the
        square of x is then computed where it is summed, which saves writing it. And when it makes integers of bytes that matrix
        units multiply as bytes."""
        if node.output.is_stored or node.cost > MAX_INLINED_COST or len(node.output.users) != 1:
            return False
        (reader,) = node.output.users
        if are_multiplied(node.output):
            return True
        reads = [r for r in reader.operands.values() if r.view.tensor is node.output]
        return isinstance(reader, Call) and len(reads) == 1 and not reads[0].reuse and operand.users != [node]

    def _leave_to_reader(self, node: Node) -> None:
        """Takes an inline map of narrow integers out of the kernel that makes these, if it is all that another one reads element by
        element: they are stored as they are, a quarter of what the map makes. Where products take bytes, memory is what is left."""
        if not isinstance(node, Map) or not (node.inline and node.is_pointwise) or node.output.is_stored:
            return
        group, read = self.group[node], [view.tensor for view in node.reads if not view.tensor.is_literal]
        narrow = [it for it in read if elements_per_word(it.dtype, self.target) > 1]
        if (
            len(node.output.users) != 1
            or len(narrow) != 1
            or narrow[0] not in {t for n in group.nodes for t in n.outputs}
        ):
            return
        (reader,) = node.output.users
        theirs = self.group.get(reader)
        if theirs is None or theirs is group or not isinstance(reader, Map) or not reader.is_pointwise:
            return
        if any(v.size != node.output.size or not v.is_whole for v in reader.reads if v.tensor is node.output):
            return
        if group.anchor and not self._stores(group.anchor, narrow[0]):
            return
        if self._binds(FusedGroup([node, *theirs.nodes], theirs.anchor), self._stored(theirs.nodes)):
            group.nodes.remove(node)
            at = self.position[node]
            self.group[node] = FusedGroup([node], first=at, last=at)

    def _can_merge(self, ours: FusedGroup, theirs: FusedGroup) -> bool:
        if (ours.anchor and theirs.anchor) or ours.inlined or theirs.inlined:
            return False
        if any(isinstance(n, Join) for n in (*ours.nodes, *theirs.nodes)):
            return False
        nodes = [*theirs.nodes, *ours.nodes]
        anchor = ours.anchor or theirs.anchor
        if anchor and anchor.onto:
            return False  # it stores some elements of its result, and readers of that need all
        if sum(n.cost for n in nodes if isinstance(n, Map)) > MAX_COST or not self._in_step(nodes, anchor):
            return False
        stored = self._stored(nodes)
        if anchor and not all(self._stores(anchor, t) for t in stored):
            return False
        if not self._loops_fit(nodes, stored):
            return False
        merged = FusedGroup(nodes, anchor)
        return self._binds(merged, stored) and not self._cycle(ours, theirs)

    def _stores(self, call: Call, tensor: Tensor) -> bool:
        """True when a call can store a result that follows its own: a narrow one needs the owner of the whole word."""
        together = elements_per_word(tensor.dtype, self.target)
        in_fours = tensor.place is None and all(write.in_fours for write in call.results.values())
        return together == 1 or (in_fours and together <= 4)

    def _binds(self, group: FusedGroup, stored: list[Tensor]) -> bool:
        """True when a kernel of the group needs no more bindings than there are."""
        loads = self._with_ways_to_read(group.loads)
        if self._has_large:
            needed = placed(group.nodes, loads, stored, self.target).bindings
        else:
            needed = len(loads) + len({t.memory for t in stored})
        return needed <= self.target.max_storage_buffers

    def _with_ways_to_read(self, loads: dict[Tensor, list[View]]) -> dict[Tensor, list[View]]:
        """What is loaded once all is calculated here that is to be in no memory: ways to read weights, to which what joins first
        must leave the bindings, because else the weights would be written to memory as real numbers in every run, and maps
        that no buffer holds."""
        out: dict[Tensor, list[View]] = {}
        for tensor, views in loads.items():
            maker = tensor.producer
            if not isinstance(maker, Map):
                out.setdefault(tensor, []).extend(views)
            elif is_way_to_read(maker):
                for view in maker.reads:
                    if not view.tensor.is_literal:
                        out.setdefault(view.tensor, []).append(view)
            elif not is_storable(tensor, self.target):
                own: dict[Tensor, list[View]] = {}
                for view in maker.reads:
                    if not view.tensor.is_literal:
                        own.setdefault(view.tensor, []).append(view)
                for made_of, theirs in self._with_ways_to_read(own).items():
                    out.setdefault(made_of, []).extend(theirs)
            else:
                out.setdefault(tensor, []).extend(views)
        return out

    def _loops_fit(self, nodes: list[Node], stored: list[Tensor]) -> bool:
        """True when an invocation, which computes whole words of every result, ends before a software adapter ends it."""
        looping = [n for n in nodes if isinstance(n, Map) and n.iterations != 0]
        most = self.target.longest_loop
        if not looping or most is None:
            return True
        together = max(elements_per_word(t.dtype, self.target) for t in stored)
        if len(looping) == 1 and together <= elements_per_word(looping[0].output.dtype, self.target):
            return True  # as it was lowered
        total = together * sum((n.iterations for n in looping[1:]), looping[0].iterations)
        return isinstance(total, int) and total <= most

    def _in_step(self, nodes: list[Node], anchor: Call | None) -> bool:
        """Every read of a result of the group is at the reader's own index, and follows what the call stores together."""
        writes = anchor.results.values() if anchor else ()
        results = {tensor: write.tensor for write in writes for tensor in (write.tensor, *write.also)}
        inside = {t for n in nodes for t in n.outputs}
        for node in sorted(nodes, key=self.position.__getitem__):
            if not isinstance(node, Map):
                continue
            sources = set()
            for view in node.reads:
                if view.tensor in inside:
                    if not node.is_pointwise or not view.is_whole or view.size != node.output.size:
                        return False
                    if view.tensor in results:
                        sources.add(results[view.tensor])
            if len(sources) > 1 or (anchor and not sources):
                return False
            if sources:
                results[node.output] = sources.pop()
        return True

    def _absorb_producers(self, node: Node) -> None:
        """Maps that only this node reads move into its kernel when nothing is computed more than once or twice. A result that no
        buffer holds is calculated where it is read, whatever that costs, and by each reader for itself."""
        if isinstance(node, Join) or node not in self.group:
            return  # what a join has is stored by others
        for read in node.operands.values():
            producer = read.view.tensor.producer
            if not isinstance(producer, Map) or producer not in self.group:
                continue
            ours, theirs = self.group[node], self.group[producer]
            nowhere = not is_storable(producer.output, self.target)
            if ours is theirs or theirs.anchor:
                continue
            is_own = self._is_private(theirs, node)
            if not is_own:
                if not nowhere or not self._may_have_a_copy(producer.output, node):
                    continue
                theirs = self._needed_for(producer.output, theirs)
            if theirs.cost > MAX_INLINED_COST and not nowhere:
                continue
            if is_read_again(node, read) and not all(isinstance(n, Map) and n.inline for n in theirs.nodes):
                continue
            if isinstance(node, Map) and read.view.size != producer.output.size and not producer.inline:
                continue
            if isinstance(node, Call) and any(
                not n.is_pointwise and not n.inline for n in theirs.nodes if isinstance(n, Map)
            ):
                continue
            merged = FusedGroup([*theirs.nodes, *ours.nodes], ours.anchor)
            stored = self._stored(ours.nodes)
            small = ours.cost + theirs.cost <= MAX_COST and self._loops_fit(merged.nodes, stored)
            if small and self._binds(merged, stored):
                if not is_own:
                    theirs = self._copy(theirs, producer.output, node)
                inlined = set(theirs.nodes)
                self._merge(ours, theirs)
                self.group[node].inlined |= inlined
                for copy in reversed(theirs.nodes if not is_own else ()):
                    self._absorb_producers(copy)  # which the graph does not have

    def _is_private(self, group: FusedGroup, node: Node) -> bool:
        """True when `node` is the only reader, outside the group, of the one result that leaves it."""
        stored = self._stored(group.nodes)
        if len(stored) != 1 or stored[0].is_stored or len(stored[0].users) > len(group.nodes) + 1:
            return False  # a tensor may have as many readers as the graph has nodes
        inside = set(group.nodes)
        return [user for user in stored[0].users if user not in inside] == [node]

    # ---- results that no buffer holds

    def _may_have_a_copy(self, tensor: Tensor, reader: Node) -> bool:
        """Whether a reader can calculate the tensor for itself: not where maps in its middle say by themselves what they read."""
        return not tensor.is_stored and not (isinstance(reader, Call) and (reader.inner or reader.onto))

    def _needed_for(self, tensor: Tensor, group: FusedGroup) -> FusedGroup:
        """The maps of a group that calculate `tensor`."""
        needed = {tensor}
        nodes = []
        for node in reversed(group.nodes):
            if not needed.isdisjoint(node.outputs):
                nodes.append(node)
                needed.update(view.tensor for view in node.reads)
        return FusedGroup(nodes[::-1], first=group.first, last=group.last)

    def _copy(self, group: FusedGroup, tensor: Tensor, reader: Node) -> FusedGroup:
        """A copy of maps that calculate `tensor`, for `reader` alone; of the maps themselves those stay that others read."""
        made: dict[Tensor, Tensor] = {}
        copied = FusedGroup([], first=group.first, last=group.last)
        for node in group.nodes:
            assert isinstance(node, Map)
            output = made[node.output] = replace(node.output, users=[])
            output.producer = copy = replace(node, output=output, operands=_reading(node.operands, made))
            self.position[copy] = self.position[node]
            self.group[copy] = copied
            copied.nodes.append(copy)
            for operand in dict.fromkeys(view.tensor for view in copy.reads):
                operand.users.append(copy)
        reader.operands.update(_reading(reader.operands, {tensor: made[tensor]}))
        made[tensor].users.append(reader)
        self._leave(reader, tensor)
        return copied

    def _leave(self, reader: Node, tensor: Tensor) -> None:
        """A node reads a tensor no more; a map that nothing reads any more is taken out of its group."""
        tensor.users.remove(reader)
        maker = tensor.producer
        if isinstance(maker, Map) and maker in self.group and not tensor.users and not tensor.is_stored:
            self.group.pop(maker).nodes.remove(maker)
            for operand in dict.fromkeys(view.tensor for view in maker.reads):
                self._leave(maker, operand)

    # ---- groups

    def _stored(self, nodes: list[Node]) -> list[Tensor]:
        inside = set(nodes)
        stay = {t for n in nodes if isinstance(n, Call) for t in n.stays}
        return [
            t for n in nodes for t in n.outputs if t.is_stored or t in stay or any(u not in inside for u in t.users)
        ]

    def _merge(self, into: FusedGroup, other: FusedGroup) -> None:
        into.nodes = sorted([*into.nodes, *other.nodes], key=self.position.__getitem__)
        into.anchor = into.anchor or other.anchor
        into.inlined |= other.inlined
        into.first, into.last = min(into.first, other.first), max(into.last, other.last)
        for node in other.nodes:
            self.group[node] = into

    def _before(self, group: FusedGroup) -> list[FusedGroup]:
        return list(dict.fromkeys(self.group[t.producer] for t in group.needs() if t.producer in self.group))

    def _cycle(self, a: FusedGroup, b: FusedGroup) -> bool:
        """True when some third group must run between the two."""
        return self._reaches(a, b) or self._reaches(b, a)

    def _reaches(self, late: FusedGroup, early: FusedGroup) -> bool:
        """Whether `late` needs a third group that needs `early`; assumed of groups that are too far apart to find out.

        A kernel for both would also keep what `early` reads in memory for as long.
        """
        pending = [g for g in self._before(late) if g is not early and g is not late]
        seen = set(pending)
        looked_at = 0
        while pending:
            group = pending.pop()
            if group.last < early.first:
                continue
            looked_at += 1
            if looked_at > MOST_BETWEEN:
                return True
            for g in self._before(group):
                if g is early:
                    return True
                if g not in seen and g is not late:
                    seen.add(g)
                    pending.append(g)
        return False

    def _ordered(self) -> list[FusedGroup]:
        """Groups in an order that respects data flow, as near to the graph's order as possible."""
        out: list[FusedGroup] = []
        done: set[FusedGroup] = set()

        def visit(group: FusedGroup) -> None:
            stack = [(group, iter(self._before(group)))]
            done.add(group)
            while stack:
                current, before = stack[-1]
                following = next((g for g in before if g not in done), None)
                if following is None:
                    out.append(current)
                    stack.pop()
                else:
                    done.add(following)
                    stack.append((following, iter(self._before(following))))

        for node in self.graph.nodes:
            if node in self.group and self.group[node] not in done:
                visit(self.group[node])
        for group in out:
            group.stores = self._stored(group.nodes)
        return [group for group in out if not isinstance(group.nodes[0], Join)]


def _reading(operands: dict[str, Read], made: dict[Tensor, Tensor]) -> dict[str, Read]:
    """The operands with tensors of `made` instead of those they are copies of."""
    return {
        name: replace(read, view=replace(read.view, tensor=made.get(read.view.tensor, read.view.tensor)))
        for name, read in operands.items()
    }


def fuse(graph: LoweredGraph, target: Target) -> list[FusedGroup]:
    """Kernels-to-be in running order; every tensor that another group or the caller reads is stored by exactly one."""
    return _Fusion(graph, target).run()
