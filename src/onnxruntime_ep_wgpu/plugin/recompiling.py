"""The graph of a stored Program, kept so that it can be compiled again for the sizes of a run.

In: a graph from ONNX Runtime, and the sources of its constants. Out: the results of `specialise`. Invariants: the compiler is
loaded only when a run needs it, and after `keep` nothing here points into memory of ONNX Runtime.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol

from ..program.program import Program
from ..program.ties import Ties
from ..runtime.weight_sources import InMemory, WeightSource, WeightSources
from .assign.shown import STRING, ShownGraph
from .store.programs import array_of

COPIED_BYTES = 4096  # smaller constants are copied: finding them in the model's file costs more


class Recompiler(Protocol):
    """Compiles a group's graph again. `Specialiser` has the documentation of the members."""

    @property
    def constants(self) -> Collection[str]: ...

    @property
    def may_relax(self) -> bool: ...

    @property
    def shapes(self) -> Sequence[Any]: ...

    def keep(self, sources: WeightSources) -> None: ...

    def relaxed(self, shapes: Sequence[tuple[int, ...]]) -> Recompiler | None: ...

    def sizes_of(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]: ...

    def __call__(self, values: Mapping[str, int] | None = None) -> Program: ...


Make = Callable[[ShownGraph, Mapping[str, WeightSource]], Recompiler]
"""Makes a `Specialiser` for a graph; its constants are read from these sources."""


class LazyRecompiler:
    """Makes a `Specialiser` of the graph on first use, and forwards to it. Thread safe."""

    def __init__(self, graph: ShownGraph, ties: Ties, declared: Collection[str], make: Make) -> None:
        """`declared`: the inputs of the model; see `Specialiser`."""
        self._graph, self._ties, self._declared, self._make = graph, ties, declared, make
        self._sources: dict[str, WeightSource] = {}
        self._lock = threading.Lock()
        self.constants = frozenset(graph.initializers)

    @property
    def may_relax(self) -> bool:
        return any(it.name not in self._declared for it in self._graph.inputs)

    def keep(self, sources: WeightSources) -> None:
        """Releases the memory of the constants. `sources` has the Program's weights."""
        constants = {name: it.constant for name, it in self._graph.initializers.items() if it.constant is not None}
        arrays = {name: array_of(it) for name, it in constants.items() if it.code != STRING and name not in self._ties}
        for name, array in arrays.items():
            if name not in sources.by_name and array.nbytes <= COPIED_BYTES:
                self._sources[name] = InMemory(array.copy())
            else:
                self._sources[name] = sources.of(name, array)
        for name, tie in self._ties.items():  # the elements of a tied constant may not be in memory
            if name in constants:
                self._sources[name] = sources.of(name, replace(tie, data=arrays[tie.of]))
        for it in constants.values():
            it.raw = it.raw[:0]
        for node in self._graph:
            node.handle = None

    @property
    def shapes(self) -> Sequence[Any]:
        return self._made().shapes

    def relaxed(self, shapes: Sequence[tuple[int, ...]]) -> Recompiler | None:
        return self._made().relaxed(shapes)

    def sizes_of(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        return self._made().sizes_of(shapes)

    def __call__(self, values: Mapping[str, int] | None = None) -> Program:
        return self._made()(values)

    def _made(self) -> Recompiler:
        with self._lock:
            return self._specialiser

    @cached_property
    def _specialiser(self) -> Recompiler:
        return self._make(self._graph, self._sources)
