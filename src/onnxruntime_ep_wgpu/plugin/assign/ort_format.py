"""Checks models in ONNX Runtime's own format (`.ort`), for which ONNX Runtime does not copy tensors between providers.

In: nodes of other providers that share values with ours, and the number of copy kernels that ONNX Runtime made for this
session. Out: an error for a session that needs copies and has none. It comes when the session is complete or, if ONNX Runtime
does not report that, before its first run. Without the error, such a node would dereference a device address, which ends the
process.
Invariants: only kernels of this session count, even if other sessions are made at the same time. A node is identified by its
decision and its outputs. Its name does not suffice, because a node of another graph may have the same name. Nodes that the
provider with our other name claims later are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...errors import UnsupportedError
from .enclosing import host_inputs
from .report import CPU
from .shown import ShownGraph, ShownNode


class CopyGuard:
    """The check of one session of the provider `name`.

    `copies`: returns the number of kernels that copy the session's tensors. `siblings`: returns the guards of all our providers
    in the session.
    """

    def __init__(self, name: str, copies: Callable[[], int], siblings: Callable[[], Iterable[CopyGuard]]) -> None:
        self._name, self._copies, self._siblings = name, copies, siblings
        # Per graph, by the last decisions: nodes of other providers that share values with ours, and the outputs of ours.
        self._readers: list[list[tuple[str, frozenset[str]]]] = []
        self._made: list[frozenset[str]] = []
        self._whole = False

    def decided(
        self,
        is_main: bool,
        graph: ShownGraph,
        groups: Sequence[Sequence[int]],
        assigned: Sequence[str],
        kernels: Sequence[int] = (),
    ) -> None:
        """Records a decision.

        `groups`: the positions of nodes in our groups. `assigned`: per node, the provider that held it before. `kernels`: the
        positions of our kernels, which have results on the device and read some inputs on the host.

        ONNX Runtime presents all graphs of a model, bodies before their parents and the main graph last. It does so again after
        it changed them. The earlier decisions are then outdated.
        """
        if self._whole:
            self._readers.clear()
            self._made.clear()
        # Providers of other accelerators copy by themselves.
        accelerated = frozenset(place for place, provider in enumerate(assigned) if provider not in ("", CPU))
        others = readers(graph, accelerated.union(*groups), frozenset(kernels))
        self._readers.append(
            [(f"{it.op_type} {it.name!r}", frozenset(value.name for value in it.outputs)) for it in others]
        )
        nodes = list(graph)  # an index into the graph would iterate over it
        self._made.append(frozenset(it.name for group in groups for k in group for it in nodes[k].outputs))
        self._whole = is_main

    @property
    def needed(self) -> bool:
        """Whether a node of another provider shares a value with our nodes, by the last decisions."""
        return any(self._readers)

    def check_copies(self) -> None:
        """Raises UnsupportedError if nodes of other providers would read device memory as host memory."""
        # ONNX Runtime makes copy kernels with the session: wherever they are needed, or none.
        if self._copies():
            return
        siblings = list(self._siblings())
        nodes = [
            label
            for place, them in enumerate(self._readers)
            for label, outputs in them
            if not any(place < len(it._made) and outputs <= it._made[place] for it in siblings)
        ]
        if nodes:
            raise UnsupportedError(
                f"{', '.join(nodes[:4])}{'...' if len(nodes) > 4 else ''} cannot run on {self._name}, and ONNX Runtime "
                "does not copy tensors between providers for a model in its own format: use the .onnx file instead"
            )


def readers(graph: ShownGraph, ours: frozenset[int], kernels: frozenset[int] = frozenset()) -> tuple[ShownNode, ...]:
    """Returns the nodes outside the positions `ours` that share values with nodes inside.

    A shared value is an output of a node inside, or an input of the graph that a node inside reads. Outer values that a body
    reads do not count here. ONNX Runtime passes them to the body like inputs of a model, with copies.
    """
    inputs = {value.name for value in graph.inputs}
    shared: set[str] = set()
    others: list[tuple[ShownNode, set[str]]] = []
    for place, node in enumerate(graph):
        # A kernel reads its leading inputs on the host.
        first = host_inputs(node) if place in kernels else 0 if place in ours else len(node.inputs)
        on_host, here = (
            {value.name for value in part if value is not None} for part in (node.inputs[:first], node.inputs[first:])
        )
        if place in ours | kernels:
            shared.update(value.name for value in node.outputs)
            shared.update(here & inputs)
        if first:
            others.append((node, on_host))
    return tuple(node for node, read in others if not shared.isdisjoint(read))
