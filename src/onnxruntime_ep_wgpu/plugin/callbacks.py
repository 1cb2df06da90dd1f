"""Objects that ONNX Runtime holds and calls.

In: classes with methods that are marked with `@callback`. Out: `CallbackTable`, their base class, which fills a table of C
functions.

Invariants:

- No exception crosses into C. It becomes an OrtStatus or a neutral value.
- A KeyboardInterrupt is raised again when ONNX Runtime has returned. While a Watch collects errors (`watch.py`), so is any
  other exception that left a callback which cannot fail.
- If an exception leaves a callback without an answer, C code calls the callback again.
- An object that ONNX Runtime holds stays alive until ONNX Runtime releases it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import starmap
from typing import Any, ClassVar, TypeVar

from .. import _ort, process
from .._ort import ffi, lib
from ..errors import InternalError
from . import watch
from .abi import NULL, PLACE, VERSION_NEEDED, Ort, address, frames_of, message_of, place_of

_Method = TypeVar("_Method", bound=Callable[..., Any])

lib.wgpu_add_functions(_ort.__name__.encode())  # `left` and `error`

# All objects that ONNX Runtime holds, by their addresses.
held: dict[int, CallbackTable] = {}


def callback(
    name: str, since: int = VERSION_NEEDED, repeatable: bool = False, device: bool = False, first: str = ""
) -> Callable[[_Method], _Method]:
    """Marks the method that implements a callback. `since`: the first version of ONNX Runtime with this slot.

    `first`: a C function that ONNX Runtime calls instead; it calls this method for work that it does not do itself.
    `repeatable`: an interrupted call is repeated, so that ONNX Runtime gets no error.
    `device`: the method uses the device. In a forked process it fails, or does nothing if it cannot fail.
    """

    def mark(method: _Method) -> _Method:
        method.__dict__["callback"] = (name, since, first)
        method.__dict__["how"] = repeatable, device
        return method

    return mark


def _method(name: str) -> Callable[[Any], Callable[..., Any]]:
    """Returns a function that finds the method of this name by the address of the object that ONNX Runtime calls."""

    def find(this: Any) -> Callable[..., Any]:
        found: Callable[..., Any] = getattr(held[int(ffi.cast("uintptr_t", this))], name)
        return found

    return find


class CallbackTable:
    """A table of callbacks (`struct`) that ONNX Runtime calls, and the object behind it.

    Methods marked with `@callback` fill their slots; the others stay NULL. `release()` is for when ONNX Runtime releases it.
    """

    struct: ClassVar[str]
    kind: ClassVar[str]
    _slots: ClassVar[list[tuple[str, int, str]]]

    def __init_subclass__(cls, struct: str, kind: str = "") -> None:
        """`kind`: the C type of the objects, which begins with the table; for types with more than the OrtApi after it."""
        super().__init_subclass__()
        cls.struct, cls.kind = struct, kind or f"Wgpu{struct}"
        cls._slots = []
        # Base classes too: several classes may fill one table, each for one subject.
        for attribute, method in [item for base in cls.__mro__ for item in vars(base).items()]:
            name, since, first = getattr(method, "callback", ("", 0, ""))
            if name:
                cls._slots.append((name, since, first or f"c_{struct}_{name}"))
                repeatable, device = method.__dict__["how"]
                export(f"{struct}_{name}", _method(attribute), repeatable=repeatable, device=device)

    def __init__(self, ort: Ort) -> None:
        self.ort = ort
        self._table = ffi.new(f"{self.kind} *", {"api": ort.api})
        self.pointer = ffi.addressof(self._table, "table")
        version = "version" if self.struct == "OrtAllocator" else "ort_version_supported"
        setattr(self.pointer, version, ort.version)
        for name, since, function in self._slots:
            if since <= ort.version:
                setattr(self.pointer, name, ffi.addressof(lib, function))

    def pass_to_ort(self, out: Any, place: int = 0) -> None:
        """Passes the object to ONNX Runtime, which holds it until it calls `release`.

        Call this last in a callback: after an earlier interrupt, the object dies by itself.
        """
        key, pointer = address(self.pointer), self.pointer
        # No function calls here, because an interrupt may follow a call. Both steps happen or neither.
        held[key] = self
        out[place] = pointer

    @staticmethod
    def pass_all_to_ort(them: Sequence[CallbackTable], out: Any) -> None:
        """Like `pass_to_ort`, for several objects: all of them or none."""
        known, pointers = {address(it.pointer): it for it in them}, [it.pointer for it in them]
        holding, everything = held, slice(0, len(them))
        holding |= known
        out[everything] = pointers

    def clear_slots(self, *names: str) -> None:
        """Empties slots, so that ONNX Runtime spends no time on callbacks that are not needed."""
        for name in names:
            setattr(self.pointer, name, NULL)

    def release(self) -> None:
        held.pop(address(self.pointer), None)


def _refused(error: BaseException, this: Any, _arguments: tuple[Any, ...]) -> Any:
    """Returns the status with which a callback of the object at `this` reports an error."""
    owner = held.get(int(ffi.cast("uintptr_t", this))) or next(iter(held.values()), None)
    return failed(owner.ort if owner is not None else None, error)


def failed(ort: Ort | None, error: BaseException) -> Any:
    """Returns the status for an error in a callback. Without an `ort`, prints the error."""
    message = message_of(error)
    release_frames(error)
    watch.record_error(error)
    defers_interrupt(error)
    if ort is None:
        print(f"onnxruntime_ep_wgpu: {message}", file=sys.stderr)
        return NULL
    return ort.status(error, message)


def defers_interrupt(error: BaseException) -> bool:
    """Returns whether an error is an interrupt that no Watch collects. It is raised again when Python continues."""
    later = (
        isinstance(error, KeyboardInterrupt)
        and not watch.is_watched()
        and threading.current_thread() is threading.main_thread()
    )
    if later:
        lib.wgpu_interrupt_later()
    return later


def _record_or_print(error: BaseException, name: str) -> None:
    """Handles an exception that left the call `name`, which cannot fail.

    It is raised when ONNX Runtime has returned, or printed if no Watch collects errors.
    """
    if isinstance(error, KeyboardInterrupt):
        lib.wgpu_interrupt_later()
    elif watch.is_watched():
        release_frames(error)
        watch.record_deferred(error)
    else:
        print(f"onnxruntime_ep_wgpu: {name} is repeated after {message_of(error)}", file=sys.stderr)


def release_frames(error: BaseException) -> None:
    """Clears the local variables of an error's frames. If the error will not be raised, drops the frames too.

    Otherwise a reference to the error would keep GPU memory or an incomplete session, because frames refer to their callers.
    In addition, CPython 3.11 crashes when it collects a cycle of an error and a frame that reads a memoryview through cffi.
    """
    seen: BaseException | None = error
    while seen is not None:
        for it in frames_of(seen):
            with contextlib.suppress(RuntimeError):  # a frame that still runs
                it.tb_frame.clear()
        if not watch.is_watched():
            seen.__dict__.setdefault(PLACE, place_of(seen))
            seen.__traceback__ = None
        seen = seen.__cause__ or seen.__context__


def export(
    name: str,
    find: Callable[[Any], Callable[..., Any]],
    refused: Callable[[BaseException, Any, tuple[Any, ...]], Any] = _refused,
    repeatable: bool = False,
    device: bool = False,
) -> int:
    """Connects the C callback `name` to `find(this)(*arguments)`; returns the address of the C function.

    Iterators, which are C code, call the method and pass its result to `lib.wgpu_answer`. So no interrupt can come between the
    end of the method and the answer. An earlier interrupt leaves the callback. C code then calls it with `again`, and nothing
    interrupts that call (csrc/python_call.h). `refused(error, this, arguments)` makes a status of an error.
    """
    try:
        result = ffi.typeof(ffi.addressof(lib, f"c_{name}")).result
    except AttributeError as error:
        raise InternalError(
            f"the native part lacks {name}: it was built from another version of this checkout; rebuild it with `pip install"
            " --no-build-isolation -e .`"
        ) from error
    answer: Callable[[Any], None] = lib.wgpu_answer
    plain: Callable[[Any], Any] = bool  # converts None to 0: no result, or the status of success

    def ask_status(again: int, this: Any, *arguments: Any) -> None:
        later = False
        try:
            if again:
                later = repeatable and defers_interrupt(_ort.error())
                if not later:
                    raise _ort.error()
            if device:
                process.check_not_forked()
            next(map(answer, map(plain, starmap(find(this), (arguments,)))))
        except BaseException as error:  # no exception may unwind through C++
            if isinstance(error, KeyboardInterrupt) and (later or not again):
                raise
            lib.wgpu_answer_pointer(refused(error, this, arguments))

    if result is ffi.typeof("OrtStatus *"):
        ffi.def_extern(name=f"py_{name}", onerror=_ort.left)(ask_status)
        return address(ffi.addressof(lib, f"c_{name}"))
    if result.kind == "primitive":
        plain = int
    elif result.kind == "pointer":
        answer, plain = lib.wgpu_answer_pointer, partial(ffi.cast, ffi.typeof("void *"))

    def ask_value(again: int, this: Any, *arguments: Any) -> None:
        """Answers a call that cannot fail. An interrupted call is repeated, and the interrupt waits until ONNX Runtime returns.

        A call is also repeated after any other exception. A signal handler may have raised it, and an error of this package
        occurs again.
        """
        try:
            if again:
                _record_or_print(_ort.error(), name)
            # An object that is no longer held was released by the interrupted call.
            if (again and int(ffi.cast("uintptr_t", this)) not in held) or (device and process.is_forked):
                lib.wgpu_answer(0)
            else:
                next(map(answer, map(plain, starmap(find(this), (arguments,)))))
        except BaseException as error:
            # A repeated call would have no more stack or memory.
            if isinstance(error, KeyboardInterrupt) or not (again or isinstance(error, (RecursionError, MemoryError))):
                raise
            print(f"onnxruntime_ep_wgpu: error in {name}", file=sys.stderr)
            sys.excepthook(type(error), error, error.__traceback__)
            lib.wgpu_answer(0)

    ffi.def_extern(name=f"py_{name}", onerror=_ort.left)(ask_value)
    return address(ffi.addressof(lib, f"c_{name}"))
