"""Sessions on several devices of this process, behind one queue.

In: a model and devices; requests, each with the inputs of a run. Out: the outputs of each, as futures or in order. Invariants:
every accepted request ends with its outputs, with an error, or cancelled. A pool ends its threads when it is closed, when it is
garbage-collected, and at the end of the process.
"""

from __future__ import annotations

import atexit
import math
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Unpack

from ..errors import ForkError, OptionError, cut
from ..live import LiveSet
from ..options.types import ProviderOptions
from .clock import PoolClock, RealClock
from .requests import Feeds, Outputs, Request
from .runner import Runner
from .statistics import PoolStatistics
from .waiting import Groups, Waiting
from .workers import Worker

if TYPE_CHECKING:
    import onnxruntime as ort

_open: LiveSet[SessionPool] = LiveSet()


class SessionPool:
    """Sessions of one model on several devices. Each request goes to the first free one.

    - `model`: a path or bytes, as for `session()`; or a function from a device to a session, for custom SessionOptions.
    - `devices`: as for `session(device=...)`. A device that is listed twice gets two sessions. By default, all adapters of this
      process; software adapters only if there is no other.
    - `options`, `free_dimensions`, `allow_cpu_only`: as for `session()`.
    - `output_names`: the outputs of each request, in this order.
    - `max_batch`: above 1, requests are joined to one run along their first axis, up to so many rows. They must have equal
      types and equal sizes of other axes. A request with more rows runs alone.
    - `max_wait`: seconds that a batch waits for more requests, counted from its oldest one.
    - `queue_size`: the number of requests that may wait. If the queue is full, `submit` waits for room (`overflow="block"`) or
      raises QueueFullError ("raise").

    Batching requires that the first axis of every input and output is the same symbolic dimension; otherwise BatchError names
    the tensor. Rows must not depend on each other in the model.

    If a batch fails, each of its requests runs alone, so that only faulty ones fail. If a device is lost, its session is
    reopened and the batch runs once more. A device that cannot be reopened leaves the pool, and others take its requests.

    All methods may be called from any thread. Raises OptionError, BatchError, and what `session()` raises.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes | Callable[[Any], ort.InferenceSession],
        *,
        devices: Sequence[Any] | None = None,
        max_batch: int = 1,
        max_wait: float = 0.0,
        queue_size: int = 1024,
        overflow: Literal["block", "raise"] = "block",
        output_names: Sequence[str] | None = None,
        free_dimensions: Mapping[str, int] | None = None,
        allow_cpu_only: bool = False,
        _clock: PoolClock | None = None,
        **options: Unpack[ProviderOptions],
    ) -> None:
        _check(max_batch, max_wait, queue_size, overflow)
        clock = _clock or RealClock()
        opens = _session_maker(model, dict(options), free_dimensions, allow_cpu_only)
        chosen = _default_devices() if devices is None else list(devices)
        if not chosen:
            raise OptionError("devices: an empty list; leave it out for all adapters of this process")
        self._blocks, self._window = overflow == "block", queue_size + max_batch * len(chosen)
        self._process = os.getpid()
        runners = [Runner(partial(opens, it), output_names, max_batch > 1) for it in chosen]
        self._axis = runners[0].axis
        self._waiting = Waiting(queue_size, Groups(max_batch, max_wait), clock, len(runners))
        self._workers = [
            Worker(_name(device), runner, self._waiting, clock) for device, runner in zip(chosen, runners, strict=True)
        ]
        for worker in self._workers:
            worker.thread.start()
        weakref.finalize(self, self._waiting.close).atexit = False
        _open.add(self)

    def submit(self, feeds: Mapping[str, Any]) -> Future[list[Any]]:
        """Queues a request: arrays by input name. Returns a future of the list of output arrays, as `session.run` returns it.

        The future raises the run's error; `future.cancel()` removes a request that has not started. The arrays must not change
        before the future is done. Raises QueueFullError, PoolClosedError, and InputError for inputs that do not fit a batch.
        """
        return self._put(feeds, self._blocks)

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """Runs one request and returns its outputs. Requests of other threads may be in the same batch."""
        future = self.submit(feeds)
        try:
            return future.result()
        finally:
            future.cancel()  # if the wait was interrupted

    def map(self, requests: Iterable[Mapping[str, Any]], *, return_exceptions: bool = False) -> Iterator[Any]:
        """Yields the outputs of requests in order, each a list of arrays.

        Reads ahead at most as many requests as may wait or run, and cancels these if the iteration ends early. Waits if the
        queue is full, regardless of `overflow`.

        A failed request raises its error in its turn or, with `return_exceptions`, yields the error as its result.
        """
        ahead: deque[Future[Outputs]] = deque()

        def result() -> Any:
            future = ahead.popleft()
            error = future.exception() if return_exceptions else None
            return future.result() if error is None else error

        try:
            for feeds in requests:
                ahead.append(self._put(feeds, True))
                while ahead and (ahead[0].done() or len(ahead) >= self._window):
                    yield result()
            while ahead:
                yield result()
        finally:
            for future in ahead:
                future.cancel()

    def _put(self, feeds: Feeds, block: bool) -> Future[Outputs]:
        if os.getpid() != self._process:
            raise ForkError(
                "this process was forked from the one that made the SessionPool, whose threads do not exist here: make a"
                ' pool in each process, and start processes with multiprocessing.get_context("spawn")'
            )
        request = Request(feeds) if self._axis is None else Request(*self._axis.measure(feeds))
        self._waiting.put(request, block)
        return request.future

    def statistics(self) -> PoolStatistics:
        """Returns the pool's counters so far."""
        queue = self._waiting
        with queue.changed:
            devices = tuple(worker.statistics for worker in self._workers)
            failed = queue.failed + sum(it.failed for it in devices)
            ended = queue.failed + queue.cancelled + sum(it.requests for it in devices)
            return PoolStatistics(
                submitted=queue.submitted,
                waiting=len(queue),
                running=queue.submitted - len(queue) - ended,
                completed=sum(it.requests - it.failed for it in devices),
                failed=failed,
                cancelled=queue.cancelled,
                refused=queue.refused,
                waited_seconds=sum(worker.waited for worker in self._workers),
                devices=devices,
            )

    def close(self, *, cancel: bool = False) -> None:
        """Stops accepting requests, and waits until queued ones have run; `cancel` cancels them. Further calls do nothing."""
        self._waiting.close(cancel)
        for worker in self._workers:
            worker.join()

    def __enter__(self) -> SessionPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _trace: object) -> None:
        self.close(cancel=kind is not None)


@atexit.register
def _close_all() -> None:
    """Closes all pools. A thread that runs a model while Python shuts down would crash the process."""
    for pool in _open:
        if os.getpid() == pool._process:
            pool.close(cancel=True)


def _check(max_batch: Any, max_wait: Any, queue_size: Any, overflow: Any) -> None:
    for name, value in (("max_batch", max_batch), ("queue_size", queue_size)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise OptionError(f"{name}: {cut(value)} is not an integer of at least 1")
    number = isinstance(max_wait, int | float) and not isinstance(max_wait, bool)
    if not number or not 0 <= max_wait < math.inf:
        raise OptionError(f"max_wait: {cut(max_wait)} is not a number of seconds from 0 on")
    if overflow not in ("block", "raise"):
        raise OptionError(f"overflow: {cut(overflow)} is not valid; valid: 'block', 'raise'")


def _session_maker(
    model: Any, options: dict[str, Any], free_dimensions: Mapping[str, int] | None, allow_cpu_only: bool
) -> Callable[[Any], Any]:
    """Returns the function from a device to a session."""
    if not callable(model):
        from ..api.session import session

        more = {"free_dimensions": free_dimensions, "allow_cpu_only": allow_cpu_only, **options}
        return lambda device: session(model, device=device, **more)
    given = [*options, *["free_dimensions"] * bool(free_dimensions), *["allow_cpu_only"] * allow_cpu_only]
    if given:
        raise OptionError(
            f"{given[0]}: the function that makes sessions must set their options; pass it to session() there"
        )
    return model  # type: ignore[no-any-return,unused-ignore]


def _default_devices() -> list[Any]:
    """Returns the default devices. Software adapters are excluded beside a GPU, as they would only delay requests."""
    from ..api.devices import devices

    found = devices()
    return [it for it in found if "software" not in it.ep_metadata] or found


def _name(device: Any) -> str:
    return str(getattr(device, "ep_metadata", {}).get("name", device))
