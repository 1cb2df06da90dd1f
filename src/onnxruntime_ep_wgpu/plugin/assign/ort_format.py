"""Models between whose providers ONNX Runtime copies nothing: those in its own format (`.ort`).

In: which nodes of other providers share values with ours, and how many kernels ONNX Runtime made for this session to copy
them. Out: an error before the first run of a session that needs copies and has none. Without it such a node would follow a
device address, which ends the process.
Invariants: the kernels are this session's, whatever other sessions are made meanwhile; a node is known by the decision that
it is part of and not by its name, which a node of another graph may have too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from ...errors import UnsupportedError
from .claim import readers
from .report import CPU


class CopyGuard:
    """The check of one session of the provider `name`. `copies` counts the kernels that copy the session's tensors."""

    def __init__(self, name: str, copies: Callable[[], int]) -> None:
        self._name, self._copies = name, copies
        # Nodes of other providers that read what nodes of ours read or make, by graph, as the last decisions say.
        self._readers: list[list[str]] = []
        self._whole = False

    def decided(self, is_main: bool, graph: ir.Graph, groups: Sequence[Sequence[int]], assigned: Sequence[str]) -> None:
        """Notes a decision: the places of nodes in our groups, and per node the provider that had it before.

        ONNX Runtime asks about all graphs of a model, bodies before what they are in and the main graph last, and does so
        again when it has changed them: then the earlier answers are about nodes that may be gone.
        """
        if self._whole:
            self._readers.clear()
        # Between providers of accelerators copying is their own business.
        accelerated = frozenset(place for place, provider in enumerate(assigned) if provider not in ("", CPU))
        others = readers(graph, accelerated.union(*groups))
        self._readers.append([f"{it.op_type} {it.name!r}" for it in others])
        self._whole = is_main

    def check_copies(self) -> None:
        """Raises UnsupportedError when other providers' nodes would read device memory as if it were their own."""
        # Kernels are made with the session: ONNX Runtime copies wherever that is needed, or nowhere.
        nodes = [] if self._copies() else [label for them in self._readers for label in them]
        if nodes:
            raise UnsupportedError(
                f"{', '.join(nodes[:4])}{'...' if len(nodes) > 4 else ''} cannot run on {self._name}, and ONNX Runtime "
                "does not copy tensors between providers for a model in its own format: use the .onnx file instead"
            )
