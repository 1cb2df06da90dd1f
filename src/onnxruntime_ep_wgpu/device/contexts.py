"""Which sessions share a device.

In: an adapter, a number (the option deviceId), a library, settings. Out: `Context`, with its device.

A context consists of an adapter, a number, a library, device settings and, while it is needed, a device. The device is opened on
first use and opened again after a loss. It is released when the last session has left and the last tensor on it was freed.
Number 0 is the adapter's shared context. The others are devices of their own.

Invariants: there is one context per adapter, number and library, and so one device with one set of caches. The settings of a
context in use never change. A session that requests other settings is refused.
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
from ..threads import start_ahead
from .adapters import Adapter
from .choice import checked_matrices
from .settings import DEFAULT, Settings
from .webgpu import libraries

if TYPE_CHECKING:
    from .device import Device

ALL = frozenset(field.name for field in dataclasses.fields(Settings))


class Member:
    """A session's membership in a context, from `Context.join` until `leave`, or until nothing refers to it.

    Members keep the device alive. Sessions are not counted, so an interrupt between joining and recording it does no harm.
    """

    __slots__ = ("__weakref__", "_leave", "device", "held")

    def __init__(self, leave: Callable[[Member], None]) -> None:
        self._leave = leave
        self.device: Device | None = None
        self.held: Any = None  # another object with the same lifetime

    def leave(self) -> None:
        """Call this when the session ends, also from a finaliser: it takes no lock."""
        self._leave(self)
        self.device = self.held = None


class Context:
    """A device that sessions share. Made by `context_of`. Thread safe."""

    def __init__(self, adapter: Adapter, number: int, library: str = "", checked: bool = False) -> None:
        """`library`: a name, "" for the adapter's own. `checked`: kernels check every index, if that is a property of devices."""
        self.adapter = adapter
        self.number = number
        self.library = library or adapter.library.name
        self.checked = checked
        self.settings = DEFAULT
        self._members: LiveSet[Member] = LiveSet()
        self._preserved = False
        # The reference by which the context itself keeps the device, and a weak one for the lifetime of the device.
        self._kept: Device | None = None
        self._device: weakref.ref[Device] | None = None
        self._lock = threading.RLock()  # `join` calls `apply_settings`

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
        """The number of sessions."""
        return len(self._members)

    @property
    def target(self) -> Target:
        """What lowering may rely on here. Opens a device only to probe matrix units, once per driver."""
        return self.view.target(self.settings, checked_matrices(self.view))

    @property
    def users(self) -> str:
        """The users of the context in words; empty if it has none, and then its settings may change."""
        if self.sessions:
            return "1 session uses" if self.sessions == 1 else f"{self.sessions} sessions use"
        if self._preserved:
            return "preserveDevice keeps"
        return "tensors use" if self.current() is not None else ""

    def current(self) -> Device | None:
        """Returns the open device; None if there is none or it is lost."""
        device = self._device() if self._device is not None else None
        return None if device is None or device.lost else device

    def device(self) -> Device:
        """Returns the open device. Opens it on first use and after a loss. Raises DeviceError if the adapter refuses.

        References to it, such as those of tensors, keep it alive after the last session.
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
        """Starts to open the device on another thread, because drivers take long. Errors are raised when the device is used."""
        opening = Opening(self)
        if self.current() is None:
            _openings.add(opening)
            start_ahead(opening.open)
        return opening

    def _open(self) -> Device:
        from .device import Device  # imports the modules that only a device needs
        from .request import request_device

        return Device(self.view, self.target, partial(request_device, checked=self.checked), self.settings)

    def apply_settings(self, settings: Settings, fields_set: Collection[str] = ALL) -> None:
        """Gives the context these settings, or checks that a context in use has them.

        `fields_set` are the fields that matter. A context in use keeps its values of the others. Raises OptionError if they
        differ, or if the graphics API does not reach the adapter.
        """
        with self._lock:
            self.adapter.through(settings.backend, self.library)
            users = self.users
            if not users:
                self.settings = settings
                return
            for field in dataclasses.fields(Settings):
                has, wants = getattr(self.settings, field.name), getattr(settings, field.name)
                if field.name in fields_set and has != wants:
                    raise OptionError(
                        f"option {option_names(field)[0]!r}: {wants!r} contradicts {has!r}, with which {users} the device"
                        f" (deviceId {self.number} of {self.adapter.name!r}) already;"
                        " another deviceId selects a separate device"
                    )

    def join(self, settings: Settings = DEFAULT, fields_set: Collection[str] = ALL, preserve: bool = False) -> Member:
        """Registers a session. The device stays open while the result is referenced, and with `preserve` for ever.

        Raises the errors of `apply_settings`.
        """
        with self._lock:
            self.apply_settings(settings, fields_set)
            member = Member(self._members.discard)
            member.device = self.current()
            self._members.add(member)
            if preserve:
                self._preserved, self._kept = True, member.device
            return member


class Opening:
    """A device that a thread opens in advance; see `Context.open_ahead`. The process does not exit during the driver's work."""

    def __init__(self, context: Context) -> None:
        self._context, self._wanted = context, True

    def open(self) -> None:
        """Opens the device, unless `end` was called before."""
        with suppress(Exception), self._context._lock:
            if self._wanted:
                self._context.device()

    def end(self) -> None:
        """Cancels the opening if it has not started. Otherwise returns when it is done."""
        self._wanted = False
        with self._context._lock:
            pass


_openings: LiveSet[Opening] = LiveSet()


@atexit.register
def _end_openings() -> None:
    for opening in () if process.is_forked else _openings:
        opening.end()


ContextKey = tuple[int, int, str, bool]
_contexts: dict[ContextKey, Context] = {}
_contexts_lock = threading.Lock()


def context_of(adapter: Adapter, number: int = 0, library: str = "", checked: bool = False) -> Context:
    """Returns the context of an adapter with this number (0: the shared one) and this library, "" for the usual one.

    `checked`: kernels check every index. If that is a property of devices, the context is another one. Raises DeviceError if the
    library cannot be opened or does not list the adapter.
    """
    process.check_not_forked()
    name = library or libraries.default_name()
    adapter.through("", name)
    made = Context(adapter, number, name, checked and not libraries.named(name).module_checks)
    with _contexts_lock:
        return _contexts.setdefault(made.key, made)


def shared_context(adapter: Adapter) -> Context:
    """Returns the context of an adapter for memory outside sessions.

    It is of the usual library, or of the base library if the usual one cannot be used. A session reports the reason.
    """
    try:
        return context_of(adapter)
    except DeviceError:
        return context_of(adapter, 0, libraries.base().name)


def contexts() -> list[Context]:
    """Returns all contexts."""
    with _contexts_lock:
        return list(_contexts.values())


def claim(new: Context) -> Context:
    """Registers a context under its number. Raises OptionError if the number is in use."""
    with _contexts_lock:
        old = _contexts.get(new.key)
        if old is not None and old.users:
            raise OptionError(f"option 'deviceId': {new.number} is another device, which {old.users} already")
        _contexts[new.key] = new
        return new


def release(context: Context) -> None:
    """Unregisters a context."""
    with _contexts_lock:
        if _contexts.get(context.key) is context:
            del _contexts[context.key]


def open_device(adapter: Adapter, context: int = 0, settings: Settings | None = None) -> Device:
    """Returns a context's device for work outside sessions. The reference, or sessions, keep it open.

    `settings` defaults to those of the context. Raises OptionError like `Context.apply_settings`, and DeviceError
    if the adapter refuses.
    """
    here = context_of(adapter, context)
    if settings is not None:
        here.apply_settings(settings)
    return here.device()
