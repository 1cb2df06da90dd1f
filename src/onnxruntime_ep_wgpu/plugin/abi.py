"""ONNX Runtime's C interface as Python sees it: calls into it, and objects that it calls.

In: an OrtApiBase. Out: `Ort` (one per OrtApi table; everything that talks to ONNX Runtime carries one, as several copies of
ONNX Runtime may live in one process) and `Exported`, the base of the objects that ONNX Runtime holds and calls.
Invariants: an exception never crosses into C, it becomes an OrtStatus or a neutral value, and a KeyboardInterrupt is
raised again once ONNX Runtime has returned; what ONNX Runtime holds stays alive until it lets go.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

from .. import process
from .._ort import ffi, lib
from ..errors import UnsupportedError, WgpuEpError
from ..platform import file_name
from . import interrupts, watch

# The tables in csrc/ort_abi.py end with this version; with an older one the provider does not work.
VERSION_KNOWN = 29
VERSION_NEEDED = 24

FAIL, INVALID_ARGUMENT, RUNTIME_EXCEPTION, NOT_IMPLEMENTED = 1, 2, 6, 9
VERBOSE, INFO, WARNING, ERROR = 0, 1, 2, 3

NULL = ffi.NULL


class OrtError(WgpuEpError):
    """ONNX Runtime refused a call."""


def address(pointer: Any) -> int:
    """A C pointer as a number."""
    return int(ffi.cast("uintptr_t", pointer))


def text(pointer: Any) -> str:
    """A C string; "" for NULL."""
    return ffi.string(pointer).decode("utf-8", "replace") if pointer else ""


def file_text(pointer: Any) -> str:
    """A file name that ONNX Runtime gives: UTF-8, or wide characters on Windows; "" for NULL."""
    value = ffi.string(pointer) if pointer else ""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def _code(error: BaseException) -> int:
    # Never ORT_EP_FAIL: it makes InferenceSession.run print a notice and run the model again on the CPU.
    if isinstance(error, UnsupportedError):
        return NOT_IMPLEMENTED
    if isinstance(error, ValueError):  # OptionError and InputError are
        return INVALID_ARGUMENT
    return RUNTIME_EXCEPTION


def message_of(error: BaseException) -> str:
    """One line for the user; for errors that are not ours, with the place, since such an error is a bug here."""
    line = f"{type(error).__name__}: {error}"
    return line if isinstance(error, WgpuEpError) else line + _place_of(error)


def _place_of(error: BaseException) -> str:
    """Where an error was raised first."""
    known: str | None = error.__dict__.get(_PLACE)
    if known is not None:
        return known
    frames = traceback.extract_tb(error.__traceback__)
    return f" [{os.path.basename(frames[-1].filename)}:{frames[-1].lineno} in {frames[-1].name}]" if frames else ""


class Ort:
    """One OrtApi table. `version` is the interface version in use, 24 to 29."""

    def __init__(self, base: Any) -> None:
        """Asks for the highest version that both sides know; raises OrtError below 1.24."""
        self.version_text = text(base.GetVersionString())
        # Asking GetApi for a version that it does not have makes it print a line, so the version text decides.
        minor = int(self.version_text.split(".")[1])
        if minor < VERSION_NEEDED:
            raise OrtError(
                f"onnxruntime {self.version_text} is too old: install onnxruntime 1.{VERSION_NEEDED}.4 or later"
            )
        self.version = min(minor, VERSION_KNOWN)
        self.api = base.GetApi(self.version)
        self.ep = self.api.GetEpApi()
        self._strings: dict[str, Any] = {}

    def check(self, status: Any) -> None:
        """Raises OrtError when a call returned a status."""
        if status:
            line = text(self.api.GetErrorMessage(status))
            self.api.ReleaseStatus(status)
            raise OrtError(line)

    def status(self, error: BaseException, message: str = "") -> Any:
        """An exception as a status, which ONNX Runtime then owns."""
        line = (message or message_of(error)).encode("utf-8", "replace").replace(b"\0", b"?")
        return self.api.CreateStatus(_code(error), ffi.new("char[]", line))

    def string(self, value: str) -> Any:
        """A C string that lives as long as this object; for names, not for messages."""
        known = self._strings.get(value)
        if known is None:
            known = self._strings[value] = ffi.new("char[]", value.encode())
        return known

    @contextlib.contextmanager
    def pairs(self, values: Mapping[str, str]) -> Iterator[Any]:
        """Key-value pairs for the duration of a `with`; the functions that take them copy them."""
        made = self.new_pairs(values)
        try:
            yield made
        finally:
            self.api.ReleaseKeyValuePairs(made)

    def new_pairs(self, values: Mapping[str, str]) -> Any:
        """Key-value pairs that the caller gives away or releases."""
        out = ffi.new("OrtKeyValuePairs **")
        self.api.CreateKeyValuePairs(out)
        for key, value in values.items():
            self.api.AddKeyValuePair(out[0], ffi.new("char[]", key.encode()), ffi.new("char[]", value.encode()))
        return out[0]

    def read_pairs(self, pairs: Any) -> dict[str, str]:
        """Key-value pairs as a dict; {} for NULL."""
        if not pairs:
            return {}
        keys, values = ffi.new("const char *const **"), ffi.new("const char *const **")
        count = ffi.new("size_t *")
        self.api.GetKeyValuePairs(pairs, keys, values, count)
        return {text(keys[0][i]): text(values[0][i]) for i in range(count[0])}

    def get(self, function: Any, obj: Any, kind: str) -> Any:
        """The result of a call `function(obj, kind *out)`."""
        out = ffi.new(kind + " *")
        self.check(function(obj, out))
        return out[0]

    def get_out(self, function: Any, kind: str) -> Any:
        """The result of a call `function(kind *out)`."""
        out = ffi.new(kind + " *")
        self.check(function(out))
        return out[0]

    def list(self, count: Any, fill: Any, obj: Any, kind: str) -> list[Any]:
        """The results of a pair of calls `count(obj, size_t *)`, `fill(obj, kind *, size_t)`."""
        number = self.get(count, obj, "size_t")
        if not number:
            return []
        out = ffi.new(kind + "[]", number)
        self.check(fill(obj, out, number))
        return list(ffi.unpack(out, number))


class Logger:
    """ONNX Runtime's logger, which belongs to the session or the environment that gave it to us."""

    def __init__(self, ort: Ort, pointer: Any) -> None:
        self._ort, self._pointer = ort, pointer
        self._file = ffi.new("ORTCHAR_T[]", file_name("onnxruntime_ep_wgpu"))

    @property
    def owner(self) -> int:
        """A number that the objects of one session have in common, and those of no other session that exists with it."""
        return address(self._pointer)

    def wants(self, severity: int) -> bool:
        """Whether a message of this severity would be shown."""
        return bool(self._pointer) and severity >= self._ort.get(
            self._ort.api.Logger_GetLoggingSeverityLevel, self._pointer, "int"
        )

    def log(self, severity: int, message: str) -> None:
        if self.wants(severity):
            line = ffi.new("char[]", message.encode("utf-8", "replace").replace(b"\0", b"?"))
            self._ort.check(
                self._ort.api.Logger_LogMessage(
                    self._pointer, severity, line, self._file, 0, self._ort.string("webgpu")
                )
            )


# What an error without its traceback remembers of it.
_PLACE = "_onnxruntime_ep_wgpu_place"

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
                    process.check()
                once(done, this, arguments)
                return NULL
            except BaseException as error:  # KeyboardInterrupt included: nothing may unwind through C++
                return interrupts.calmly(after, error, done, this, arguments)

        def late_status(_kind: Any, error: BaseException, trace: Any) -> Any:
            known = trace.tb_frame.f_locals
            found = known.get("done", []), known.get("this", NULL), known.get("arguments")
            try:
                return interrupts.calmly(after, error, *found)
            except KeyboardInterrupt:  # before it began
                return interrupts.calmly(after, error, *found)

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
        known = trace.tb_frame.f_locals
        found = known.get("done", []), known.get("this", NULL), known.get("arguments", ())
        try:
            return interrupts.calmly(again, *found)
        except KeyboardInterrupt:  # before it began
            return interrupts.calmly(again, *found)

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
            seen.__dict__.setdefault(_PLACE, _place_of(seen))
            seen.__traceback__ = None
        seen = seen.__cause__ or seen.__context__


def export(name: str, function: Callable[..., Any], on_error: OnError | None = None) -> int:
    """Makes `function` answer the C callback `name`, and `on_error` when it raises; returns the address of the C function."""
    ffi.def_extern(name=f"py_{name}", onerror=on_error)(function)
    return address(ffi.addressof(lib, f"c_{name}"))
