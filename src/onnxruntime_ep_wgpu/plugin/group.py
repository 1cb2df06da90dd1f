"""A compiled group of nodes as a session runs it: for any sizes, and on the next device when one was lost.

In: the group's Program and its graph. Out: a `Run` of what fits the inputs. Invariant: who compiles decides here. The runtime
says that sizes are beyond a limit, and which they are, or that shapes are not those of the Program; it asks for nothing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from ..device import Device
from ..errors import InputError, LimitError
from ..program.program import Program
from ..runtime.executable import Executable, Run
from ..runtime.inputs import DeviceTensor
from ..runtime.plans import Key
from ..runtime.recovery import RecoverableExecutable
from ..runtime.settings import RunSettings
from ..runtime.weights import SourceOf
from ..trace import span
from .specialise import Specialiser

MAX_SPECIALISED = 8  # sets of input shapes beyond a limit whose programs are kept


class AnySize:
    """An executable, and beside it the same graph compiled for sizes that are beyond a limit for its Program. Thread safe.

    A run that shows that an inferred shape was wrong puts another one in its place, which does not rely on it.
    """

    def __init__(self, executable: Executable, specialise: Specialiser | None) -> None:
        """Without `specialise` there are no others."""
        self.executable, self._specialise = executable, specialise
        self.specialised: OrderedDict[Key, Executable] = OrderedDict()
        self._relaxed: AnySize | None = None
        self._lock, self._compiling = threading.Lock(), threading.Lock()

    @property
    def device(self) -> Device:
        return self.executable.device

    @property
    def valued_inputs(self) -> frozenset[int]:
        """The inputs whose values set shapes: to be given with their `value`."""
        return self.executable.valued_inputs if self._relaxed is None else self._relaxed.valued_inputs

    def prepare(self, inputs: Sequence[DeviceTensor]) -> Run:
        """A run with these inputs. Raises InputError; LimitError when nothing helps."""
        if self._relaxed is not None:
            return self._relaxed.prepare(inputs)
        if self.specialised:
            known = self._known(self.executable.key(inputs))
            if known is not None:
                return known.prepare(inputs)
        try:
            return self.executable.prepare(inputs)
        except LimitError as error:
            if not error.sizes or self._specialise is None:
                raise
            sizes = error.sizes
        except InputError as error:
            try:
                relaxed = self._relax([tensor.shape for tensor in inputs])
            except LimitError as why:  # without what was inferred it does not compile
                raise error from why
            if relaxed is None:
                raise
            return relaxed.prepare(inputs)
        return self._compiled(self._specialise, self.executable.key(inputs), sizes).prepare(inputs)

    def _relax(self, shapes: Sequence[tuple[int, ...]]) -> AnySize | None:
        """What runs inputs of these shapes from now on; None when no inferred shape is to blame that they do not fit."""
        with self._compiling:
            specialise = None if self._specialise is None else self._specialise.relaxed(shapes)
            if specialise is None or self._relaxed is not None:  # another thread may have waited for the same
                return self._relaxed
            with span("compile", self.executable.program.name, reason="an inferred shape was wrong"):
                program = specialise()
            self._relaxed = AnySize(self.executable.compiled_for(program, specialise.constants), specialise)
            return self._relaxed

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
            with span("compile", self.executable.program.name, **{k.lstrip("@"): v for k, v in sizes.items()}):
                program = specialise(sizes)
            made = self.executable.compiled_for(program, specialise.constants)
            with self._lock:
                self.specialised[key] = made
                if len(self.specialised) > MAX_SPECIALISED:
                    self.specialised.popitem(last=False)[1].leave()
            return made


class CompiledGroup:
    """A group's Program on the device that `current()` gives, and its graph for sizes beyond a limit. Thread safe."""

    def __init__(
        self,
        program: Program,
        current: Callable[[], Device],
        settings: RunSettings,
        source_of: SourceOf,
        specialise: Specialiser,
    ) -> None:
        self.recoverable = RecoverableExecutable(program, current, settings, source_of)
        self._specialise = specialise if program.symbols or specialise.may_relax else None
        if self._specialise is not None:
            self._specialise.keep(self.recoverable.named_sources(), source_of)
        self._lock = threading.Lock()
        self._live = AnySize(self.recoverable.executable(), self._specialise)

    def executable(self) -> AnySize:
        """What runs on a device that is not known to be lost; another object after a loss.

        Raises DeviceError when there is no device, ModelChangedError when a weight is not where it was.
        """
        live, now = self._live, self.recoverable.executable()
        if live.executable is now:
            return live
        with self._lock:
            if self._live.executable is not now:
                self._live = AnySize(now, self._specialise)
            return self._live
