"""A compiled group of nodes as a session runs it: for any sizes, and on the next device when one was lost.

In: the group's Program and its graph, a function that gives the live device, and where weights can be read again. Out: a `Run` of
what fits the inputs. Invariants: what is compiled is decided here: the runtime says that sizes are beyond a limit, and which they
are, or that extents are not those of the Program; it asks for nothing. A loss costs one rebuild, however many threads run into
it, and a run stays on the device that it began with.
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
from .again import CompiledAgain

MAX_SPECIALISED = 8  # sets of sizes beyond a limit, or of elements that kernels are made for, whose programs are kept
MAX_ROUTES = 256  # sets of input shapes and elements of which it is known which program runs them


GivenInputs = Callable[[frozenset[int]], Sequence[DeviceTensor]]
"""The inputs of a run, for an executable: it is asked with those that have to have their `value`."""


Sizes = frozenset[tuple[str, int]]
"""Values of symbols that a graph is compiled for."""


@dataclass(frozen=True)
class _Compiled:
    """What a group's graph is compiled to, replaced as one: a reader has an executable with what belongs to that."""

    executable: Executable
    specialise: CompiledAgain | None
    specialised: OrderedDict[Sizes, Executable] = field(default_factory=OrderedDict)
    routes: OrderedDict[Key, Sizes] = field(default_factory=OrderedDict)  # what runs inputs that another one refused


class GroupOnDevice:
    """A group on one device: its executable, and beside it the same graph compiled for sizes that are beyond a limit for its
    Program. Thread safe.

    A run that shows that extents of one name differ puts an executable in its place that does not rely on the name, if that
    one takes the run: inputs that do not fit together change nothing.
    """

    def __init__(
        self,
        executable: Executable,
        specialise: CompiledAgain | None,
        relaxed: Callable[[Program, CompiledAgain | None], None] = lambda _program, _specialise: None,
    ) -> None:
        """Without `specialise` there are no others. `relaxed` gets what the graph is compiled to from now on."""
        self._now, self._on_relaxed = _Compiled(executable, specialise), relaxed
        self._aside: tuple[_Compiled, Program] | None = None  # relies on fewer names, and has taken no run yet
        self._lock, self._compiling = threading.Lock(), threading.Lock()

    @property
    def device(self) -> Device:
        return self._now.executable.device

    @property
    def executable(self) -> Executable:
        """What runs most sizes. Which one runs certain inputs, a `Run` says."""
        return self._now.executable

    @property
    def specialised(self) -> Mapping[Sizes, Executable]:
        """What runs sizes beyond a limit, and elements that kernels are made for."""
        return self._now.specialised

    def prepare(self, inputs: GivenInputs) -> Run:
        """A run with these inputs, for which the executable asks that runs them: one that takes the place of another may want
        more values. Raises InputError; LimitError when nothing helps."""
        now = self._now
        tensors = inputs(now.executable.valued_inputs)
        try:
            sizes, executable = self._routed(now, tensors) if now.routes else ({}, now.executable)
            while True:
                try:
                    return executable.prepare(_with_values(now, executable, inputs, tensors))
                except LimitError as error:
                    # What was compiled for elements may be beyond a limit for sizes.
                    if now.specialise is None or error.sizes.items() <= sizes.items():
                        raise
                    sizes = {**sizes, **error.sizes}
                key = now.executable.key(tensors)
                try:
                    made = self._compiled(now, now.specialise, key, sizes)
                except LimitError as refusal:
                    # What these sizes leave to be assumed may be all that is wrong.
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
            return self._contradicted(now, inputs, tensors, error)

    def _contradicted(
        self, now: _Compiled, inputs: GivenInputs, tensors: Sequence[DeviceTensor], error: ExtentError
    ) -> Run:
        """A run whose extents are not those of the Program, for the reason `error`, which is raised when no name is to blame."""
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
            return self.prepare(inputs)  # another thread has put something in the place of `now`
        if made is None:  # without these names it does not compile, for certain sizes it may
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

    def _relaxed(self, now: _Compiled, specialise: CompiledAgain) -> tuple[_Compiled, Program]:
        """The graph without names that a run contradicts. Raises LimitError. Under the lock."""
        if self._aside is not None:
            known, _ = self._aside
            if known.specialise is not None and known.specialise.shapes == specialise.shapes:
                return self._aside
            self._aside = None
            known.executable.leave()
        program = specialise()
        made = now.executable.compiled_for(program, specialise.constants)
        self._aside = _Compiled(made, specialise), program
        return self._aside

    def _exact(
        self,
        now: _Compiled,
        relaxed: CompiledAgain,
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
        """Runs with `made` from now on, unless another thread has put something in the place of `now`."""
        with self._compiling:
            if self._now is not now or self._aside is not made:
                return
            compiled, program = made
            self._on_relaxed(program, compiled.specialise)
            with self._lock:
                self._now, self._aside = compiled, None
            for it in (*now.specialised.values(), now.executable):
                it.leave()

    def _routed(self, now: _Compiled, tensors: Sequence[DeviceTensor]) -> tuple[dict[str, int], Executable]:
        """What ran such inputs before, and the sizes that it is compiled for."""
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
        self, now: _Compiled, specialise: CompiledAgain, key: Key, sizes: Mapping[str, int]
    ) -> Executable | None:
        """What runs these sizes; None when another thread has put something in the place of `now`."""
        with self._compiling:
            if self._now is not now:
                return None
            of = frozenset(sizes.items())
            made = now.specialised.get(of)  # for other inputs, or another thread has waited for the same
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
    """The inputs for an executable; `tensors` have the values that `now` looks at. What runs is found by those, so a run that is
    kept depends on them too."""
    constants_read = now.executable.valued_inputs
    return tensors if executable.valued_inputs <= constants_read else inputs(constants_read | executable.valued_inputs)


class _ForNextDevice:
    """What a group is compiled to, as the next device needs it: without weights, and where these are. It refers to no group, which
    therefore ends, with its memory on the device, when nothing holds it any more."""

    def __init__(self, sources: WeightSources) -> None:
        self.sources = sources
        self._compiled: tuple[Program, list[WeightSource], CompiledAgain | None] | None = None

    def keep(self, program: Program, specialise: CompiledAgain | None) -> None:
        """What the graph is compiled to from now on. Weights that it had before are where they were."""
        sources = list(map(self.sources.of, weight_names(program), program.weights))
        self._compiled = replace(program, weights=()), sources, specialise

    def compiled(self) -> tuple[Program, CompiledAgain | None]:
        """The Program, with weights that are read now. Raises ModelChangedError."""
        assert self._compiled is not None
        program, sources, specialise = self._compiled
        return replace(program, weights=tuple(source.read() for source in sources)), specialise


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
        specialise: CompiledAgain | None = None,
        shared: Callable[[Device], Mapping[str, Buffer]] = lambda _device: {},
        making: Making | None = None,
    ) -> None:
        """`shared` gives weights by name that a device has already. `making` gets how far it is; pipelines that are on their way
        afterwards are settled by its owner."""
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
        # After the upload: a program that does not fit leaves nothing behind.
        self.sources = WeightSources(source_of)
        self._next = _ForNextDevice(self.sources)
        self._next.keep(program, specialise)
        if specialise is not None:
            specialise.keep(self.sources)
        self._live = GroupOnDevice(executable, specialise, self._next.keep)
        self.rebuilt = 0

    def executable_on(self, device: Device) -> Executable | None:
        """What runs on a device now; None for one that the group is not on."""
        live = self._live
        return live.executable if live.device is device else None

    def _pipelines(self, program: Program, device: Device) -> Pipelines:
        return Pipelines(program, device, self._settings, self._making.in_a_run)

    def on_device(self) -> GroupOnDevice:
        """What runs on a device that is not known to be lost; another object after a loss: plans, buffers and pipelines are new
        then, and weights are read from their sources.

        Raises DeviceError when there is no device, ModelChangedError when a weight is not where it was.
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
