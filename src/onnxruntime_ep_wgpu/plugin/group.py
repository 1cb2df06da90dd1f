"""A compiled group of nodes as a session runs it: for any sizes, and on the next device when one was lost.

In: the group's Program and its graph, a function that gives the live device, and where weights can be read again. Out: a `Run` of
what fits the inputs. Invariants: who compiles decides here: the runtime says that sizes are beyond a limit, and which they are, or
that extents are not those of the Program; it asks for nothing. A loss costs one rebuild, however many threads run into it, and a
run stays on the device that it began with.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ..device import Device
from ..errors import ExtentError, LimitError
from ..program.program import Program
from ..program.weights import weight_array, weight_names
from ..runtime.executable import Executable, Run
from ..runtime.inputs import DeviceTensor
from ..runtime.plans import Key
from ..runtime.settings import RunSettings
from ..runtime.weights import SourceOf, WeightSource, in_memory
from .specialise import Specialiser

MAX_SPECIALISED = 8  # sets of input shapes beyond a limit whose programs are kept


class AnySize:
    """A group on one device: its executable, and beside it the same graph compiled for sizes that are beyond a limit for its
    Program. Thread safe.

    A run that shows that an inferred shape was wrong puts an executable in its place that does not rely on it.
    """

    def __init__(
        self,
        executable: Executable,
        specialise: Specialiser | None,
        relaxed: Callable[[Program, Specialiser], None] = lambda _program, _specialise: None,
    ) -> None:
        """Without `specialise` there are no others. `relaxed` is told what the graph is compiled to from now on."""
        self.executable, self._specialise, self._tell = executable, specialise, relaxed
        self.specialised: OrderedDict[Key, Executable] = OrderedDict()
        self._lock, self._compiling = threading.Lock(), threading.Lock()

    @property
    def device(self) -> Device:
        return self.executable.device

    @property
    def valued_inputs(self) -> frozenset[int]:
        """The inputs whose values set shapes: to be given with their `value`."""
        return self.executable.valued_inputs

    def prepare(self, inputs: Sequence[DeviceTensor]) -> Run:
        """A run with these inputs. Raises InputError; LimitError when nothing helps."""
        executable, specialise = self.executable, self._specialise
        try:
            if self.specialised:
                known = self._known(executable.key(inputs))
                if known is not None:
                    return known.prepare(inputs)
            return executable.prepare(inputs)
        except LimitError as error:
            if not error.sizes or specialise is None:
                raise
            sizes = error.sizes
        except ExtentError as error:
            try:
                relaxed = self._relax(executable, [tensor.shape for tensor in inputs])
            except LimitError as why:  # without what was inferred it does not compile
                raise error from why
            if not relaxed:
                raise
            return self.prepare(inputs)
        return self._compiled(specialise, executable.key(inputs), sizes).prepare(inputs)

    def _relax(self, executable: Executable, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Runs inputs of these shapes from now on. Whether it does: not when no inferred shape is to blame that they do not fit."""
        with self._compiling:
            if self.executable is not executable:
                return True  # another thread has, and this one tries again
            specialise = None if self._specialise is None else self._specialise.relaxed(shapes)
            if specialise is None:
                return False
            program = specialise()
            made = executable.compiled_for(program, specialise.constants)
            self._tell(program, specialise)
            with self._lock:
                self.executable, self._specialise, gone = made, specialise, [*self.specialised.values(), executable]
                self.specialised.clear()
            for it in gone:
                it.leave()
            return True

    def _known(self, key: Key) -> Executable | None:
        with self._lock:
            known = self.specialised.get(key)
            if known is not None:
                self.specialised.move_to_end(key)
            return known

    def _compiled(self, specialise: Specialiser, key: Key, sizes: Mapping[str, int]) -> Executable:
        with self._compiling:
            known = self._known(key)  # another thread may have waited for the same
            if known is not None:
                return known
            made = self.executable.compiled_for(specialise(sizes), specialise.constants)
            with self._lock:
                self.specialised[key] = made
                if len(self.specialised) > MAX_SPECIALISED:
                    self.specialised.popitem(last=False)[1].leave()
            return made


class CompiledGroup:
    """A group's Program on the device that `current()` gives, and its graph for sizes beyond a limit. Thread safe.

    `rebuilt` counts the devices that were lost.
    """

    def __init__(
        self,
        program: Program,
        current: Callable[[], Device],
        settings: RunSettings | None = None,
        source_of: SourceOf = in_memory,
        specialise: Specialiser | None = None,
    ) -> None:
        self._current, self._settings, self._source_of = current, settings, source_of
        self._lock = threading.Lock()
        if specialise is not None and not (program.symbols or specialise.may_relax):
            specialise = None
        executable = Executable(program, current(), settings)
        # After the upload: a program that does not fit leaves nothing behind.
        self.sources: dict[str, WeightSource] = {}
        self._compiled_to(program, specialise)
        if specialise is not None:
            specialise.keep(self.sources, source_of)
        self._live = AnySize(executable, specialise, self._compiled_to)
        self.rebuilt = 0

    def _compiled_to(self, program: Program, specialise: Specialiser | None) -> None:
        """What the graph is compiled to from now on, also on the next device. Weights that it had before are where they were."""
        weights = [(name, weight) for name, weight in zip(weight_names(program), program.weights, strict=True)]
        known = self.sources
        sources = [known.get(name) or self._source_of(name, weight_array(it)) for name, it in weights]
        self.sources = {name: source for (name, _), source in zip(weights, sources, strict=True) if name}
        self._compiled = replace(program, weights=()), sources, specialise

    def executable(self) -> AnySize:
        """What runs on a device that is not known to be lost; another object after a loss: plans, buffers and pipelines are new
        then, and weights are read from their sources.

        Raises DeviceError when there is no device, ModelChangedError when a weight is not where it was.
        """
        live = self._live
        if not live.device.lost:
            return live
        with self._lock:
            if self._live.device.lost:
                program, sources, specialise = self._compiled
                program = replace(program, weights=tuple(source.read() for source in sources))
                self._live = AnySize(
                    Executable(program, self._current(), self._settings), specialise, self._compiled_to
                )
                self.rebuilt += 1
            return self._live
