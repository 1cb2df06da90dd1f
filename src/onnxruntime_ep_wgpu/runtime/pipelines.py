"""The pipelines of a Program. Those that every run needs are compiled with the session, the others when sizes need them.

In: a Program, and layouts. Out: a pipeline for each kernel and variant. Invariants: pipelines live as long as the Program, so a
run with known sizes compiles none. Nothing is compiled under a lock of runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..device import Device, Pipeline, Preparing
from ..program.layout import Layout
from ..program.program import Dispatch, Program
from .settings import RunSettings

Variant = tuple[int, int]  # (kernel of the program, variant of it)

Made = Callable[[float], None]
"""A callback for each pipeline that is new on its device, with the seconds of its compilation. Any thread may call it."""


def ignore_time(_seconds: float) -> None:
    """Counts nothing."""


def uncounted() -> Made:
    """The callback of runs without a count."""
    return ignore_time


class Pipelines:
    """The pipelines of a Program. Thread safe."""

    def __init__(
        self, program: Program, device: Device, settings: RunSettings, in_runs: Callable[[], Made] = uncounted
    ) -> None:
        """`in_runs` returns the callback for pipelines that a layout needs."""
        self._program, self._device, self._checks = program, device, settings.bounds_checks
        self.in_runs = in_runs
        self._made: dict[Variant, Pipeline] = {}
        self._variants = sum(len(kernel.wgsl) for kernel in program.kernels)
        self._begun: tuple[list[Variant], Preparing] | None = None
        self._wanted = False  # whether there was a layout before

    @property
    def made(self) -> Mapping[Variant, Pipeline]:
        """The compiled pipelines."""
        return self._made

    def begin(self, made: Made = ignore_time) -> None:
        """Starts to compile, on other threads, the pipelines that every run needs regardless of sizes."""
        labels: dict[Variant, str] = {}
        for dispatch in self._program.dispatches:
            variant = _certain(dispatch)
            if variant is not None:
                labels.setdefault((dispatch.kernel, variant), self._label(dispatch))
        if labels:
            self._begun = [*labels], self._device.begin(self._kernels(labels), self._checks, made)

    @property
    def begun(self) -> int:
        """The number of new pipelines that `begin` started."""
        return 0 if self._begun is None else self._begun[1].count

    def settle(self, step: Callable[[int, int], None] = lambda done, count: None) -> None:
        """Waits for `begin`.

        `step` is called with the number of new pipelines that are done. Raises ShaderError, DeviceLostError.
        """
        begun, self._begun = self._begun, None
        if begun is not None:
            variants, preparing = begun
            self._made.update(zip(variants, preparing.wait(step), strict=True))

    def leave(self) -> None:
        """Cancels the compilations that `begin` started."""
        begun, self._begun = self._begun, None
        if begun is not None:
            begun[1].leave()

    def want(self, layout: Layout) -> None:
        """Compiles what a new layout needs. The second layout compiles all variants.

        If shapes change, each variant is needed sooner or later, and later shapes then compile nothing.
        """
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
        """Returns the pipelines that later sizes may need, with labels: all variants."""
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
    """Returns the variant that runs for all sizes; None if sizes decide, or if nothing may run."""
    for variant, guard in enumerate(dispatch.guards):
        if not isinstance(guard, int):
            return None
        if guard:
            return variant if dispatch.workgroups[variant] != 0 else None
    return None


def dispatch_label(kernel: str, dispatch: Dispatch) -> str:
    return f"{kernel}: {', '.join(dispatch.origin[:4])}{'...' if len(dispatch.origin) > 4 else ''}"
