"""Objects that ONNX Runtime holds and calls.

In: classes whose methods are marked with `@callback`. Out: `CallbackTable`, their base, which fills a table of C functions.
Invariants: an exception never crosses into C, it becomes an OrtStatus or a neutral value, and a KeyboardInterrupt is raised again
once ONNX Runtime has returned, as is in sessions of ours any other that left a call which cannot fail; a callback that an exception
left without an answer is asked again, by C; what ONNX Runtime holds stays alive until it releases it.
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

# Everything that ONNX Runtime holds, by the address that it has.
held: dict[int, CallbackTable] = {}


def callback(
    name: str, since: int = VERSION_NEEDED, repeatable: bool = False, device: bool = False, first: str = ""
) -> Callable[[_Method], _Method]:
    """Marks the method that answers a callback. `since`: ONNX Runtime versions below it do not have the slot.
    `first`: the function of C code that is called instead, and calls this for what it does not do itself.

    `repeatable`: called once more when it was interrupted, so that ONNX Runtime need not make an error of that.
    `device`: it uses the device, so that in a forked process it fails or, when it cannot fail, does nothing.
    """

    def mark(method: _Method) -> _Method:
        method.__dict__["callback"] = (name, since, first)
        method.__dict__["how"] = repeatable, device
        return method

    return mark


def _method(name: str) -> Callable[[Any], Callable[..., Any]]:
    """What finds the method of this name of the object that ONNX Runtime calls by its address."""

    def find(this: Any) -> Callable[..., Any]:
        found: Callable[..., Any] = getattr(held[int(ffi.cast("uintptr_t", this))], name)
        return found

    return find


class CallbackTable:
    """A table of callbacks (`struct`) that ONNX Runtime calls, and the object behind it.

    The methods marked with `@callback` fill their slots; the others stay NULL. `release()` when ONNX Runtime releases it.
    """

    struct: ClassVar[str]
    kind: ClassVar[str]
    _slots: ClassVar[list[tuple[str, int, str]]]

    def __init_subclass__(cls, struct: str, kind: str = "") -> None:
        """`kind`: the type of C code's objects that begin with the table, if they have more than the OrtApi behind it."""
        super().__init_subclass__()
        cls.struct, cls.kind = struct, kind or f"Wgpu{struct}"
        cls._slots = []
        # Base classes too: a table may be filled by several classes, each with one subject.
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

    def hand_out(self, out: Any, place: int = 0) -> None:
        """Gives the object to ONNX Runtime, which holds it from here on until it calls `release`.

        The last thing that a callback does with it: what is interrupted before ends by itself.
        """
        key, pointer = address(self.pointer), self.pointer
        # No calls, behind which an interrupt could come: done wholly or not at all.
        held[key] = self
        out[place] = pointer

    @staticmethod
    def hand_out_all(them: Sequence[CallbackTable], out: Any) -> None:
        """The same for several objects: all of them or none."""
        known, pointers = {address(it.pointer): it for it in them}, [it.pointer for it in them]
        holding, everything = held, slice(0, len(them))
        holding |= known
        out[everything] = pointers

    def leave_out(self, *names: str) -> None:
        """Empties slots: callbacks that are not needed here cost ONNX Runtime nothing."""
        for name in names:
            setattr(self.pointer, name, NULL)

    def release(self) -> None:
        held.pop(address(self.pointer), None)


def _refused(error: BaseException, this: Any, _arguments: tuple[Any, ...]) -> Any:
    """The status that a callback of the object at `this` answers with instead of raising."""
    owner = held.get(int(ffi.cast("uintptr_t", this))) or next(iter(held.values()), None)
    return failed(owner.ort if owner is not None else None, error)


def failed(ort: Ort | None, error: BaseException) -> Any:
    """The status for an error in a callback; prints it when there is no ONNX Runtime to give one to."""
    message = message_of(error)
    let_go_of_frames(error)
    watch.went_wrong(error)
    raised_later(error)
    if ort is None:
        print(f"onnxruntime_ep_wgpu: {message}", file=sys.stderr)
        return NULL
    return ort.status(error, message)


def raised_later(error: BaseException) -> bool:
    """Whether an error is an interrupt that comes again when Python goes on: one that is not collected as an error."""
    later = (
        isinstance(error, KeyboardInterrupt)
        and not watch.is_watched()
        and threading.current_thread() is threading.main_thread()
    )
    if later:
        lib.wgpu_interrupt_later()
    return later


def _carry(error: BaseException, name: str) -> None:
    """Has an exception that left the call `name`, which cannot fail, raised when ONNX Runtime has returned; prints it when
    no errors are collected."""
    if isinstance(error, KeyboardInterrupt):
        lib.wgpu_interrupt_later()
    elif watch.is_watched():
        let_go_of_frames(error)
        watch.carry(error)
    else:
        print(f"onnxruntime_ep_wgpu: {name} is done again after {message_of(error)}", file=sys.stderr)


def let_go_of_frames(error: BaseException) -> None:
    """Forgets the local variables of the frames that an error went through, and the frames when it will not be raised.

    A reference to the error would keep GPU memory with them, or a half-made session: frames refer to their callers. And
    collecting a cycle of an error and a frame that reads a memoryview through cffi ends a CPython 3.11 process.
    """
    seen: BaseException | None = error
    while seen is not None:
        for it in frames_of(seen):
            with contextlib.suppress(RuntimeError):  # one that still runs
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
    """Makes `find(this)(*arguments)` answer the C callback `name`; returns the address of the C function.

    Python answers by a call of `lib.wgpu_answer`, which C code makes with what the method returns: no interrupt comes between
    the end of the method and knowing of it. An interrupt before that leaves the callback, which C then asks `again`, and nothing
    interrupts it any more (csrc/python_call.h). `refused(error, this, arguments)` makes a status of an error.
    """
    try:
        result = ffi.typeof(ffi.addressof(lib, f"c_{name}")).result
    except AttributeError as error:
        raise InternalError(
            f"the native part lacks {name}: it was built of another version of this checkout; build it again, with"
            " `pip install --no-build-isolation -e .`"
        ) from error
    answer: Callable[[Any], None] = lib.wgpu_answer
    plain: Callable[[Any], Any] = bool  # methods that give nothing, or a status that all went well, return None

    def ask_status(again: int, this: Any, *arguments: Any) -> None:
        later = False
        try:
            if again:
                later = repeatable and raised_later(_ort.error())
                if not later:
                    raise _ort.error()
            if device:
                process.check_not_forked()
            next(map(answer, map(plain, starmap(find(this), (arguments,)))))
        except BaseException as error:  # nothing may unwind through C++
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
        """These calls cannot fail: what was interrupted is done again, and the interrupt waits until ONNX Runtime has returned.

        So is what any other exception left: a signal's handler may raise it anywhere, and an error of ours comes again.
        """
        try:
            if again:
                _carry(_ort.error(), name)
            # What is not held any more was released by the call that was interrupted.
            if (again and int(ffi.cast("uintptr_t", this)) not in held) or (device and process.forked):
                lib.wgpu_answer(0)
            else:
                next(map(answer, map(plain, starmap(find(this), (arguments,)))))
        except BaseException as error:
            # Without stack or memory it would be no better.
            if isinstance(error, KeyboardInterrupt) or not (again or isinstance(error, (RecursionError, MemoryError))):
                raise
            print(f"onnxruntime_ep_wgpu: error in {name}", file=sys.stderr)
            sys.excepthook(type(error), error, error.__traceback__)
            lib.wgpu_answer(0)

    ffi.def_extern(name=f"py_{name}", onerror=_ort.left)(ask_value)
    return address(ffi.addressof(lib, f"c_{name}"))
