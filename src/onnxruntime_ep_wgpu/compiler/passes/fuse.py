"""Fusion: decides which maps share a kernel with a call or with other maps.

One rule about accessors replaces a rule per pair of operators:

- Epilogue: a map joins the group that computes one of its operands if it reads that operand at its own index. Its value is then
  computed where the operand would be stored. A chain of maps becomes one kernel in the same way.
- Prologue: a map joins a call if only that call reads it, once. A map marked `inline` joins too.

Groups never form a cycle, never bind more buffers than the target allows, and stay small enough to compile quickly.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ...program.target import Target, elements_per_word
from ..dims import Dim
from ..ir import MAX_COST, MAX_INLINED_COST, Call, Join, LoweredGraph, Map, Node, Read, Tensor, View, is_read_again
from ..ir.binding_ranges import KernelBindings, is_large, is_storable, only_decodes_weights, placed
from ..ir.signed_bytes import are_multiplied

MOST_BETWEEN = 256  # groups visited by one search for a cycle; keeps the work linear in the size of the graph


@dataclass(eq=False)
class FusedGroup:
    """The nodes of one kernel. `stores` lists the results that must be in memory; it is set when fusion is finished.

    `runs` is 0 in runs in which another kernel stores them, else 1.
    """

    nodes: list[Node]
    anchor: Call | None = None
    inlined: set[Node] = field(default_factory=set)  # computed where they are read, never stored
    stores: list[Tensor] = field(default_factory=list)
    runs: Dim = 1
    first: int = 0
    last: int = 0

    @property
    def cost(self) -> int:
        return sum(n.cost for n in self.nodes if isinstance(n, Map))

    @property
    def origin(self) -> tuple[str, ...]:
        """The names of the ONNX nodes of the group, in order, without duplicates."""
        return tuple(dict.fromkeys(name for n in self.nodes for name in n.origin))

    def needs(self) -> list[Tensor]:
        """Returns the tensors that other kernels must store before this kernel runs."""
        inside = {t for n in self.nodes for t in n.outputs}
        reads = [v.tensor for n in self.nodes for v in n.reads if v.tensor not in inside]
        return list(dict.fromkeys([*reads, *(self.anchor.onto.values() if self.anchor else ())]))

    @property
    def loads(self) -> dict[Tensor, list[View]]:
        """The tensors that the kernel binds for reading, each with the views through which it reads them."""
        inside = {t for n in self.nodes for t in n.outputs}
        out: dict[Tensor, list[View]] = {}
        for node in self.nodes:
            for read in node.operands.values():
                tensor = read.view.tensor
                if tensor not in inside and not tensor.is_literal:
                    out.setdefault(tensor, []).append(read.view)
        return out

    def placement(self, stores: list[Tensor], target: Target) -> KernelBindings:
        """Returns how the kernel binds the tensors it reads and `stores`."""
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
                self._join_producers(node)  # only now is it decided whether a narrow result is stored
        if any(it.multiplies_bytes for it in self.target.matrices):
            for node in self.graph.nodes:
                self._move_to_reader(node)
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
            consumer, producer_group = self.group[node], self.group[producer]
            if self._belongs_to_reader(node, view.tensor):
                continue
            if (
                consumer is not producer_group
                and view.is_whole
                and view.size == node.output.size
                and self._can_merge(consumer, producer_group)
            ):
                self._merge(producer_group, consumer)

    def _belongs_to_reader(self, node: Map, operand: Tensor) -> bool:
        """Returns whether the node should be computed in its reader instead of in its producer.

        This holds if only a call reads the node, each element once, and the operand of the node is stored anyway. For example,
        the square of x is computed where it is summed, which saves a write. It also holds if the node converts bytes to integers
        and a matrix unit multiplies those bytes.
        """
        if node.output.is_stored or node.cost > MAX_INLINED_COST or len(node.output.users) != 1:
            return False
        (reader,) = node.output.users
        if are_multiplied(node.output):
            return True
        reads = [r for r in reader.operands.values() if r.view.tensor is node.output]
        return isinstance(reader, Call) and len(reads) == 1 and not reads[0].reuse and operand.users != [node]

    def _move_to_reader(self, node: Node) -> None:
        """Moves an inline map of narrow integers out of the kernel that makes these integers, if one reader reads it element by
        element.

        The narrow integers are then stored as they are, in a quarter of the bytes. Memory traffic is the bottleneck where
        products take bytes.
        """
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
        reader_group = self.group.get(reader)
        if reader_group is None or reader_group is group or not isinstance(reader, Map) or not reader.is_pointwise:
            return
        if any(v.size != node.output.size or not v.is_whole for v in reader.reads if v.tensor is node.output):
            return
        if group.anchor and not self._stores(group.anchor, narrow[0]):
            return
        if self._binds(FusedGroup([node, *reader_group.nodes], reader_group.anchor), self._stored(reader_group.nodes)):
            group.nodes.remove(node)
            at = self.position[node]
            self.group[node] = FusedGroup([node], first=at, last=at)

    def _can_merge(self, consumer: FusedGroup, producer: FusedGroup) -> bool:
        if (consumer.anchor and producer.anchor) or consumer.inlined or producer.inlined:
            return False
        if any(isinstance(n, Join) for n in (*consumer.nodes, *producer.nodes)):
            return False
        nodes = [*producer.nodes, *consumer.nodes]
        anchor = consumer.anchor or producer.anchor
        if anchor and anchor.onto:
            return False  # it stores some elements of its result, and readers need all of them
        if sum(n.cost for n in nodes if isinstance(n, Map)) > MAX_COST or not self._reads_elementwise(nodes, anchor):
            return False
        stored = self._stored(nodes)
        if anchor and not all(self._stores(anchor, t) for t in stored):
            return False
        if not self._loops_fit(nodes, stored):
            return False
        merged = FusedGroup(nodes, anchor)
        return self._binds(merged, stored) and not self._cycle(consumer, producer)

    def _stores(self, call: Call, tensor: Tensor) -> bool:
        """Returns whether a call can store a result of its epilogue. A narrow result needs all elements of a word in one
        invocation."""
        per_word = elements_per_word(tensor.dtype, self.target)
        in_fours = tensor.place is None and all(write.in_fours for write in call.results.values())
        return per_word == 1 or (in_fours and per_word <= 4)

    def _binds(self, group: FusedGroup, stored: list[Tensor]) -> bool:
        """Returns whether a kernel of the group needs no more bindings than the target has."""
        loads = self._with_inlined_loads(group.loads)
        if self._has_large:
            needed = placed(group.nodes, loads, stored, self.target).bindings
        else:
            needed = len(loads) + len({t.memory for t in stored})
        return needed <= self.target.max_storage_buffers

    def _with_inlined_loads(self, loads: dict[Tensor, list[View]]) -> dict[Tensor, list[View]]:
        """Returns what a kernel loads after it absorbs every map that should not be stored.

        These are maps that only decode weights, and maps with a result that no buffer can hold. They need bindings of their own, so
        maps that join first must leave bindings for them. Otherwise the decoded weights would be stored as real numbers in every
        run.
        """
        out: dict[Tensor, list[View]] = {}
        for tensor, views in loads.items():
            producer = tensor.producer
            if not isinstance(producer, Map):
                out.setdefault(tensor, []).extend(views)
            elif only_decodes_weights(producer):
                for view in producer.reads:
                    if not view.tensor.is_literal:
                        out.setdefault(view.tensor, []).append(view)
            elif not is_storable(tensor, self.target):
                own: dict[Tensor, list[View]] = {}
                for view in producer.reads:
                    if not view.tensor.is_literal:
                        own.setdefault(view.tensor, []).append(view)
                for source, source_views in self._with_inlined_loads(own).items():
                    out.setdefault(source, []).extend(source_views)
            else:
                out.setdefault(tensor, []).extend(views)
        return out

    def _loops_fit(self, nodes: list[Node], stored: list[Tensor]) -> bool:
        """Returns whether an invocation finishes its loops before a software adapter aborts it. It computes whole words of every
        result."""
        looping = [n for n in nodes if isinstance(n, Map) and n.iterations != 0]
        most = self.target.longest_loop
        if not looping or most is None:
            return True
        per_word = max(elements_per_word(t.dtype, self.target) for t in stored)
        if len(looping) == 1 and per_word <= elements_per_word(looping[0].output.dtype, self.target):
            return True  # same as in the lowered graph
        total = per_word * sum((n.iterations for n in looping[1:]), looping[0].iterations)
        return isinstance(total, int) and total <= most

    def _reads_elementwise(self, nodes: list[Node], anchor: Call | None) -> bool:
        """Returns whether the group reads each of its own results at the reader's index, and follows at most one write of the
        call."""
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
        """Moves maps that only this node reads into its kernel, if little is computed more than once.

        A result that no buffer can hold is calculated where it is read, at any cost, and separately for each reader.
        """
        if isinstance(node, Join) or node not in self.group:
            return  # other kernels store the operands of a join
        for read in node.operands.values():
            producer = read.view.tensor.producer
            if not isinstance(producer, Map) or producer not in self.group:
                continue
            consumer, producer_group = self.group[node], self.group[producer]
            unstorable = not is_storable(producer.output, self.target)
            if consumer is producer_group or producer_group.anchor:
                continue
            is_own = self._is_private(producer_group, node)
            if not is_own:
                if not unstorable or not self._can_duplicate_for(producer.output, node):
                    continue
                producer_group = self._maps_for(producer.output, producer_group)
            if producer_group.cost > MAX_INLINED_COST and not unstorable:
                continue
            if is_read_again(node, read) and not all(isinstance(n, Map) and n.inline for n in producer_group.nodes):
                continue
            if isinstance(node, Map) and read.view.size != producer.output.size and not producer.inline:
                continue
            if isinstance(node, Call) and any(
                not n.is_pointwise and not n.inline for n in producer_group.nodes if isinstance(n, Map)
            ):
                continue
            merged = FusedGroup([*producer_group.nodes, *consumer.nodes], consumer.anchor)
            stored = self._stored(consumer.nodes)
            small = consumer.cost + producer_group.cost <= MAX_COST and self._loops_fit(merged.nodes, stored)
            if small and self._binds(merged, stored):
                if not is_own:
                    producer_group = self._copy(producer_group, producer.output, node)
                inlined = set(producer_group.nodes)
                self._merge(consumer, producer_group)
                self.group[node].inlined |= inlined
                for copy in reversed(producer_group.nodes if not is_own else ()):
                    self._absorb_producers(copy)  # the graph does not contain the copy

    def _is_private(self, group: FusedGroup, node: Node) -> bool:
        """Returns whether `node` is the only reader, outside of the group, of the only result that leaves the group."""
        stored = self._stored(group.nodes)
        if len(stored) != 1 or stored[0].is_stored or len(stored[0].users) > len(group.nodes) + 1:
            return False  # a tensor may have as many readers as the graph has nodes
        inside = set(group.nodes)
        return [user for user in stored[0].users if user not in inside] == [node]

    # ---- results that no buffer can hold

    def _can_duplicate_for(self, tensor: Tensor, reader: Node) -> bool:
        """Returns whether a reader can have its own calculation of the tensor. A call with inner maps or `onto` cannot."""
        return not tensor.is_stored and not (isinstance(reader, Call) and (reader.inner or reader.onto))

    def _maps_for(self, tensor: Tensor, group: FusedGroup) -> FusedGroup:
        """Returns the maps of a group that `tensor` depends on."""
        needed = {tensor}
        nodes = []
        for node in reversed(group.nodes):
            if not needed.isdisjoint(node.outputs):
                nodes.append(node)
                needed.update(view.tensor for view in node.reads)
        return FusedGroup(nodes[::-1], first=group.first, last=group.last)

    def _copy(self, group: FusedGroup, tensor: Tensor, reader: Node) -> FusedGroup:
        """Returns a copy, for `reader` only, of the maps that calculate `tensor`. Originals without other readers are removed."""
        made: dict[Tensor, Tensor] = {}
        copied = FusedGroup([], first=group.first, last=group.last)
        for node in group.nodes:
            assert isinstance(node, Map)
            output = made[node.output] = replace(node.output, users=[])
            output.producer = copy = replace(node, output=output, operands=_redirected(node.operands, made))
            self.position[copy] = self.position[node]
            self.group[copy] = copied
            copied.nodes.append(copy)
            for operand in dict.fromkeys(view.tensor for view in copy.reads):
                operand.users.append(copy)
        reader.operands.update(_redirected(reader.operands, {tensor: made[tensor]}))
        made[tensor].users.append(reader)
        self._remove_reader(reader, tensor)
        return copied

    def _remove_reader(self, reader: Node, tensor: Tensor) -> None:
        """Removes a node from the readers of a tensor. A map without readers is removed from its group."""
        tensor.users.remove(reader)
        maker = tensor.producer
        if isinstance(maker, Map) and maker in self.group and not tensor.users and not tensor.is_stored:
            self.group.pop(maker).nodes.remove(maker)
            for operand in dict.fromkeys(view.tensor for view in maker.reads):
                self._remove_reader(maker, operand)

    # ---- groups

    def _stored(self, nodes: list[Node]) -> list[Tensor]:
        inside = set(nodes)
        loop_carried = {t for n in nodes if isinstance(n, Call) for t in n.stays}
        return [
            t
            for n in nodes
            for t in n.outputs
            if t.is_stored or t in loop_carried or any(u not in inside for u in t.users)
        ]

    def _merge(self, into: FusedGroup, other: FusedGroup) -> None:
        into.nodes = sorted([*into.nodes, *other.nodes], key=self.position.__getitem__)
        into.anchor = into.anchor or other.anchor
        into.inlined |= other.inlined
        into.first, into.last = min(into.first, other.first), max(into.last, other.last)
        for node in other.nodes:
            self.group[node] = into

    def _producer_groups(self, group: FusedGroup) -> list[FusedGroup]:
        return list(dict.fromkeys(self.group[t.producer] for t in group.needs() if t.producer in self.group))

    def _cycle(self, a: FusedGroup, b: FusedGroup) -> bool:
        """Returns whether a third group must run between the two."""
        return self._reaches(a, b) or self._reaches(b, a)

    def _reaches(self, late: FusedGroup, early: FusedGroup) -> bool:
        """Returns whether `late` needs a third group that needs `early`. Returns True if the groups are too far apart to
        determine this.

        A kernel for such distant groups would also extend the lifetime of the operands of `early`.
        """
        pending = [g for g in self._producer_groups(late) if g is not early and g is not late]
        seen = set(pending)
        visited = 0
        while pending:
            group = pending.pop()
            if group.last < early.first:
                continue
            visited += 1
            if visited > MOST_BETWEEN:
                return True
            for g in self._producer_groups(group):
                if g is early:
                    return True
                if g not in seen and g is not late:
                    seen.add(g)
                    pending.append(g)
        return False

    def _ordered(self) -> list[FusedGroup]:
        """Returns the groups in an order that respects data flow and stays close to the graph's order."""
        out: list[FusedGroup] = []
        done: set[FusedGroup] = set()

        def visit(group: FusedGroup) -> None:
            stack = [(group, iter(self._producer_groups(group)))]
            done.add(group)
            while stack:
                current, before = stack[-1]
                following = next((g for g in before if g not in done), None)
                if following is None:
                    out.append(current)
                    stack.pop()
                else:
                    done.add(following)
                    stack.append((following, iter(self._producer_groups(following))))

        for node in self.graph.nodes:
            if node in self.group and self.group[node] not in done:
                visit(self.group[node])
        for group in out:
            group.stores = self._stored(group.nodes)
        return [group for group in out if not isinstance(group.nodes[0], Join)]


def _redirected(operands: dict[str, Read], made: dict[Tensor, Tensor]) -> dict[str, Read]:
    """Returns the operands with each tensor replaced by its copy in `made`."""
    return {
        name: replace(read, view=replace(read.view, tensor=made.get(read.view.tensor, read.view.tensor)))
        for name, read in operands.items()
    }


def fuse(graph: LoweredGraph, target: Target) -> list[FusedGroup]:
    """Returns the groups in running order. Exactly one group stores each tensor that another group or the caller reads."""
    return _Fusion(graph, target).run()
