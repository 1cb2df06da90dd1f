"""Profiles a model's runs. In: a model and its inputs. Out: a `Profile` of ONNX Runtime's events and this provider's."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import OptionError
from ..profiles import events, tables
from ..profiles.events import RUN, from_ort, from_spans
from ..profiles.page import page
from ..tabular import html_table, text_lines
from ..trace import Recorder, span
from ..writing import write_file

if TYPE_CHECKING:
    from ..device import Device

# The first minor version of ONNX Runtime with profilers of providers.
ORT_WITH_PROFILERS = 25


class Profile(events.Timeline):
    """The result of `profile`. A notebook and `str` show the operators."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a self-contained HTML page with every operator, kernel and dispatch. Raises WriteError."""
        write_file(Path(path), page(self))

    def __str__(self) -> str:
        return "\n".join([*self._lines(), *text_lines(tables.COLUMNS, tables.operator_rows(self))])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Returns the operators as an HTML table, for notebooks."""
        title, *notes = self._lines()
        return html_table(tables.COLUMNS, tables.operator_rows(self), title, notes)

    def _lines(self) -> list[str]:
        found = tables.summary(self)
        times = {"a run": found["run"], "on the GPU": found["gpu"], "the first run": found["first_run"]}
        shown = ", ".join(f"{name} {tables.shown_time(time)}" for name, time in times.items() if time is not None)
        beyond = f"* {tables.BEYOND}" if any(row.beyond for row in tables.by_operator(self)) else ""
        where = f"{self.facts.get('model', 'a model')} on {self.facts.get('device', 'a GPU')}"
        return [*filter(None, [f"{where}: {shown}", f"times {tables.which_runs(len(self.runs))}", self.lacks, beyond])]


def profiled(
    open_session: Callable[[Mapping[str, Any]], Any],
    feeds_for: Callable[[Any], Mapping[str, Any]],
    step: Callable[[str], None],
    model: str,
    runs: int,
) -> Profile:
    """Profiles a first run and `runs` more.

    `open_session` creates the session with the given attributes of SessionOptions, and `feeds_for(session)` returns its inputs.
    `step` receives the name of each next step, for a progress display. Raises the errors of the session's creation and runs."""
    import onnxruntime as ort

    from .reports import report, state_of

    with_profilers = int(ort.__version__.split(".")[1]) >= ORT_WITH_PROFILERS
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as folder:
        # Without provider profilers, a recorder listens on this thread.
        with nullcontext() if with_profilers else recorder.listening():
            session = open_session(
                {"enable_profiling": with_profilers, "profile_file_prefix": str(Path(folder) / "ort")}
            )
            feeds = feeds_for(session)
            for number in range(1 + runs):
                step(f"run {number} of {runs}" if number else "first run")
                with span(RUN, Path(model).stem):
                    session.run(None, dict(feeds))
        happened = from_ort(Path(session.end_profiling())) if with_profilers else from_spans(recorder.finish())
    placed, device = report(session), state_of(session).device()
    facts = {"model": model, "device": device.adapter.name, "backend": device.adapter.backend}
    facts |= {"driver": device.adapter.driver, "library": placed.library}
    facts |= {"nodes": str(len(placed.nodes)), "nodes_on_cpu": str(len(placed.on_cpu))}
    facts |= {"session": placed.made(), "pipelines": str(placed.pipelines).partition(": ")[2]}
    step("peak of the adapter")
    return beside_peak(Profile(happened, facts), device)


def beside_peak(profile: Profile, device: Device) -> Profile:
    """Adds the adapter's measured peak, or what the profile lacks if the adapter has no timestamps."""
    from ..device.peak import peak

    if not device.has_timestamps:
        lacks = f"the adapter {device.adapter.name} has no timestamps (feature timestamp-query)"
        return replace(profile, lacks=f"{lacks}: the profile has times of the CPU only")
    best = peak(device)
    return replace(profile, peak_flops=best.flops, peak_bytes=best.bytes)


def profile(
    model: str | os.PathLike[str] | bytes, feeds: Mapping[str, Any], *, runs: int = 3, **arguments: Any
) -> Profile:
    """Runs a model once and then `runs` times, and returns the times.

    As the last line of a notebook's cell, `profile("model.onnx", {"x": array})` shows the operators. The result's `save(path)`
    writes a page with every dispatch.

    `feeds` maps input names to arrays. The other arguments are those of `session`. Raises OptionError, and what `session` and
    `run` raise.
    """
    from .arguments import model_name, settings_argument
    from .session import session

    if not isinstance(runs, int) or runs < 0:
        raise OptionError(f"runs is {runs!r}, it must be an integer of at least 0")
    settings = settings_argument(arguments.pop("sess_options", None))

    def opened(attributes: Mapping[str, Any]) -> Any:
        before = {name: getattr(settings, name) for name in attributes}
        try:
            for name, value in attributes.items():
                setattr(settings, name, value)
            return session(model, sess_options=settings, **arguments)
        finally:  # restore, because the caller may reuse the options
            for name, value in before.items():
                setattr(settings, name, value)

    return profiled(opened, lambda _session: feeds, lambda _step: None, model_name(model), runs)
