"""Models between whose providers ONNX Runtime copies nothing: those in its own format (`.ort`).

In: which nodes of other providers share values with ours, and how many copying kernels ONNX Runtime has made. Out: an error
before the first run of a session that needs copies and has none. Without it such a node would follow a device address,
which ends the process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from ...errors import UnsupportedError
from .. import watch
from .claim import readers
from .report import CPU


class CopyGuard:
    """The check of one session of the provider `name`.

    `copies` counts the kernels made so far to copy tensors. `session` is a number that its providers have in common.
    """

    def __init__(self, name: str, session: int, copies: Callable[[], int]) -> None:
        self._name, self._session, self._copies = name, session, copies
        self._before = 0
        # Per graph, by name: nodes of other providers that read what nodes of ours read or make, as they are called.
        self._readers: dict[tuple[str, str], dict[str, str]] = {}

    def decided(self, within: str, graph: ir.Graph, groups: Sequence[Sequence[int]], assigned: Sequence[str]) -> None:
        """Notes a decision: the places of nodes in our groups, and per node the provider that had it before."""
        # Between providers of accelerators copying is their own business.
        accelerated = frozenset(place for place, provider in enumerate(assigned) if provider not in ("", CPU))
        others = readers(graph, accelerated.union(*groups))
        self._readers[within, graph.name or ""] = {it.name or "": f"{it.op_type} {it.name!r}" for it in others}

    def compiled(self) -> None:
        """A group is compiled; ONNX Runtime makes its copying kernels after that."""
        self._before = self._copies()

    def check_copies(self) -> None:
        """Raises UnsupportedError when other providers' nodes would read device memory as if it were their own."""
        if self._copies() != self._before:
            return
        # A session may have several providers of ours; a node of any other session is none of this one's.
        ours = [it.state for it in watch.live() if it.state is not None and it.logger.owner == self._session]
        share = {it.name for state in ours for it in state.assignment.placements() if it.partition is not None}
        nodes = [label for them in self._readers.values() for name, label in them.items() if name not in share]
        if nodes:
            raise UnsupportedError(
                f"{', '.join(nodes[:4])}{'...' if len(nodes) > 4 else ''} cannot run on {self._name}, and ONNX Runtime "
                "does not copy tensors between providers for a model in its own format: use the .onnx file instead"
            )
