"""The pipelines of a Program: those that every run needs while the session is made, the others with the sizes that want them.

In: a Program, and layouts. Out: a pipeline for each kernel and variant. Invariants: what has been made stays as long as the
Program, so that a run with sizes that are known makes none; nothing is compiled under a lock of runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..device import Device, Pipeline, Preparing
from ..program.layout import Layout
from ..program.program import Dispatch, Program
from .settings import RunSettings

Variant = tuple[int, int]  # a kernel of the program, and a variant of it

Made = Callable[[float], None]
"""Is called for each pipeline that is new on its device, with the seconds that it took. Any thread may call it."""


def ignore_time(_seconds: float) -> None:
    """Counts nothing."""


def uncounted() -> Made:
    """Of a run whose pipelines are not counted."""
    return ignore_time


class Pipelines:
    """Many threads may ask at once."""

    def __init__(
        self, program: Program, device: Device, settings: RunSettings, in_runs: Callable[[], Made] = uncounted
    ) -> None:
        """`in_runs` gives what is called for those that a layout wants."""
        self._program, self._device, self._checks = program, device, settings.bounds_checks
        self.in_runs = in_runs
        self._made: dict[Variant, Pipeline] = {}
        self._variants = sum(len(kernel.wgsl) for kernel in program.kernels)
        self._begun: tuple[list[Variant], Preparing] | None = None
        self._wanted = False  # whether there was a set of shapes

    @property
    def made(self) -> Mapping[Variant, Pipeline]:
        """Those that there are."""
        return self._made

    def begin(self, made: Made = ignore_time) -> None:
        """Begins to compile what every run needs, whatever its sizes. On other threads."""
        labels: dict[Variant, str] = {}
        for dispatch in self._program.dispatches:
            variant = _certain(dispatch)
            if variant is not None:
                labels.setdefault((dispatch.kernel, variant), self._label(dispatch))
        if labels:
            self._begun = [*labels], self._device.begin(self._kernels(labels), self._checks, made)

    @property
    def begun(self) -> int:
        """How many new ones were on their way when they were begun."""
        return 0 if self._begun is None else self._begun[1].count

    def settle(self, step: Callable[[int, int], None] = lambda done, count: None) -> None:
        """Waits for what was begun; `step` gets how many of the new ones are done. Raises ShaderError, DeviceLostError."""
        begun, self._begun = self._begun, None
        if begun is not None:
            variants, preparing = begun
            self._made.update(zip(variants, preparing.wait(step), strict=True))

    def leave(self) -> None:
        """Stops waiting for what was begun."""
        begun, self._begun = self._begun, None
        if begun is not None:
            begun[1].leave()

    def want(self, layout: Layout) -> None:
        """Makes what a new set of shapes needs. With the second set, those of all variants: shapes change, so sooner or
        later each is wanted, and later shapes then compile nothing."""
        if len(self._made) == self._variants:
            return
        program = self._program
        labels: dict[Variant, str] = {}
        for step in layout.steps:
            dispatch = program.dispatches[step.dispatch]
            labels[dispatch.kernel, step.variant] = self._label(dispatch)
        if self._wanted:
            labels = self.expected() | labels
        new = {it: label for it, label in labels.items() if it not in self._made}
        if new:
            found = self._device.prepare(self._kernels(new), self._checks, self.in_runs())
            self._made.update(zip(new, found, strict=True))
        self._wanted = True

    def expected(self) -> dict[Variant, str]:
        """What later sizes may need, with labels: every variant."""
        return {
            (number, variant): kernel.label
            for number, kernel in enumerate(self._program.kernels)
            for variant in range(len(kernel.wgsl))
        }

    def _label(self, dispatch: Dispatch) -> str:
        return dispatch_label(self._program.kernels[dispatch.kernel].label, dispatch)

    def _kernels(self, labels: Mapping[Variant, str]) -> list[tuple[str, tuple[str, ...], str]]:
        kernels = self._program.kernels
        return [(kernels[k].wgsl[v], kernels[k].all_bindings, label) for (k, v), label in labels.items()]


def _certain(dispatch: Dispatch) -> int | None:
    """The variant that runs whatever the sizes are; None where sizes decide, or nothing may run."""
    for variant, guard in enumerate(dispatch.guards):
        if not isinstance(guard, int):
            return None
        if guard:
            return variant if dispatch.workgroups[variant] != 0 else None
    return None


def dispatch_label(kernel: str, dispatch: Dispatch) -> str:
    return f"{kernel}: {', '.join(dispatch.origin[:4])}{'...' if len(dispatch.origin) > 4 else ''}"
