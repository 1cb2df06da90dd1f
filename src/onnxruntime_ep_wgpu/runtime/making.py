"""The making of a session: the time of each part, its progress, and when pipelines were made.

In: `part(...)` around each part, steps within it, the pipelines of each group. Out: milliseconds by part, `Progress` for a
listener, and counts of pipelines. Invariants: one thread makes a session, and only it calls the listener. Pipelines are counted
on any thread. The time of a nested part is not part of the outer one, so the sum of the parts is at most the total.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from .. import rehearsal
from ..records import dataclass
from .pipelines import Made, Pipelines
from .progress import PARTS, PIPELINES, READING, WEIGHTS, Progress


@dataclass(frozen=True)
class PipelineCount:
    """The number of `pipelines`, and the sum of the seconds that threads took to compile them."""

    pipelines: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class PipelineCounts:
    """The pipelines that a session compiled: when it was made, in `warmup`, and in runs."""

    at_creation: PipelineCount = PipelineCount()
    in_warmup: PipelineCount = PipelineCount()
    in_runs: PipelineCount = PipelineCount()

    def __str__(self) -> str:
        made = [
            f"{count.pipelines} {when} ({count.seconds * 1e3:.0f} ms)"
            for when, count in (
                ("at creation", self.at_creation),
                ("in warmup", self.in_warmup),
                ("in runs", self.in_runs),
            )
            if count.pipelines
        ]
        return f"pipelines: {', '.join(made) or 'no new ones'}"


def in_words(milliseconds: Mapping[str, float]) -> str:
    """Formats `Making.milliseconds`."""
    parts = [f"{name} {time:.0f}" for name, time in milliseconds.items() if name in PARTS]
    return f"{milliseconds['total']:.0f} ms: {', '.join(parts)}"


Listener = Callable[[Progress], None]


class _Part:
    """A context manager around a part. It is not a generator: the destructor of an interrupted one would raise a second error."""

    def __init__(self, making: Making, name: str) -> None:
        self._making, self._name = making, name
        self._before: list[str] = []

    def __enter__(self) -> None:
        self._before = self._making.begin_part(self._name)
        try:
            self._making.step(0, 0)
        except BaseException:
            self._making.end_part(self._before)
            raise

    def __exit__(self, *_: object) -> None:
        self._making.end_part(self._before)


class Making:
    """The making of one session. `begun`: when it began, in seconds of `clock`; now by default."""

    def __init__(
        self,
        listener: Listener | None = None,
        begun: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._listener, self._clock = listener, clock
        self._watched = listener is not None
        self.stopped = False  # by the listener
        self.begun = self._mark = clock() if begun is None else begun
        self._ended: float | None = None
        self._open = [READING]  # the innermost part last
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self.last: Progress | None = None
        self._settling: list[Pipelines] = []
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(("creation", "warmup", "runs"), PipelineCount())

    # ---- parts

    def part(self, name: str) -> _Part:
        """Returns a context manager that counts the time of its `with` for this part."""
        return _Part(self, name)

    def begin_part(self, name: str) -> list[str]:
        """Begins a part. Returns the parts that were open before, for `end_part`."""
        self._passed()
        before, self._open = self._open, [*(it for it in self._open if it != READING), name]
        return before

    def end_part(self, before: Sequence[str]) -> None:
        """Ends the innermost part."""
        self._passed()
        self._open = [it for it in before if it != READING]

    def _passed(self) -> None:
        now = self._clock()
        if self._open:
            self._seconds[self._open[-1]] += now - self._mark
        self._mark = now

    def step(self, done: int, total: int) -> None:
        """Reports the progress of the innermost part."""
        if not self._open or self._ended is not None:
            return
        self.last = Progress(self._open[-1], done, total, self._clock() - self.begun)
        if self._listener is not None:
            try:
                self._listener(self.last)
            except BaseException:
                self.stopped = True
                raise

    def end(self) -> None:
        """Call this when the session is made, or has failed."""
        if self._ended is None:
            self._passed()
            self._ended, self._open, self._listener = self._mark, [], None

    @property
    def milliseconds(self) -> Mapping[str, float]:
        """The time of each part, and "total", which includes the time of ONNX Runtime in between."""
        ended = self._clock() if self._ended is None else self._ended
        parts = {name: seconds * 1e3 for name, seconds in self._seconds.items()}
        return {**parts, "total": (ended - self.begun) * 1e3}

    @property
    def spent(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self.begun

    @property
    def is_watched(self) -> bool:
        """Whether a caller receives the progress, and so displays it."""
        return self._watched

    def line(self) -> str:
        """The progress in words."""
        last = self.last
        part = last.part if last is not None else READING
        of = f", {last.done} of {last.total}{' bytes' * (part == WEIGHTS)}" if last is not None and last.total else ""
        return f"a session is being made, for {self.spent:.0f} s so far: {part}{of}"

    def first_run_line(self) -> str:
        """The work of the first run in words."""
        return f"the first run compiles kernels; {self.pipelines.in_runs.pipelines} are new so far"

    # ---- pipelines

    def begin(self, pipelines: Pipelines) -> None:
        """Starts to compile the pipelines that every run of a group needs."""
        self._settling.append(pipelines)
        pipelines.begin(self._counted("creation"))

    def settle(self) -> None:
        """Waits for the compilations that `begin` started. Raises ShaderError, DeviceLostError."""
        waiting, self._settling = self._settling, []
        if not waiting:
            return
        before, total = 0, sum(it.begun for it in waiting)

        def step(done: int, _count: int) -> None:
            self.step(before + done, total)

        with self.part(PIPELINES):
            try:
                for it in waiting:
                    count = it.begun
                    it.settle(step)
                    before += count
            finally:
                for it in waiting:
                    it.leave()

    def leave(self) -> None:
        """Cancels the compilations that `begin` started."""
        waiting, self._settling = self._settling, []
        for it in waiting:
            it.leave()

    def in_a_run(self) -> Made:
        """Returns the callback for each pipeline that a run of this thread makes."""
        return self._counted("warmup" if rehearsal.is_on() else "runs")

    def _counted(self, when: str) -> Made:
        return lambda seconds: self._count(when, seconds)

    def _count(self, when: str, seconds: float) -> None:
        with self._lock:
            known = self._counts[when]
            self._counts[when] = PipelineCount(known.pipelines + 1, known.seconds + seconds)

    @property
    def pipelines(self) -> PipelineCounts:
        """The numbers of pipelines, by when they were made."""
        with self._lock:
            counts = dict(self._counts)
        return PipelineCounts(counts["creation"], counts["warmup"], counts["runs"])
