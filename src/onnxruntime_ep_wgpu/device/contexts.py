"""Which sessions share a device. In: an adapter, a number (the option deviceId), a library, settings. Out: `Context`, its device.

A context is an adapter, a number, a library, the settings of its device, and the device while it is needed: made when first
asked for, made anew after a loss, released when the last session has left and the last tensor on it is gone. Number 0 is an
adapter's shared context, the others are devices of their own.

Invariants: one context per adapter, number and library, and so one device with one set of caches; the settings of a context in use
never change, a session that asks for others is refused.
"""

from __future__ import annotations

import atexit
import dataclasses
import threading
import weakref
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import process
from ..errors import DeviceError, OptionError
from ..fields import option_names
from ..live import LiveSet
from ..program.target import Target
from ..threads import begin_ahead
from .adapters import Adapter
from .choice import checked_matrices
from .settings import DEFAULT, Settings
from .webgpu import libraries

if TYPE_CHECKING:
    from .device import Device

ALL = frozenset(field.name for field in dataclasses.fields(Settings))


class Member:
    """A session's part in a context, from `Context.join` until `leave`, or until nothing refers to it.

    It is what keeps the device, so no count of sessions can go wrong: not by an interrupt between joining and noting it.
    """

    __slots__ = ("__weakref__", "_leave", "device", "held")

    def __init__(self, leave: Callable[[Member], None]) -> None:
        self._leave = leave
        self.device: Device | None = None
        self.held: Any = None  # what else lives as long

    def leave(self) -> None:
        """The session ends. For finalisers too: no lock is taken."""
        self._leave(self)
        self.device = self.held = None


class Context:
    """A device that sessions share. Use `context_of`. Thread safe."""

    def __init__(self, adapter: Adapter, number: int, library: str = "", checked: bool = False) -> None:
        """`library`: the name of one, "" for the adapter's own. `checked`: kernels test every index, where that is of a device."""
        self.adapter = adapter
        self.number = number
        self.library = library or adapter.library.name
        self.checked = checked
        self.settings = DEFAULT
        self._members: LiveSet[Member] = LiveSet()
        self._preserved = False
        # The device while the context itself keeps it, and wherever it is while anybody does.
        self._kept: Device | None = None
        self._device: weakref.ref[Device] | None = None
        self._lock = threading.RLock()  # `join` calls `agree`

    @property
    def key(self) -> ContextKey:
        return self.adapter.index, self.number, self.library, self.checked

    @property
    def view(self) -> Adapter:
        """The adapter through the library and graphics API of the context."""
        return self.adapter.through(self.settings.backend, self.library)

    def __repr__(self) -> str:
        return f"Context({self.adapter.name!r}, {self.number}, {self.sessions} sessions)"

    @property
    def sessions(self) -> int:
        """How many sessions use it."""
        return len(self._members)

    @property
    def target(self) -> Target:
        """What lowering may rely on here; opens a device only to probe matrix units, once per driver."""
        return self.view.target(self.settings, checked_matrices(self.view))

    @property
    def users(self) -> str:
        """What uses the context, in words; empty when nothing does and its settings are free."""
        if self.sessions:
            return "1 session uses" if self.sessions == 1 else f"{self.sessions} sessions use"
        if self._preserved:
            return "preserveDevice keeps"
        return "tensors use" if self.current() is not None else ""

    def current(self) -> Device | None:
        """The device, when there is one that is not lost."""
        device = self._device() if self._device is not None else None
        return None if device is None or device.lost else device

    def device(self) -> Device:
        """The live device: made on first use, made anew after a loss. Raises DeviceError when the adapter refuses.

        Whoever holds on to it, as tensors do, keeps it alive after the last session.
        """
        process.check_not_forked()
        with self._lock:
            device = self.current()
            if device is None:
                device = self._open()
                self._device = weakref.ref(device)
            for member in self._members:
                member.device = device
            if self._preserved:
                self._kept = device
            return device

    def open_ahead(self) -> Opening:
        """Begins to open the device on another thread, for which a driver takes long. What fails is said when it is used."""
        opening = Opening(self)
        if self.current() is None:
            _openings.add(opening)
            begin_ahead(opening.open)
        return opening

    def _open(self) -> Device:
        from .device import Device  # with all that works on a device, which listing does without
        from .request import request_device

        return Device(self.view, self.target, partial(request_device, checked=self.checked), self.settings)

    def agree(self, settings: Settings, asked: Collection[str] = ALL) -> None:
        """Gives the context these settings; one that is in use must have them. Raises OptionError, also for an API that
        does not reach the adapter.

        `asked` names the fields that matter; in the others a context in use stays as it is.
        """
        with self._lock:
            self.adapter.through(settings.backend, self.library)
            users = self.users
            if not users:
                self.settings = settings
                return
            for field in dataclasses.fields(Settings):
                has, wants = getattr(self.settings, field.name), getattr(settings, field.name)
                if field.name in asked and has != wants:
                    raise OptionError(
                        f"option {option_names(field)[0]!r}: {wants!r} contradicts {has!r}, with which {users} the device"
                        f" (deviceId {self.number} of {self.adapter.name!r}) already;"
                        " another deviceId gives a device of its own"
                    )

    def join(self, settings: Settings = DEFAULT, asked: Collection[str] = ALL, preserve: bool = False) -> Member:
        """A session begins; the device stays while the session holds the result, and with `preserve` for good. Raises like
        `agree`."""
        with self._lock:
            self.agree(settings, asked)
            member = Member(self._members.discard)
            member.device = self.current()
            self._members.add(member)
            if preserve:
                self._preserved, self._kept = True, member.device
            return member


class Opening:
    """A device that a thread opens before it is needed; see `Context.open_ahead`. The process does not end while a driver works."""

    def __init__(self, context: Context) -> None:
        self._context, self._wanted = context, True

    def open(self) -> None:
        """Opens it, unless it is not wanted any more."""
        with suppress(Exception), self._context._lock:
            if self._wanted:
                self._context.device()

    def end(self) -> None:
        """It is not wanted any more, or in use: returns when no driver works on it."""
        self._wanted = False
        with self._context._lock:
            pass


_openings: LiveSet[Opening] = LiveSet()


@atexit.register
def _end_openings() -> None:
    for opening in () if process.forked else _openings:
        opening.end()


ContextKey = tuple[int, int, str, bool]
_contexts: dict[ContextKey, Context] = {}
_contexts_lock = threading.Lock()


def context_of(adapter: Adapter, number: int = 0, library: str = "", checked: bool = False) -> Context:
    """The context of an adapter with this number (0: the shared one), of the library of this name, else of the usual one.
    `checked`: kernels test every index; where that is of a device, it is another one. Raises DeviceError for a library that cannot
    be opened, or does not see the adapter."""
    process.check_not_forked()
    name = library or libraries.usual()
    adapter.through("", name)
    made = Context(adapter, number, name, checked and not libraries.named(name).module_checks)
    with _contexts_lock:
        return _contexts.setdefault(made.key, made)


def shared_context(adapter: Adapter) -> Context:
    """The context of an adapter for memory that is no session's: of the usual library, or of the one that is always there, where
    the usual one cannot be used; a session says why."""
    try:
        return context_of(adapter)
    except DeviceError:
        return context_of(adapter, 0, libraries.base().name)


def contexts() -> list[Context]:
    """All contexts that were asked for so far."""
    with _contexts_lock:
        return list(_contexts.values())


def claim(new: Context) -> Context:
    """Registers a context that was made elsewhere under its number. Raises OptionError when the number is in use."""
    with _contexts_lock:
        old = _contexts.get(new.key)
        if old is not None and old.users:
            raise OptionError(f"option 'deviceId': {new.number} is another device, which {old.users} already")
        _contexts[new.key] = new
        return new


def release(context: Context) -> None:
    """Forgets a context."""
    with _contexts_lock:
        if _contexts.get(context.key) is context:
            del _contexts[context.key]


def open_device(adapter: Adapter, context: int = 0, settings: Settings | None = None) -> Device:
    """A context's device, for work outside sessions; it lives as long as it is held, or as sessions keep it.

    Without `settings` those that the context has. Raises OptionError like `Context.agree`, DeviceError when the adapter
    refuses.
    """
    here = context_of(adapter, context)
    if settings is not None:
        here.agree(settings)
    return here.device()
