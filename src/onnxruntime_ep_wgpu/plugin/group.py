"""A compiled group of nodes in a session: for any sizes, and on the next device after a loss.

In: the group's Program and its graph, a function that returns the live device, and the sources of weights. Out: a `Run` for
given inputs. Invariants: only this module decides what is compiled. The runtime reports the sizes that are beyond a limit, or
extents that differ from the Program's. A loss costs one rebuild for any number of threads, and a run stays on the device where
it began.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace

from ..device import Buffer, Device
from ..errors import ExtentError, InputError, LimitError
from ..program.program import Program
from ..program.weights import weight_names
from ..records import dataclass
from ..runtime.executable import Executable, Run
from ..runtime.inputs import DeviceTensor
from ..runtime.making import Making
from ..runtime.pipelines import Pipelines
from ..runtime.progress import DEVICE, WEIGHTS
from ..runtime.runs.key import Key
from ..runtime.settings import RunSettings
from ..runtime.weight_sources import SourceOf, WeightSource, WeightSources, in_memory
from .recompiling import Recompiler

MAX_SPECIALISED = 8  # kept programs for sizes beyond a limit, or for elements that kernels are compiled for
MAX_ROUTES = 256  # sets of input shapes and elements with a known program


GivenInputs = Callable[[frozenset[int]], Sequence[DeviceTensor]]
"""Returns the inputs of a run for an executable. The argument has the numbers of the inputs that need a `value`."""


Sizes = frozenset[tuple[str, int]]
"""Values of symbols for which a graph is compiled."""


@dataclass(frozen=True)
class _Compiled:
    """The compiled forms of a group's graph. Replaced as one object, so that a reader gets parts that belong together."""

    executable: Executable
    specialise: Recompiler | None
    specialised: OrderedDict[Sizes, Executable] = field(default_factory=OrderedDict)
    routes: OrderedDict[Key, Sizes] = field(default_factory=OrderedDict)  # sizes for inputs that another one refused


class GroupOnDevice:
    """A group on one device: its executable, and others of the same graph for sizes beyond a limit of its Program. Thread safe.

    If a run shows that extents of one name differ, an executable that does not rely on the name replaces the current one. It
    must accept the run: inputs that do not fit together change nothing.
    """

    def __init__(
        self,
        executable: Executable,
        specialise: Recompiler | None,
        relaxed: Callable[[Program, Recompiler | None], None] = lambda _program, _specialise: None,
    ) -> None:
        """Without `specialise` there are no other executables. `relaxed` receives each Program that replaces the first."""
        self._now, self._on_relaxed = _Compiled(executable, specialise), relaxed
        self._candidate: tuple[_Compiled, Program] | None = None  # relies on fewer names, and has had no run yet
        self._lock, self._compiling = threading.Lock(), threading.Lock()

    @property
    def device(self) -> Device:
        return self._now.executable.device

    @property
    def executable(self) -> Executable:
        """The executable for most sizes. A `Run` has the one for its inputs."""
        return self._now.executable

    @property
    def specialised(self) -> Mapping[Sizes, Executable]:
        """The executables for sizes beyond a limit, and for elements that kernels are compiled for."""
        return self._now.specialised

    def prepare(self, inputs: GivenInputs) -> Run:
        """Returns a run with these inputs. `inputs` is called again for another executable, which may need more values.

        Raises InputError; LimitError if no Program stays within the limits.
        """
        now = self._now
        tensors = inputs(now.executable.valued_inputs)
        try:
            sizes, executable = self._executable_for(now, tensors) if now.routes else ({}, now.executable)
            while True:
                try:
                    return executable.prepare(_with_values(now, executable, inputs, tensors))
                except LimitError as error:
                    # A Program that was compiled for elements may still be beyond a limit for sizes.
                    if now.specialise is None or error.sizes.items() <= sizes.items():
                        raise
                    sizes = {**sizes, **error.sizes}
                key = now.executable.key(tensors)
                try:
                    made = self._compiled(now, now.specialise, key, sizes)
                except LimitError as refusal:
                    # Perhaps only assumptions about the other sizes are wrong. With all sizes given, there are none.
                    every = {**now.specialise.sizes_of([it.shape for it in tensors]), **sizes}
                    if every == sizes:
                        raise
                    sizes = every
                    try:
                        made = self._compiled(now, now.specialise, key, sizes)
                    except LimitError:
                        raise refusal from None
                if made is None:
                    return self.prepare(inputs)
                executable = made
        except ExtentError as error:
            return self._with_other_extents(now, inputs, tensors, error)

    def _with_other_extents(
        self, now: _Compiled, inputs: GivenInputs, tensors: Sequence[DeviceTensor], error: ExtentError
    ) -> Run:
        """Returns a run with other extents than the Program's, as `error` states. Raises `error` if no name is the cause."""
        shapes = [tensor.shape for tensor in tensors]
        with self._compiling:
            relaxed = None if now.specialise is None or self._now is not now else now.specialise.relaxed(shapes)
            if relaxed is None and self._now is now:
                raise error
            made = None
            if relaxed is not None:
                with suppress(LimitError):
                    made = self._relaxed(now, relaxed)
        if relaxed is None:
            return self.prepare(inputs)  # another thread has replaced `now`
        if made is None:  # does not compile without these names; may compile for certain sizes
            return self._exact(now, relaxed, inputs, tensors, error)
        executable = made[0].executable
        try:
            run = executable.prepare(inputs(executable.valued_inputs))
        except InputError as refusal:
            raise InputError(f"{refusal}; {error}") from refusal
        except LimitError:
            self._replace(now, made)
            return self.prepare(inputs)
        self._replace(now, made)
        return run

    def _relaxed(self, now: _Compiled, specialise: Recompiler) -> tuple[_Compiled, Program]:
        """Compiles the graph without names that a run contradicts. Raises LimitError. Requires the lock `_compiling`."""
        if self._candidate is not None:
            known, _ = self._candidate
            if known.specialise is not None and known.specialise.shapes == specialise.shapes:
                return self._candidate
            self._candidate = None
            known.executable.leave()
        program = specialise()
        made = now.executable.compiled_for(program, specialise.constants)
        self._candidate = _Compiled(made, specialise), program
        return self._candidate

    def _exact(
        self,
        now: _Compiled,
        relaxed: Recompiler,
        inputs: GivenInputs,
        tensors: Sequence[DeviceTensor],
        error: ExtentError,
    ) -> Run:
        key, sizes = now.executable.key(tensors), relaxed.sizes_of([tensor.shape for tensor in tensors])
        try:
            made = self._compiled(now, relaxed, key, sizes)
        except LimitError as why:
            raise error from why
        if made is None:
            return self.prepare(inputs)
        return made.prepare(_with_values(now, made, inputs, tensors))

    def _replace(self, now: _Compiled, made: tuple[_Compiled, Program]) -> None:
        """Uses `made` for runs from now on, unless another thread has replaced `now`."""
        with self._compiling:
            if self._now is not now or self._candidate is not made:
                return
            compiled, program = made
            self._on_relaxed(program, compiled.specialise)
            with self._lock:
                self._now, self._candidate = compiled, None
            for it in (*now.specialised.values(), now.executable):
                it.leave()

    def _executable_for(self, now: _Compiled, tensors: Sequence[DeviceTensor]) -> tuple[dict[str, int], Executable]:
        """Returns the executable that ran such inputs before, with its sizes; otherwise the first one."""
        key = now.executable.key(tensors)
        with self._lock:
            sizes = now.routes.get(key)
            known = None if sizes is None else now.specialised.get(sizes)
            if sizes is None or known is None:
                return {}, now.executable
            now.specialised.move_to_end(sizes)
            now.routes.move_to_end(key)
            return dict(sizes), known

    def _compiled(
        self, now: _Compiled, specialise: Recompiler, key: Key, sizes: Mapping[str, int]
    ) -> Executable | None:
        """Returns the executable for these sizes; None if another thread has replaced `now`."""
        with self._compiling:
            if self._now is not now:
                return None
            of = frozenset(sizes.items())
            made = now.specialised.get(of)  # compiled for other inputs, or by another thread during the wait
            if made is None:
                made = now.executable.compiled_for(specialise(sizes), specialise.constants)
            with self._lock:
                now.specialised[of] = made
                now.specialised.move_to_end(of)
                now.routes[key] = of
                if len(now.specialised) > MAX_SPECIALISED:
                    now.specialised.popitem(last=False)[1].leave()
                if len(now.routes) > MAX_ROUTES:
                    now.routes.popitem(last=False)
            return made


def _with_values(
    now: _Compiled, executable: Executable, inputs: GivenInputs, tensors: Sequence[DeviceTensor]
) -> Sequence[DeviceTensor]:
    """Returns the inputs for an executable. `tensors` have the values that `now` reads.

    These values select the executable, so a kept run depends on them too.
    """
    constants_read = now.executable.valued_inputs
    return tensors if executable.valued_inputs <= constants_read else inputs(constants_read | executable.valued_inputs)


class _ForNextDevice:
    """The compiled graph for the next device: without weights, but with their sources.

    It does not refer to the group. So the group ends, with its memory on the device, when nothing else refers to it.
    """

    def __init__(self, sources: WeightSources) -> None:
        self.sources = sources
        self._compiled: tuple[Program, list[WeightSource], Recompiler | None] | None = None

    def keep(self, program: Program, specialise: Recompiler | None) -> None:
        """Stores what the graph is compiled to from now on. Weights that it had before keep their sources."""
        sources = list(map(self.sources.of, weight_names(program), program.weights))
        self._compiled = replace(program, weights=()), sources, specialise

    def compiled(self) -> tuple[Program, Recompiler | None]:
        """Returns the Program, with weights that are read now. Raises ModelChangedError."""
        assert self._compiled is not None
        program, sources, specialise = self._compiled
        return replace(program, weights=tuple(source.read() for source in sources)), specialise


class CompiledGroup:
    """A group's Program on the device that `current()` returns, and its graph for sizes beyond a limit. Thread safe.

    `rebuilt`: how often the group was built again after the loss of a device.
    """

    def __init__(
        self,
        program: Program,
        current: Callable[[], Device],
        settings: RunSettings | None = None,
        source_of: SourceOf = in_memory,
        specialise: Recompiler | None = None,
        shared: Callable[[Device], Mapping[str, Buffer]] = lambda _device: {},
        making: Making | None = None,
    ) -> None:
        """`shared` returns weights, by name, that a device has already.

        `making` receives the progress. Its owner waits for the pipelines that are still in compilation afterwards.
        """
        self._current, self._settings, self._shared = current, settings or RunSettings(), shared
        self._making = making = making or Making()
        self._lock = threading.Lock()
        if specialise is not None and not (program.symbols or specialise.may_relax):
            specialise = None
        with making.part(DEVICE):
            device = current()
        pipelines = self._pipelines(program, device)
        making.begin(pipelines)
        with making.part(WEIGHTS):
            executable = Executable(
                program, device, self._settings, shared(device), pipelines=pipelines, uploaded=making.step
            )
        # After the upload, so that a program that does not fit leaves nothing behind.
        self.sources = WeightSources(source_of)
        self._next = _ForNextDevice(self.sources)
        self._next.keep(program, specialise)
        if specialise is not None:
            specialise.keep(self.sources)
        self._live = GroupOnDevice(executable, specialise, self._next.keep)
        self.rebuilt = 0

    def executable_on(self, device: Device) -> Executable | None:
        """Returns the executable on a device; None if the group is not on it."""
        live = self._live
        return live.executable if live.device is device else None

    def _pipelines(self, program: Program, device: Device) -> Pipelines:
        return Pipelines(program, device, self._settings, self._making.in_a_run)

    def on_device(self) -> GroupOnDevice:
        """Returns the group on a device that is not known to be lost.

        After a loss it is another object with new plans, buffers and pipelines, and with weights from their sources. Raises
        DeviceError if there is no device, ModelChangedError if a weight has changed.
        """
        live = self._live
        if not live.device.lost:
            return live
        with self._lock:
            if self._live.device.lost:
                program, specialise = self._next.compiled()
                device = self._current()
                pipelines = self._pipelines(program, device)
                executable = Executable(program, device, self._settings, self._shared(device), pipelines=pipelines)
                self._live = GroupOnDevice(executable, specialise, self._next.keep)
                self.rebuilt += 1
            return self._live
