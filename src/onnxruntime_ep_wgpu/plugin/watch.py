"""Data about the sessions that ONNX Runtime makes, for the Python interface.

In: providers and errors, from the callbacks. Out: `watching()` collects the events of a thread during a call that makes a
session, and passes on the options of that call. `live()` returns the providers of all sessions that exist. ONNX Runtime gives a
provider no reference to its session, and turns errors into text, so there is no other connection.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ..live import LiveSet

if TYPE_CHECKING:
    from ..device import Context
    from ..runtime.making import Making
    from .context.kept_model import KeptModel
    from .preparation import SessionPreparation


class Watched(Protocol):
    """A provider, as callers of ONNX Runtime see it. `state`: its SessionState; None if the session is refused."""

    number: int

    @property
    def state(self) -> Any: ...

    @property
    def refusal(self) -> BaseException | None: ...


_thread = threading.local()
_live: LiveSet[Watched] = LiveSet()


class _KeptError:
    """An error that lives as long as this object."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


@dataclass
class Watch:
    """The providers that callbacks made and the errors that they raised, in order.

    - `deferred`: errors in calls that cannot fail.
    - `source`: the model, as a file name or bytes.
    - `options`: provider options of this session alone, as text.
    - `feeds`: the inputs of a run, by name.
    - `making`: the record of a session's making; `preparation`: the work for the session in the meantime.
    - `opened`: the compiled model that ONNX Runtime gets instead of the source.
    - `keeps_model`: whether to keep a compiled model.
    - `memory`: the context of memory that this thread allocates outside sessions; None for the usual one.

    It is in effect while `active` is held: `with watching(...) as watch, watch.active:`. C code releases the lock, even if an
    interrupt ends the block. A traceback may keep this object for a long time afterwards.
    """

    source: str | bytes
    options: Mapping[str, str] = field(default_factory=dict)
    feeds: Mapping[str, Any] = field(default_factory=dict)
    making: Making | None = None
    preparation: SessionPreparation | None = None
    opened: KeptModel | None = None
    keeps_model: bool = False
    memory: Context | None = None
    providers: list[Watched] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    deferred: list[BaseException] = field(default_factory=list)
    kept: list[_KeptError] = field(default_factory=list)
    active: threading.Lock = field(default_factory=threading.Lock)

    def reason(self) -> BaseException | None:
        """Returns the interrupt if there was one, else a deferred error, else the first error. Drops all of them."""
        found = [*self.deferred, *self.errors, *(it.error for it in self.kept)]
        self.deferred, self.errors, self.kept = [], [], []
        interrupts = [it for it in found if not isinstance(it, Exception)]
        return next(iter([*interrupts, *found]), None)


class watching:
    """A Watch for callbacks on this thread during the `with`, which makes a session of the model `source` or runs one.

    Not a generator, because an interrupt could prevent its end. The thread has a weak reference to the Watch, so a Watch
    ends even if its `with` did not end in order.
    """

    def __init__(
        self,
        source: str | bytes,
        options: Mapping[str, str] | None = None,
        feeds: Mapping[str, Any] | None = None,
        making: Making | None = None,
    ) -> None:
        self._watch = Watch(source, options or {}, feeds or {}, making)
        self._outer = getattr(_thread, "watch", None)

    def __enter__(self) -> Watch:
        watch, ref = self._watch, weakref.ref(self._watch)
        _thread.watch = ref
        return watch

    def __exit__(self, *_: object) -> None:
        _thread.watch = self._outer


def _current() -> Watch | None:
    ref = getattr(_thread, "watch", None)
    watch: Watch | None = None if ref is None else ref()
    return watch if watch is not None and watch.active.locked() else None


def add_provider(provider: Watched) -> None:
    """Records a new provider."""
    _live.add(provider)
    watch = _current()
    if watch is not None:
        watch.providers.append(provider)


def remove_provider(provider: Watched) -> None:
    """Records that ONNX Runtime released a provider. The object may live on."""
    _live.discard(provider)


def is_watched() -> bool:
    """Returns whether a Watch collects the events of this thread."""
    return _current() is not None


def record_error(error: BaseException) -> None:
    """Records an error that a callback passes on as text."""
    watch = _current()
    if watch is not None:
        watch.errors.append(error)


def record_deferred(error: BaseException) -> None:
    """Records an exception in a call that cannot fail, which ONNX Runtime does not receive."""
    watch = _current()
    if watch is not None:
        watch.deferred.append(error)


def keep_error(error: BaseException) -> Callable[[], BaseException | None]:
    """Stores the error that refuses a session, for its provider. Returns a function that returns the error.

    If a Watch collects the events of this thread, the error lives as long as the Watch, and not as long as the provider. Its
    traceback refers to the frames that make the session, these refer to ONNX Runtime's session, and that refers to the
    provider. The garbage collector does not see this cycle.
    """
    watch = _current()
    if watch is None:
        return lambda: error
    kept = _KeptError(error)
    watch.kept.append(kept)
    ref = weakref.ref(kept)

    def recall() -> BaseException | None:
        found = ref()
        return None if found is None else found.error

    return recall


def source() -> str | bytes | None:
    """Returns the model of the session that this thread is making, if known."""
    watch = _current()
    return None if watch is None else watch.source


def options() -> Mapping[str, str]:
    """Returns the provider options, besides its SessionOptions, of the session that this thread is making."""
    watch = _current()
    return {} if watch is None else watch.options


def making() -> Making | None:
    """Returns the record of the making of this thread's session, if the caller watches it."""
    watch = _current()
    return None if watch is None else watch.making


def preparation() -> SessionPreparation | None:
    """Returns the work in the meantime for the session that this thread is making."""
    watch = _current()
    return None if watch is None else watch.preparation


def opened() -> KeptModel | None:
    """Returns the compiled model that ONNX Runtime gets instead of the source, for the session that this thread is making."""
    watch = _current()
    return None if watch is None else watch.opened


def keeps_model() -> bool:
    """Returns whether to keep a compiled model of the session that this thread is making."""
    watch = _current()
    return watch is not None and watch.keeps_model


def memory() -> Context | None:
    """Returns the context of memory that this thread allocates outside sessions; None for the usual one."""
    watch = _current()
    return None if watch is None else watch.memory


def inputs_of_bytes(nbytes: int) -> str:
    """Returns, in words, the inputs with this number of bytes, of the run on this thread; "" if unknown."""
    watch = _current()
    feeds = {} if watch is None else watch.feeds
    names = [repr(name) for name, value in feeds.items() if getattr(value, "nbytes", None) == nbytes]
    return f"input {' or '.join(names)}" if names else ""


def live() -> list[Watched]:
    """Returns the providers of all sessions of this process, oldest first."""
    return sorted(_live, key=lambda provider: provider.number)
