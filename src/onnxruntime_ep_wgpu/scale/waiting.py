"""The bounded queue of requests, from which devices take batches.

In: requests with their kind, rows and arrival time. Out: batches of one kind each, in the order of their oldest requests. A
batch is complete when it has `max_batch` rows, when its oldest request has waited `max_wait` seconds, or when the queue is
closed. Invariants: a cancelled request leaves the queue at once, and a taken one ends with a result or an error.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field

from ..errors import DeviceError, PoolClosedError, QueueFullError
from .clock import PoolClock
from .requests import Outputs, Request


@dataclass
class _Group:
    """The waiting requests of one kind, in order of arrival."""

    requests: deque[Request] = field(default_factory=deque)
    rows: int = 0


class Groups:
    """Waiting requests by kind. Has no lock and no clock of its own."""

    def __init__(self, max_batch: int, max_wait: float) -> None:
        self._max_batch, self._max_wait = max_batch, max_wait
        self._groups: dict[Hashable, _Group] = {}
        self.size = 0

    def add(self, request: Request) -> None:
        self._add([request]).requests.append(request)

    def put_back(self, batch: list[Request]) -> None:
        """Puts a batch that was taken back to the front."""
        self._add(batch).requests.extendleft(reversed(batch))

    def _add(self, batch: list[Request]) -> _Group:
        group = self._groups.setdefault(batch[0].kind, _Group())
        group.rows += sum(request.rows for request in batch)
        self.size += len(batch)
        return group

    def remove(self, request: Request) -> bool:
        """Removes a request. Returns whether it was here."""
        group = self._groups.get(request.kind)
        if group is None or request not in group.requests:
            return False
        group.requests.remove(request)
        self._removed(request.kind, group, [request])
        return True

    def take(self, now: float, at_once: bool = False) -> list[Request]:
        """Takes the complete batch with the oldest request, or with `at_once` an incomplete one. Empty if there is none."""
        complete = [
            (group.requests[0].since, kind, group)
            for kind, group in self._groups.items()
            if at_once or now >= self._due(kind, group)
        ]
        if not complete:
            return []
        _, kind, group = min(complete, key=lambda it: it[0])
        taken, rows = [group.requests.popleft()], 0
        while kind is not None and group.requests:
            rows += taken[-1].rows
            if rows + group.requests[0].rows > self._max_batch:
                break
            taken.append(group.requests.popleft())
        self._removed(kind, group, taken)
        return taken

    def _removed(self, kind: Hashable, group: _Group, gone: list[Request]) -> None:
        group.rows -= sum(request.rows for request in gone)
        self.size -= len(gone)
        if not group.requests:
            del self._groups[kind]

    def next_due(self) -> float | None:
        """Returns the time when the next batch becomes complete without new arrivals."""
        return min((self._due(kind, group) for kind, group in self._groups.items()), default=None)

    def _due(self, kind: Hashable, group: _Group) -> float:
        full = kind is None or group.rows >= self._max_batch
        return group.requests[0].since + (0.0 if full else self._max_wait)

    def clear(self) -> list[Request]:
        """Removes and returns all requests."""
        left = [request for group in self._groups.values() for request in group.requests]
        self._groups.clear()
        self.size = 0
        return left


class Waiting:
    """The queue with its lock, for `takers` threads that take batches. At most `size` requests may wait."""

    def __init__(self, size: int, groups: Groups, clock: PoolClock, takers: int) -> None:
        self.changed = threading.Condition()
        self._size, self._groups, self._clock, self._takers = size, groups, clock, takers
        self._closed: BaseException | None = None
        self.submitted = self.cancelled = self.refused = self.failed = 0

    def __len__(self) -> int:
        return self._groups.size

    def put(self, request: Request, block: bool) -> None:
        """Appends a request. If the queue is full, waits for room or raises QueueFullError. Raises PoolClosedError."""
        with self.changed:
            while self._closed is None and self._groups.size >= self._size:
                if not block:
                    self.refused += 1
                    raise QueueFullError(
                        f"{self._groups.size} requests wait, and the queue takes {self._size}: submit later, or make the pool with"
                        " overflow='block' or a larger queue_size"
                    )
                self._clock.wait(self.changed, None)
            if self._closed is not None:
                raise PoolClosedError(f"this SessionPool takes no requests: {self._closed}") from self._closed
            request.since = self._clock.now()
            self._groups.add(request)
            self.submitted += 1
            self.changed.notify_all()
        request.future.add_done_callback(lambda future: self._forget(request, future))

    def _forget(self, request: Request, future: Future[Outputs]) -> None:
        """Removes a cancelled request, which makes room."""
        if not future.cancelled():
            return
        with self.changed:
            removed = self._groups.remove(request)
            self.cancelled += removed
            self.changed.notify_all()
        if removed:
            request.starts()  # wakes threads that wait for several futures at once

    def take(self) -> list[Request]:
        """Waits for a batch. Returns [] when the queue is closed and empty; then the thread must stop."""
        with self.changed:
            while True:
                taken = self._groups.take(self._clock.now(), at_once=self._closed is not None)
                batch = [request for request in taken if request.starts()]
                self.cancelled += len(taken) - len(batch)
                if taken:
                    self.changed.notify_all()  # the queue has room
                elif self._closed is not None:
                    self._takers -= 1
                    return []
                else:
                    self._clock.wait(self.changed, self._groups.next_due())
                if batch:
                    return batch

    def leave(self, batch: list[Request], error: BaseException) -> None:
        """Removes a thread with a lost device. Other threads take its batch. Without others, all current and later requests
        fail."""
        with self.changed:
            self._takers -= 1
            self._groups.put_back(batch)
            failing: list[Request] = []
            if not self._takers:
                self._closed = DeviceError(f"no device of this SessionPool is left: {error}")
                self._closed.__cause__ = error
                taken = self._groups.clear()
                failing = [request for request in taken if request.starts()]
                self.cancelled += len(taken) - len(failing)
                self.failed += len(failing)
            self.changed.notify_all()
        for request in failing:
            reason = DeviceError(f"no device of this SessionPool is left: {error}")
            reason.__cause__ = error
            request.future.set_exception(reason)

    def close(self, cancel: bool = False) -> None:
        """Stops accepting requests. Waiting ones run, or are cancelled."""
        with self.changed:
            self._closed = self._closed or PoolClosedError("it was closed")
            waiting = self._groups.clear() if cancel else []
            left = [request for request in waiting if not request.started]
            for request in waiting:
                if request.started:  # it was put back by a thread that left
                    self._groups.add(request)
            self.cancelled += len(left)
            self.changed.notify_all()
        for request in left:
            request.future.cancel()
            request.starts()  # wakes threads that wait for several futures at once
