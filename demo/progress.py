"""Progress of a few long steps: a bar on a terminal, and a line per step elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class Steps:
    """Counts steps. `total` is an estimate that `expect` may raise; `done` ends a step and describes it."""

    def __init__(self, total: int) -> None:
        self._console = Console(stderr=True)
        self._total, self._done = total, 0
        look = (
            SpinnerColumn(),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
        )
        self._bar = Progress(*look, console=self._console) if self._console.is_terminal else None
        self._task = self._bar.add_task("starting", total=total) if self._bar else None

    def __enter__(self) -> Steps:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def expect(self, more: int) -> None:
        self._total += more
        if self._bar and self._task is not None:
            self._bar.update(self._task, total=self._total)

    def doing(self, what: str) -> None:
        if self._bar and self._task is not None:
            self._bar.update(self._task, description=what)

    def done(self, what: str) -> None:
        self._done += 1
        if self._bar and self._task is not None:
            self._bar.update(self._task, completed=self._done, description=what)
        else:
            print(f"[{self._done}/{max(self._total, self._done)}] {what}", file=sys.stderr, flush=True)
