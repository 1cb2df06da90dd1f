"""A profile as one list of events from any source. In: ONNX Runtime's JSON, or spans. Out: `Timeline`.

Invariant: times are microseconds since the first event, and events are sorted by their begin.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..records import dataclass
from ..trace import GPU_THREAD, KINDS, Span

RUN = "run"  # the kind of a whole run of a session
# ONNX Runtime converts every arg to text; these are numbers.
NUMBERS = ("flops", "bytes", "dispatch", "dispatches")
# Args of nodes that are useful to users. The others are about thread pools and arenas.
_SHOWN = ("op_name", "provider", "input_type_shape", "output_type_shape")


@dataclass(frozen=True)
class Event:
    """`begin` and `duration` are in microseconds. `thread` is the system's thread id, or GPU_THREAD."""

    kind: str
    name: str
    begin: float
    duration: float
    thread: int
    args: Mapping[str, Any]

    @property
    def end(self) -> float:
        return self.begin + self.duration


@dataclass(frozen=True)
class Timeline:
    """`events` are the profile, in microseconds. `facts` are for display: model, device, versions.

    Peaks are per second, None if not measured. `lacks` describes missing data and the reason."""

    events: Sequence[Event] = field(repr=False)
    facts: Mapping[str, str] = field(default_factory=dict)
    peak_flops: float | None = None
    peak_bytes: float | None = None
    lacks: str = ""

    @property
    def runs(self) -> list[Event]:
        return [event for event in self.events if event.kind == RUN]

    @property
    def steady(self) -> list[Event]:
        """The events after the first run, which compiles and plans; all events if there is only one run."""
        runs = self.runs
        return [event for event in self.events if event.begin >= runs[0].end] if len(runs) > 1 else list(self.events)

    @property
    def steady_runs(self) -> int:
        """The number of runs in `steady`."""
        return max(1, len(self.runs) - 1)


def from_spans(spans: Iterable[Span]) -> list[Event]:
    """Returns the events of a recorder's spans."""
    return _from_zero(
        Event(it.kind, it.name, it.begin / 1e3, (it.end - it.begin) / 1e3, it.thread, dict(it.args)) for it in spans
    )


def from_ort(path: Path) -> list[Event]:
    """Reads the events of ONNX Runtime's profile. Raises InputError if the file is something else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict) and "traceEvents" in found:
            raise InputError(
                f"{path} is a trace for Perfetto (ui.perfetto.dev opens it); give the profile that ONNX Runtime wrote"
            )
        if not isinstance(found, list) or not found:
            raise InputError(f"{path} is not a profile of ONNX Runtime, which is a list of events")
        events = _from_zero(_event(it) for it in found if it.get("ph") == "X")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a profile of ONNX Runtime: it is not text ({error})") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{path} is not a profile of ONNX Runtime: it is not JSON, or truncated ({error})") from error
    except KeyError as error:
        raise InputError(f"{path} is not a profile of ONNX Runtime: an event has no {error}") from error
    except (ValueError, TypeError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not a profile of ONNX Runtime: {error}") from error
    if not any(it.kind in (RUN, "node", *KINDS) for it in events):
        raise InputError(f"{path} has no run in it: profile a session that runs, and end it with end_profiling()")
    return events


def _event(it: Mapping[str, Any]) -> Event:
    args = dict(it.get("args") or {})
    kind = args.pop("kind", None)
    if kind in KINDS:
        args = {key: int(value) if key in NUMBERS else value for key, value in args.items()}
    else:
        kind = RUN if it["name"] == "model_run" else str(it["cat"]).lower()
        args = {key: args[key] for key in _SHOWN if key in args}
    thread = GPU_THREAD if kind == "dispatch" else int(it["tid"])
    return Event(kind, str(it["name"]).removesuffix("_kernel_time"), float(it["ts"]), float(it["dur"]), thread, args)


def _from_zero(events: Iterable[Event]) -> list[Event]:
    ordered = sorted(events, key=lambda event: (event.begin, -event.duration))
    start = ordered[0].begin if ordered else 0.0
    return [Event(it.kind, it.name, it.begin - start, it.duration, it.thread, it.args) for it in ordered]
