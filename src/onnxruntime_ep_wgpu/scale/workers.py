"""A thread per device that takes batches from the queue and completes their requests."""

from __future__ import annotations

import threading
from dataclasses import replace

from .clock import PoolClock
from .requests import Request
from .runner import Runner
from .statistics import DeviceStatistics
from .waiting import Waiting


class Worker:
    """Refers to the queue and its runner but not to the pool, so that an unreferenced pool is collected."""

    def __init__(self, name: str, runner: Runner, waiting: Waiting, clock: PoolClock) -> None:
        self._runner, self._waiting, self._clock = runner, waiting, clock
        self.statistics = DeviceStatistics(name, 0, 0, 0, 0, 0, 0.0, True)
        self.waited = 0.0
        # The pool is closed at exit (pool.py). Python joins non-daemon threads before that, which would deadlock.
        self.thread = threading.Thread(target=self._work, name=f"SessionPool {name}", daemon=True)

    def join(self) -> None:
        """Waits for the end of the thread, except on the thread itself: a future's callback may close the pool."""
        if self.thread is not threading.current_thread():
            self.thread.join()

    def _work(self) -> None:
        # No variable here keeps a batch alive during the wait for the next one.
        while self._serve(self._waiting.take()):
            pass
        self._runner.close()
        with self._waiting.changed:
            self.statistics = replace(self.statistics, available=False)

    def _serve(self, batch: list[Request]) -> bool:
        """Runs a batch. Returns whether to continue."""
        if not batch:
            return False
        began = self._clock.now()
        try:
            outcomes = self._runner.run([request.feeds for request in batch], [request.rows for request in batch])
        except BaseException as error:  # the device cannot be opened again
            with self._waiting.changed:
                self.statistics = replace(self.statistics, available=False)
            self._waiting.leave(batch, error)
            return False
        failed = sum(isinstance(outcome, Exception) for outcome in outcomes)
        with self._waiting.changed:
            before = self.statistics
            self.waited += sum(began - request.since for request in batch)
            self.statistics = replace(
                before,
                batches=before.batches + 1,
                requests=before.requests + len(batch),
                rows=before.rows + sum(request.rows for request in batch),
                failed=before.failed + failed,
                reopened=self._runner.reopened,
                busy_seconds=before.busy_seconds + self._clock.now() - began,
            )
        for request, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Exception):
                request.future.set_exception(outcome)
            else:
                request.future.set_result(outcome)
        return True
