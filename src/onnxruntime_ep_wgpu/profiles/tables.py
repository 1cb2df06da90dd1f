"""Tables of a profile. In: a profile. Out: rows by operator, kernel and dispatch, and a summary, per run.

Invariant: rates are counted work divided by measured time (`passes/cost.py`), so overlapping or uncounted work lowers them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from statistics import median
from typing import Any

from ..records import dataclass
from .events import Event, Timeline

BEYOND = (
    "more than the measured peak: a cache served tensors that the measured copy reads from memory, the compiler removed"
    " arithmetic that the operators specify, or the clock was lower during the measurement of the peak"
)


@dataclass(frozen=True)
class Row:
    """The dispatches of one operator, kernel or place, or nodes on the CPU. Times in microseconds per run, rates per second.

    `of_peak` is the fraction of the adapter's peak, for arithmetic or memory, whichever is larger; `bound` names it. It is None
    without a known peak. For values above 1, see BEYOND.
    """

    name: str
    where: str
    calls: int | float
    time: float
    share: float = 0.0
    flops: float = 0.0
    bytes: float = 0.0
    shapes: str = ""
    of_peak: float | None = None
    bound: str = ""

    @property
    def beyond(self) -> bool:
        """Whether the row shows more than the peak; BEYOND explains this."""
        return self.of_peak is not None and self.of_peak >= 1.005  # displayed as more than 100 %


COLUMNS = ("operator", "on", "calls", "time", "of GPU time", "FLOP/s", "B/s", "of peak")


def operator_rows(profile: Timeline) -> list[list[object]]:
    """Returns the operators as rows for COLUMNS."""
    return [_shown(row) for row in by_operator(profile)]


def _shown(row: Row) -> list[object]:
    share = f"{row.share:.1%}" if row.where == "GPU" else ""
    peak = f"{row.of_peak:.0%} {row.bound}{'*' * row.beyond}" if row.of_peak is not None else ""
    calls = round(row.calls, 1)
    return [row.name, row.where, calls, shown_time(row.time), share, shown_rate(row.flops), shown_rate(row.bytes), peak]


def which_runs(runs: int) -> str:
    """Describes the runs that the times cover."""
    return "per run, without the first" if runs > 1 else "of the only run" if runs else "no whole run is in the profile"


def shown_rate(number: float) -> str:
    """Returns a rate with three digits and a unit prefix; "" for 0."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= 0.9995 * factor:
            return f"{number / factor:.3g} {prefix}"
    return f"{number:.3g}" if number else ""


def shown_time(microseconds: float) -> str:
    return f"{microseconds / 1e3:.3f} ms"


def by_operator(profile: Timeline) -> list[Row]:
    """Returns rows by operator. Fused operators share a row, because one kernel computes them. Nodes on the CPU follow."""
    return _rows(profile, lambda it: (it.args.get("operators") or it.name,)) + _on_cpu(profile)


def by_kernel(profile: Timeline) -> list[Row]:
    return _rows(profile, lambda it: (it.args.get("kernel") or it.name,))


def by_dispatch(profile: Timeline) -> list[Row]:
    """Returns one row per dispatch of a program and set of shapes."""
    return _rows(
        profile, lambda it: (it.name, it.args.get("partition"), it.args.get("dispatch"), it.args.get("outputs"))
    )


def per_run(number: int, runs: int) -> int | float:
    """Returns a count per run, as an integer if it is the same in every run."""
    return number / runs if number % runs else number // runs


def _rows(profile: Timeline, key: Callable[[Event], tuple[Hashable, ...]]) -> list[Row]:
    groups: dict[tuple[Hashable, ...], list[Event]] = {}
    dispatches = [event for event in profile.steady if event.kind == "dispatch"]
    for event in dispatches:
        groups.setdefault(key(event), []).append(event)
    whole = sum(event.duration for event in dispatches)
    rows = [_row(profile, str(name[0]), events, whole) for name, events in groups.items()]
    return sorted(rows, key=lambda row: -row.time)


def _row(profile: Timeline, name: str, events: Sequence[Event], whole: float) -> Row:
    time = sum(event.duration for event in events)
    seconds = time * 1e-6
    flops = sum(event.args.get("flops", 0) for event in events) / seconds if seconds else 0.0
    nbytes = sum(event.args.get("bytes", 0) for event in events) / seconds if seconds else 0.0
    shapes = {f"{event.args.get('inputs', '')} -> {event.args.get('outputs', '')}" for event in events}
    of_peak, bound = None, ""
    if profile.peak_flops and profile.peak_bytes:
        of_peak, bound = max((flops / profile.peak_flops, "arithmetic"), (nbytes / profile.peak_bytes, "memory"))
    return Row(
        name,
        "GPU",
        calls=per_run(len(events), profile.steady_runs),
        time=time / profile.steady_runs,
        share=time / whole if whole else 0.0,
        flops=flops,
        bytes=nbytes,
        shapes=shapes.pop() if len(shapes) == 1 else f"{len(shapes)} sets of shapes",
        of_peak=of_peak,
        bound=bound,
    )


def _on_cpu(profile: Timeline) -> list[Row]:
    groups: dict[str, list[Event]] = {}
    for event in profile.steady:
        if event.kind == "node" and event.args.get("provider") == "CPUExecutionProvider":
            groups.setdefault(event.args.get("op_name") or event.name, []).append(event)
    count = profile.steady_runs
    rows = [
        Row(name, "CPU", per_run(len(events), count), sum(event.duration for event in events) / count)
        for name, events in groups.items()
    ]
    return sorted(rows, key=lambda row: -row.time)


def summary(profile: Timeline) -> dict[str, Any]:
    """Returns times of a run and of its GPU part in microseconds, and the work and memory traffic per run."""
    dispatches = [event for event in profile.steady if event.kind == "dispatch"]
    runs = [event for event in profile.steady if event.kind == "run"]
    count = profile.steady_runs
    busy = sum(event.duration for event in dispatches)
    first = profile.runs[0].duration if len(profile.runs) > 1 else None
    return {
        "runs": len(profile.runs),
        "first_run": first,
        "run": median(event.duration for event in runs) if runs else None,
        "gpu": busy / count if dispatches else None,
        "dispatches": per_run(len(dispatches), count),
        "flops": sum(event.args.get("flops", 0) for event in dispatches) / count,
        "bytes": sum(event.args.get("bytes", 0) for event in dispatches) / count,
        "peak_flops": profile.peak_flops,
        "peak_bytes": profile.peak_bytes,
    }
