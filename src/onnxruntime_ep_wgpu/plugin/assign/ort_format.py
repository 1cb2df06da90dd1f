"""Models between whose providers ONNX Runtime copies nothing: those in its own format (`.ort`).

In: which nodes of other providers share values with ours, and how many kernels ONNX Runtime made for this session to copy
them. Out: an error for a session that needs copies and has none, when it is complete or, where ONNX Runtime does not report
that, before its first run. Without it such a node would follow a device address, which ends the process.
Invariants: the kernels are this session's, whatever other sessions are made meanwhile; a node is known by the decision that
it is part of and by what it makes, not by its name, which a node of another graph may have too; what a provider under our
other name took later is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ...errors import UnsupportedError
from .enclosing import host_inputs
from .report import CPU
from .shown import ShownGraph, ShownNode


class CopyGuard:
    """The check of one session of the provider `name`. `copies` counts the kernels that copy the session's tensors; `siblings`
    are the guards of all providers of ours in the session."""

    def __init__(self, name: str, copies: Callable[[], int], siblings: Callable[[], Iterable[CopyGuard]]) -> None:
        self._name, self._copies, self._siblings = name, copies, siblings
        # Nodes of other providers that read what nodes of ours read or make, and the values that ours make, by graph, as the
        # last decisions say.
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
        """Notes a decision: the places of nodes in our groups, per node the provider that had it before, and the places
        of kernels of ours, whose results lie here and which read some inputs on the host.

        ONNX Runtime asks about all graphs of a model, bodies before what they are in and the main graph last, and does so
        again when it has changed them: then the earlier answers are about nodes that may be gone.
        """
        if self._whole:
            self._readers.clear()
            self._made.clear()
        # Between providers of accelerators copying is their own business.
        accelerated = frozenset(place for place, provider in enumerate(assigned) if provider not in ("", CPU))
        others = readers(graph, accelerated.union(*groups), frozenset(kernels))
        self._readers.append(
            [(f"{it.op_type} {it.name!r}", frozenset(value.name for value in it.outputs)) for it in others]
        )
        nodes = list(graph)  # a graph would be walked for each place
        self._made.append(frozenset(it.name for group in groups for k in group for it in nodes[k].outputs))
        self._whole = is_main

    @property
    def needed(self) -> bool:
        """Whether a node of another provider shares a value with ours, by the last decisions."""
        return any(self._readers)

    def check_copies(self) -> None:
        """Raises UnsupportedError when other providers' nodes would read device memory as if it were their own."""
        # Kernels are made with the session: ONNX Runtime copies wherever that is needed, or nowhere.
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
    """The nodes outside the places `ours` that read what a node inside makes or an input of the graph that one reads.

    What the bodies of a node take from outside counts for the nodes in the bodies, which are decided on by themselves: ONNX
    Runtime hands it to a body as it hands inputs to a model, copied to where it is read.
    """
    inputs = {value.name for value in graph.inputs}
    shared: set[str] = set()
    others: list[tuple[ShownNode, set[str]]] = []
    for place, node in enumerate(graph):
        # Of the inputs of a kernel the first ones are read on the host.
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
