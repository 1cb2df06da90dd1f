"""A program that outlives its device.

In: a Program, a function that gives the live device (a new one after a loss), and where weights can be read again. Out: an
`Executable` on the live device. Invariants: a loss costs one rebuild, however many threads run into it; a run stays on
the executable that it began with, so nothing of one device meets another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from ..device import Device
from ..program.program import Program
from ..program.weights import weight_array, weight_names
from .executable import Executable
from .settings import RunSettings
from .weights import SourceOf, WeightSource, in_memory


class RecoverableExecutable:
    """A Program on the device that `current()` gives. Many threads may use it at once."""

    def __init__(
        self,
        program: Program,
        current: Callable[[], Device],
        settings: RunSettings | None = None,
        source_of: SourceOf = in_memory,
    ) -> None:
        self._current, self._settings = current, settings
        self._lock = threading.Lock()
        self._live = Executable(program, current(), settings)
        # After the upload: a program that does not fit leaves nothing behind.
        self._names = weight_names(program)
        self.sources: list[WeightSource] = [
            source_of(name, weight_array(weight)) for weight, name in zip(program.weights, self._names, strict=True)
        ]
        self.rebuilt = 0

    def named_sources(self) -> dict[str, WeightSource]:
        """The weights that are the model's own, by their names."""
        return {name: source for name, source in zip(self._names, self.sources, strict=True) if name}

    def executable(self) -> Executable:
        """The program on a device that is not known to be lost.

        After a loss it is built again: plans, buffers and pipelines are new, weights are read from their sources.
        Raises DeviceError when there is no device, ModelChangedError when a weight is not where it was.
        """
        live = self._live
        if not live.device.lost:
            return live
        with self._lock:
            if self._live.device.lost:
                weights = tuple(source.read() for source in self.sources)
                program = replace(self._live.program, weights=weights)
                self._live = Executable(program, self._current(), self._settings)
                self.rebuilt += 1
            return self._live
