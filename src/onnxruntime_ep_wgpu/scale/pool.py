"""Sessions on several devices of this process, behind one queue.

In: a model and devices; requests, each with the inputs of a run. Out: the outputs of each, as futures or in order. Invariants:
every request that was taken ends with its outputs, with its error, or cancelled; a pool that is closed, forgotten or left to the
end of the process ends its threads.
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
    """Sessions of one model on several devices; each request goes to the one that is free first.

    `model` is what `session()` takes: a path or bytes; or a function of a device which makes the session, for one with
    SessionOptions of its own. `devices` are what `session(device=...)` takes; an entry that is there twice gets two sessions. By
    default they are all adapters of this process, those of software only where there is no other. `options`, `free_dimensions` and
    `allow_cpu_only` are those of `session()`, and `output_names` those outputs that requests get, in this order.

    `max_batch` above 1 joins requests to one run along their first axis, up to so many rows: those that have equal types and equal
    sizes of other axes. A request of more rows runs alone. A batch waits `max_wait` seconds for more requests, counted from its
    oldest one. The first axis of every input and output has to be the same symbolic dimension; another is a BatchError that names
    it. Rows must not depend on each other in the model.

    `queue_size` requests may wait; when they do, `submit` waits for room (`overflow="block"`) or raises QueueFullError ("raise").
    Where a batch fails, each of its requests is run alone, so that one fails alone. When a device is lost its session is made anew
    and the batch is run once more. A device that cannot be opened again leaves the pool, and others take its requests.

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
        opens = _opens(model, dict(options), free_dimensions, allow_cpu_only)
        chosen = _usual() if devices is None else list(devices)
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
        """Queues a request: arrays by the names of inputs. The future gives a list of arrays, as `session.run` does, or raises what
        the run raised; `future.cancel()` takes a request out that has not begun. The arrays must not be changed before.

        Raises QueueFullError, PoolClosedError, and InputError for inputs that cannot be in a batch, with names.
        """
        return self._put(feeds, self._blocks)

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """The outputs of one request; other threads' requests may be in the same batch."""
        future = self.submit(feeds)
        try:
            return future.result()
        finally:
            future.cancel()  # when waiting was interrupted

    def map(self, requests: Iterable[Mapping[str, Any]], *, return_exceptions: bool = False) -> Iterator[Any]:
        """The outputs of requests in their order, each a list of arrays. At most as many are read ahead as may wait or run;
        they are cancelled when the iteration ends early. It waits where the queue is full, whatever `overflow` says.

        A request that fails raises its error at its place, or, with `return_exceptions`, gives the error as its result.
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
        """What the pool has done until now."""
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
        """Takes no more requests, and waits until those that wait have run; `cancel` cancels them instead. Again: nothing."""
        self._waiting.close(cancel)
        for worker in self._workers:
            worker.join()

    def __enter__(self) -> SessionPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _trace: object) -> None:
        self.close(cancel=kind is not None)


@atexit.register
def _close_all() -> None:
    """Threads that run a model while Python ends would end the process badly."""
    for pool in _open:
        if os.getpid() == pool._process:
            pool.close(cancel=True)


def _check(max_batch: Any, max_wait: Any, queue_size: Any, overflow: Any) -> None:
    for name, value in (("max_batch", max_batch), ("queue_size", queue_size)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise OptionError(f"{name}: {cut(value)} is not a whole number from 1 on")
    number = isinstance(max_wait, int | float) and not isinstance(max_wait, bool)
    if not number or not 0 <= max_wait < math.inf:
        raise OptionError(f"max_wait: {cut(max_wait)} is not a number of seconds from 0 on")
    if overflow not in ("block", "raise"):
        raise OptionError(f"overflow: {cut(overflow)} is not valid; valid: 'block', 'raise'")


def _opens(
    model: Any, options: dict[str, Any], free_dimensions: Mapping[str, int] | None, allow_cpu_only: bool
) -> Callable[[Any], Any]:
    """What makes a session on a device."""
    if not callable(model):
        from ..api.session import session

        more = {"free_dimensions": free_dimensions, "allow_cpu_only": allow_cpu_only, **options}
        return lambda device: session(model, device=device, **more)
    given = [*options, *["free_dimensions"] * bool(free_dimensions), *["allow_cpu_only"] * allow_cpu_only]
    if given:
        raise OptionError(
            f"{given[0]}: the function that makes sessions says their options; pass it to session() there"
        )
    return model  # type: ignore[no-any-return,unused-ignore]


def _usual() -> list[Any]:
    """Calculating on the CPU beside a GPU would only delay the requests that it gets."""
    from ..api.devices import devices

    found = devices()
    return [it for it in found if "software" not in it.ep_metadata] or found


def _name(device: Any) -> str:
    return str(getattr(device, "ep_metadata", {}).get("name", device))
