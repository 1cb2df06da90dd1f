"""Converts GPU timestamps to CPU time. In: timestamps, and CPU times around them. Out: the CPU time of a GPU tick.

Invariant: a GPU timestamp lies between the CPU time before its submit and the CPU time after the wait for it. Several such
samples bound the offset between the two clocks. The middle of this interval is used, and half of its width is the `error`.
Between two settings the offset is interpolated linearly, so slow drift does not accumulate.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Sequence
from typing import NamedTuple

from ..records import dataclass

STALE_NS = 1_000_000_000  # clocks drift apart by some microseconds per second


class Sample(NamedTuple):
    """GPU ticks at the begin and the end of a pass; CPU nanoseconds before its submit and after the wait for it."""

    begin: int
    end: int
    before: int
    after: int


@dataclass(frozen=True)
class Setting:
    """At the GPU time `ticks` the CPU's clock was at `at` nanoseconds, plus or minus `error`."""

    ticks: int
    at: float
    error: float


class Clock:
    """Converts GPU ticks of `period` nanoseconds to nanoseconds of `time.perf_counter_ns()`."""

    def __init__(self, period: float) -> None:
        self.period = period
        self._settings: tuple[Setting, ...] = ()
        self._set_at = 0

    @property
    def is_set(self) -> bool:
        return bool(self._settings)

    @property
    def is_stale(self) -> bool:
        """Whether the last setting is older than STALE_NS."""
        return not self._settings or time.perf_counter_ns() - self._set_at > STALE_NS

    def set(self, samples: Sequence[Sample]) -> None:
        """Adds a setting from samples."""
        first = samples[0].begin
        lows = [s.before - (s.begin - first) * self.period for s in samples]
        highs = [s.after - (s.end - first) * self.period for s in samples]
        low, high = max(lows), min(highs)
        if low > high:  # a clock was changed in between: use the narrowest sample alone
            low, high = min(zip(lows, highs, strict=True), key=lambda pair: pair[1] - pair[0])
        made = Setting(first, (low + high) / 2, abs(high - low) / 2)
        self._settings = tuple(sorted((*self._settings, made), key=lambda setting: setting.ticks))
        self._set_at = time.perf_counter_ns()

    @property
    def error(self) -> float:
        """The largest error of a setting, in nanoseconds."""
        return max((setting.error for setting in self._settings), default=float("inf"))

    def at(self, ticks: int) -> int:
        """Returns the CPU time of a GPU timestamp, in nanoseconds."""
        settings = self._settings
        after = bisect.bisect_right(settings, ticks, key=lambda setting: setting.ticks)
        one, other = settings[max(0, after - 1)], settings[min(after, len(settings) - 1)]
        rate = self.period if one is other else (other.at - one.at) / (other.ticks - one.ticks)
        return round(one.at + (ticks - one.ticks) * rate)
