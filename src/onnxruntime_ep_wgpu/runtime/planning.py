"""Selects the plan of a run: one for the shapes of its inputs, or one of a series if sizes grow.

In: the inputs of a run. Out: a `PlannedRun`, or InputError or LimitError before anything runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ..attempts import Attempts
from ..device import Device
from ..errors import InputError, LimitError, OutOfMemoryError
from ..program.dtypes import DType
from ..program.layout import Layouts
from ..program.program import Program
from ..program.series import LONGEST, AllSeries
from ..trace import listeners, span
from . import checks
from .inputs import DeviceTensor, InputChecks
from .plans import PlannedRun, Plans
from .runs.growth import Growth, Steps, further, rising
from .runs.key import Key

MOST_PASSED_OVER = 1024  # growing runs before another series is tried


class Planning:
    """Selects the plans of one Program on one device. Thread safe."""

    def __init__(self, program: Program, device: Device, plans: Plans) -> None:
        self.inputs = InputChecks(program)
        self._program, self._device, self._plans = program, device, plans
        self._layouts = Layouts(program)
        self._growth, self._series, self._attempts = Growth(), AllSeries(self._layouts), Attempts(MOST_PASSED_OVER)

    def key(self, inputs: Sequence[DeviceTensor]) -> Key:
        """The key that is equal for inputs with the same plan."""
        return tuple([tensor.shape for tensor in inputs]), self.inputs.elements(inputs)

    def single(self, key: Key, dtypes: Sequence[DType] | None = None) -> PlannedRun:
        """Returns the plan for inputs with this key. Makes it if it is new. `dtypes` defaults to the types of the program."""
        return self._plans.known(key) or self._made(key, self.inputs.dtypes if dtypes is None else dtypes)

    def in_series(self, inputs: Sequence[DeviceTensor]) -> PlannedRun | None:
        """Returns the plan of a series that contains these inputs. Makes one if sizes grow. None if there is none."""
        key, dtypes = self.key(inputs), [tensor.dtype for tensor in inputs]
        steps = self._growth.steps(key)
        if dtypes != self.inputs.dtypes:
            return None
        return self._plans.in_series(key) or (None if steps is None else self._new_series(key, steps))

    def _new_series(self, key: Key, steps: Steps) -> PlannedRun | None:
        """Makes a series. After a failure most attempts are skipped (`Attempts`)."""
        latest, rise = self._plans.latest(), rising(key, steps, LONGEST)
        if not self._attempts.is_due() or latest is None or rise is None:
            return None
        found = None
        # After such an error, a plan for these sizes alone may fit.
        with span("plan", self._program.name), suppress(InputError, LimitError, OutOfMemoryError):
            first, second = (self.inputs.symbols(self.inputs.dtypes, *it) for it in (rise[0], further(*rise)))
            more = [b - a for a, b in zip(first, second, strict=True)]
            series = self._series.series(first, more, latest.layout)
            if series is not None:
                checks.limits(self._device, self._program, series.last)
                found = self._plans.made_series(key, rise, series)
        self._attempts.ended(found is not None)
        return found

    def _made(self, key: Key, dtypes: Sequence[DType]) -> PlannedRun:
        with span("plan", self._program.name, inputs=_shapes(dtypes, key[0]) if listeners() else ""):
            latest = self._plans.latest()
            base = None if latest is None else latest.layout
            layout = self._layouts.layout(self.inputs.symbols(dtypes, *key), base)
            checks.limits(self._device, self._program, layout)
            return self._plans.made(key, layout)


def _shapes(dtypes: Sequence[DType], shapes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join(f"{dtype.label}{list(shape)}" for dtype, shape in zip(dtypes, shapes, strict=True))
