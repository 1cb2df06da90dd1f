"""What the Python interface learns about sessions that ONNX Runtime makes.

In: providers and errors, from the callbacks. Out: `watching()`, what happened on this thread during a call that makes a
session and the options that the call was given, and `live()`, the providers of all sessions that exist. ONNX Runtime gives
a provider no way to know its session, and turns errors into text, so this is the only link.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ..live import LiveSet

if TYPE_CHECKING:
    from ..runtime.making import Making
    from .ahead import Ahead
    from .context.kept_model import KeptModel


class Watched(Protocol):
    """A provider, as far as callers of ONNX Runtime see it. `state` is its SessionState, None when that cannot be."""

    number: int

    @property
    def state(self) -> Any: ...

    @property
    def refusal(self) -> BaseException | None: ...


_thread = threading.local()
_live: LiveSet[Watched] = LiveSet()


class _Kept:
    """An error that lives as long as this object."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


@dataclass
class Watch:
    """Providers made and errors raised in callbacks, in order; `carried` are those in calls that cannot fail. `source` is the
    model, a file name or its bytes; `options` are provider options of this session alone, as text; `feeds` are the inputs of a
    run, by name; `making` is how a session is made, and `ahead` what is done for it meanwhile. `opened` is the compiled model that
    ONNX Runtime gets instead of the source; `keeps` says whether one is to be kept.

    It is in effect while `lasts` is held: `with watching(...) as watch, watch.lasts:`. A lock is released in C code, whatever
    interrupts the block, and a traceback may keep this object for long after it.
    """

    source: str | bytes
    options: Mapping[str, str] = field(default_factory=dict)
    feeds: Mapping[str, Any] = field(default_factory=dict)
    making: Making | None = None
    ahead: Ahead | None = None
    opened: KeptModel | None = None
    keeps: bool = False
    providers: list[Watched] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    carried: list[BaseException] = field(default_factory=list)
    kept: list[_Kept] = field(default_factory=list)
    lasts: threading.Lock = field(default_factory=threading.Lock)

    def reason(self) -> BaseException | None:
        """The interrupt if there was one, else an error that was carried, else the first; this object then keeps none."""
        found = [*self.carried, *self.errors, *(it.error for it in self.kept)]
        self.carried, self.errors, self.kept = [], [], []
        interrupts = [it for it in found if not isinstance(it, Exception)]
        return next(iter([*interrupts, *found]), None)


class watching:
    """A Watch for what callbacks on this thread do during the `with`, which makes a session of the model `source` or runs one.

    Not a generator, whose end an interrupt could prevent. The thread has a weak reference to the Watch: one whose `with`
    did not end in order is gone all the same.
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
    return watch if watch is not None and watch.lasts.locked() else None


def made(provider: Watched) -> None:
    """Notes a new provider."""
    _live.add(provider)
    watch = _current()
    if watch is not None:
        watch.providers.append(provider)


def ended(provider: Watched) -> None:
    """Notes that ONNX Runtime released a provider, which may live on."""
    _live.discard(provider)


def is_watched() -> bool:
    """Whether a Watch collects what happens on this thread."""
    return _current() is not None


def went_wrong(error: BaseException) -> None:
    """Notes an error that a callback passes on as text."""
    watch = _current()
    if watch is not None:
        watch.errors.append(error)


def carry(error: BaseException) -> None:
    """Notes an exception that is not reported to ONNX Runtime, in a call that cannot fail."""
    watch = _current()
    if watch is not None:
        watch.carried.append(error)


def keep(error: BaseException) -> Callable[[], BaseException | None]:
    """Why a session must not be, for its provider to keep: a function that gives it.

    When a Watch collects what happens on this thread, the error lives as long as the Watch and not as long as the provider.
    Its traceback has the frames that make the session, these have ONNX Runtime's session, and that has the provider:
    a circle that the garbage collector does not see.
    """
    watch = _current()
    if watch is None:
        return lambda: error
    kept = _Kept(error)
    watch.kept.append(kept)
    ref = weakref.ref(kept)

    def recall() -> BaseException | None:
        found = ref()
        return None if found is None else found.error

    return recall


def source() -> str | bytes | None:
    """The model of which this thread is making a session, when that is known."""
    watch = _current()
    return None if watch is None else watch.source


def options() -> Mapping[str, str]:
    """The provider options that the session which this thread is making was given beside its SessionOptions."""
    watch = _current()
    return {} if watch is None else watch.options


def making() -> Making | None:
    """How the session is made that this thread is making, where its maker watches that."""
    watch = _current()
    return None if watch is None else watch.making


def ahead() -> Ahead | None:
    """What is done meanwhile for the session that this thread is making."""
    watch = _current()
    return None if watch is None else watch.ahead


def opened() -> KeptModel | None:
    """The compiled model that ONNX Runtime has instead of the source of the session that this thread is making."""
    watch = _current()
    return None if watch is None else watch.opened


def keeps() -> bool:
    """Whether a compiled model of the session that this thread is making is to be kept."""
    watch = _current()
    return watch is not None and watch.keeps


def inputs_of_bytes(nbytes: int) -> str:
    """The inputs of the run on this thread that have so many bytes, in words; "" when that is not known."""
    watch = _current()
    feeds = {} if watch is None else watch.feeds
    names = [repr(name) for name, value in feeds.items() if getattr(value, "nbytes", None) == nbytes]
    return f"input {' or '.join(names)}" if names else ""


def live() -> list[Watched]:
    """The providers of all sessions of this process, oldest first."""
    return sorted(_live, key=lambda provider: provider.number)
