"""Objects that ONNX Runtime holds and calls.

In: classes whose methods are marked with `@callback`. Out: `Exported`, their base, which fills a table of C functions. Invariants:
an exception never crosses into C, it becomes an OrtStatus or a neutral value, and a KeyboardInterrupt is raised again once
ONNX Runtime has returned; what ONNX Runtime holds stays alive until it lets go.
"""

from __future__ import annotations

import itertools
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from .. import process
from .._ort import ffi, lib
from . import interrupts, watch
from .abi import NULL, PLACE, VERSION_NEEDED, Ort, address, message_of, place_of

# How often work is done again that was interrupted.
AGAIN = 3

# What cffi calls with an exception that leaves a callback: (type, exception, traceback); gives the callback's answer.
OnError = Callable[[Any, BaseException, Any], Any]

_Method = TypeVar("_Method", bound=Callable[..., Any])

# Everything that ONNX Runtime holds, by the address it knows it by.
held: dict[int, Exported] = {}


def callback(
    name: str, since: int = VERSION_NEEDED, repeatable: bool = False, device: bool = False
) -> Callable[[_Method], _Method]:
    """Marks the method that answers a callback. `since`: ONNX Runtime versions below it do not have the slot.

    `repeatable`: called once more when it was interrupted, so that ONNX Runtime need not make an error of that.
    `device`: it uses the device, so that in a forked process it fails or, when it cannot fail, does nothing.
    """

    def mark(method: _Method) -> _Method:
        method.__dict__["callback"] = (name, since)
        method.__dict__["how"] = repeatable, device
        return method

    return mark


class Exported:
    """A table of callbacks (`struct`) that ONNX Runtime calls, and the object behind it.

    The methods marked with `@callback` fill their slots; the others stay NULL. `release()` when ONNX Runtime lets go.
    """

    struct: ClassVar[str]
    _slots: ClassVar[list[tuple[str, int]]]

    def __init_subclass__(cls, struct: str) -> None:
        super().__init_subclass__()
        cls.struct = struct
        cls._slots = []
        # Base classes too: a table may be filled by several classes, each with one subject.
        for attribute, method in [item for base in cls.__mro__ for item in vars(base).items()]:
            name, since = getattr(method, "callback", ("", 0))
            if name:
                cls._slots.append((name, since))
                export(f"{struct}_{name}", *_entry(attribute, f"{struct}_{name}", *method.__dict__["how"]))

    def __init__(self, ort: Ort) -> None:
        self.ort = ort
        self.pointer = ffi.new(self.struct + " *")
        version = "version" if self.struct == "OrtAllocator" else "ort_version_supported"
        setattr(self.pointer, version, ort.version)
        for name, since in self._slots:
            if since <= ort.version:
                setattr(self.pointer, name, ffi.addressof(lib, f"c_{self.struct}_{name}"))

    def hand_out(self, out: Any, place: int = 0) -> None:
        """Gives the object to ONNX Runtime, which holds it from here on until it calls `release`.

        The last thing that a callback does with it: what is interrupted before ends by itself.
        """
        key, pointer = address(self.pointer), self.pointer
        # No calls, behind which an interrupt could come: done wholly or not at all.
        held[key] = self
        out[place] = pointer

    def leave_out(self, *names: str) -> None:
        """Empties slots: callbacks that are not needed here cost ONNX Runtime nothing."""
        for name in names:
            setattr(self.pointer, name, NULL)

    def release(self) -> None:
        held.pop(address(self.pointer), None)


def _entry(method: str, name: str, repeatable: bool, device: bool = False) -> tuple[Callable[..., Any], OnError]:
    """The Python end of callback `name`, answered by the method called `method`, and what answers when an exception
    leaves it: an interrupt can arrive before its first and after its last line."""
    result = ffi.typeof(ffi.addressof(lib, f"c_{name}")).result

    def once(done: list[Any], this: Any, arguments: tuple[Any, ...]) -> None:
        """Calls the method, unless that has been `done`, and notes its answer there."""
        if not done:
            answer = getattr(held[int(ffi.cast("uintptr_t", this))], method)
            # Noted by C code, so that no interrupt comes between the end of the call and knowing of it.
            next(map(done.append, itertools.starmap(answer, (arguments,))))

    if result is ffi.typeof("OrtStatus *"):

        def with_status(this: Any, *arguments: Any) -> Any:
            done: list[Any] = []
            try:
                if device:
                    process.check_not_forked()
                once(done, this, arguments)
                return NULL
            except BaseException as error:  # KeyboardInterrupt included: nothing may unwind through C++
                return interrupts.calmly(after, error, done, this, arguments)

        def late_status(_kind: Any, error: BaseException, trace: Any) -> Any:
            while True:
                try:
                    known = trace.tb_frame.f_locals
                    found = known.get("done", []), known.get("this", NULL), known.get("arguments")
                    return interrupts.calmly(after, error, *found)
                except KeyboardInterrupt:  # before it began
                    continue

        def after(error: BaseException, done: list[Any], this: Any, arguments: tuple[Any, ...] | None) -> Any:
            if done and isinstance(error, KeyboardInterrupt):
                lib.wgpu_interrupt_later()
                return NULL
            owner = held.get(int(ffi.cast("uintptr_t", this)))
            if repeatable and owner is not None and arguments is not None and _raised_later(error):
                let_go_of_frames(error)
                for _ in range(AGAIN):  # an interrupt may wait in a callback of wgpu-native
                    try:
                        getattr(owner, method)(*arguments)
                        return NULL
                    except BaseException as another:
                        error = another
                        if not _raised_later(another):
                            break
            owner = owner or next(iter(held.values()), None)
            return failed(owner.ort if owner is not None else None, error)

        return with_status, late_status

    neutral = {"void": None, "primitive": 0, "pointer": NULL}[result.kind]

    def with_value(this: Any, *arguments: Any) -> Any:
        if device and process.forked:
            return neutral
        done: list[Any] = []
        try:
            once(done, this, arguments)
            return neutral if done[0] is None else done[0]
        except KeyboardInterrupt:
            # These calls cannot fail: the interrupt waits until ONNX Runtime has returned, and one that was not answered
            # is answered once more.
            return interrupts.calmly(again, done, this, arguments)
        except BaseException:
            print(f"onnxruntime_ep_wgpu: error in {name}", file=sys.stderr)
            traceback.print_exc()
            return neutral

    def again(done: list[Any], this: Any, arguments: tuple[Any, ...]) -> Any:
        lib.wgpu_interrupt_later()
        # What is not held any more was released by the call that was interrupted.
        if int(ffi.cast("uintptr_t", this)) in held:
            once(done, this, arguments)
        return neutral if not done or done[0] is None else done[0]

    def late_value(_kind: Any, _error: BaseException, trace: Any) -> Any:
        while True:
            try:
                known = trace.tb_frame.f_locals
                found = known.get("done", []), known.get("this", NULL), known.get("arguments", ())
                return interrupts.calmly(again, *found)
            except KeyboardInterrupt:  # before it began
                continue

    return with_value, late_value


def failed(ort: Ort | None, error: BaseException) -> Any:
    """The status for an error in a callback; prints it when there is no ONNX Runtime to give one to."""
    message = message_of(error)
    let_go_of_frames(error)
    watch.went_wrong(error)
    _raised_later(error)
    if ort is None:
        print(f"onnxruntime_ep_wgpu: {message}", file=sys.stderr)
        return NULL
    return ort.status(error, message)


def _raised_later(error: BaseException) -> bool:
    """Whether an error is an interrupt that comes again when Python goes on: one that nobody collects as an error."""
    later = (
        isinstance(error, KeyboardInterrupt)
        and not watch.is_watched()
        and threading.current_thread() is threading.main_thread()
    )
    if later:
        lib.wgpu_interrupt_later()
    return later


def let_go_of_frames(error: BaseException) -> None:
    """Forgets the local variables of the frames that an error went through, and the frames when nobody will raise it.

    Who keeps the error would keep GPU memory with them, or a half-made session: frames know those that called them. And
    collecting a cycle of an error and a frame that reads a memoryview through cffi ends a CPython 3.11 process.
    """
    seen: BaseException | None = error
    while seen is not None:
        traceback.clear_frames(seen.__traceback__)
        if not watch.is_watched():
            seen.__dict__.setdefault(PLACE, place_of(seen))
            seen.__traceback__ = None
        seen = seen.__cause__ or seen.__context__


def export(name: str, function: Callable[..., Any], on_error: OnError | None = None) -> int:
    """Makes `function` answer the C callback `name`, and `on_error` when it raises; returns the address of the C function."""
    ffi.def_extern(name=f"py_{name}", onerror=on_error)(function)
    return address(ffi.addressof(lib, f"c_{name}"))
