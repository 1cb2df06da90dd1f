"""ONNX Runtime's C interface for Python: calls, strings, and errors as statuses.

In: an OrtApiBase. Out: `Ort`, one per OrtApi table. Every object that calls ONNX Runtime has one, because several copies of
ONNX Runtime may be in one process. Objects that ONNX Runtime calls are in `callbacks.py`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from .._ort import ffi
from ..errors import UnsupportedError, WgpuEpError
from ..platform import file_name

# The last version in the tables of csrc/ort_abi.py, and the oldest version with which the provider works.
VERSION_KNOWN = 29
VERSION_NEEDED = 24

FAIL, INVALID_ARGUMENT, RUNTIME_EXCEPTION, NOT_IMPLEMENTED = 1, 2, 6, 9
VERBOSE, INFO, WARNING, ERROR = 0, 1, 2, 3

NULL = ffi.NULL


class OrtError(WgpuEpError):
    """ONNX Runtime refused a call."""


def address(pointer: Any) -> int:
    """Returns a C pointer as a number."""
    return int(ffi.cast("uintptr_t", pointer))


def text(pointer: Any) -> str:
    """Returns a C string; "" for NULL."""
    return ffi.string(pointer).decode("utf-8", "replace") if pointer else ""


def file_text(pointer: Any) -> str:
    """Returns a file name from ONNX Runtime, which is UTF-8, or wide characters on Windows; "" for NULL."""
    value = ffi.string(pointer) if pointer else ""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def _code(error: BaseException) -> int:
    # Never ORT_EP_FAIL: with it, InferenceSession.run prints a notice and runs the model again on the CPU.
    if isinstance(error, UnsupportedError):
        return NOT_IMPLEMENTED
    if isinstance(error, ValueError):  # OptionError and InputError are subclasses
        return INVALID_ARGUMENT
    return RUNTIME_EXCEPTION


def message_of(error: BaseException) -> str:
    """Returns one line for the user. If the error is no WgpuEpError, it is a bug here, and the line has its place."""
    line = f"{type(error).__name__}: {error}"
    return line if isinstance(error, WgpuEpError) else line + place_of(error)


def place_of(error: BaseException) -> str:
    """Returns the place where an error was raised first."""
    known: str | None = error.__dict__.get(PLACE)
    if known is not None:
        return known
    frames = list(frames_of(error))
    if not frames:
        return ""
    code = frames[-1].tb_frame.f_code
    return f" [{os.path.basename(code.co_filename)}:{frames[-1].tb_lineno} in {code.co_name}]"


def frames_of(error: BaseException) -> Iterator[TracebackType]:
    """The traceback entries of an error, the place where it was raised last."""
    found = error.__traceback__
    while found is not None:
        yield found
        found = found.tb_next


class Ort:
    """One OrtApi table. `version` is the interface version in use, 24 to 29."""

    def __init__(self, base: Any) -> None:
        """Requests the highest version that both sides have; raises OrtError below 1.24."""
        self.version_text = text(base.GetVersionString())
        # GetApi prints a line for a version that it does not have. Therefore the version string decides.
        minor = int(self.version_text.split(".")[1])
        if minor < VERSION_NEEDED:
            raise OrtError(
                f"onnxruntime {self.version_text} is too old: install onnxruntime 1.{VERSION_NEEDED}.4 or later"
            )
        self.version = min(minor, VERSION_KNOWN)
        self.api = base.GetApi(self.version)
        self.ep = self.api.GetEpApi()
        self._strings: dict[str, Any] = {}

    def check_status(self, status: Any) -> None:
        """Raises OrtError if a call returned a status."""
        if status:
            line = text(self.api.GetErrorMessage(status))
            self.api.ReleaseStatus(status)
            raise OrtError(line)

    def status(self, error: BaseException, message: str = "") -> Any:
        """Returns an exception as a status, which ONNX Runtime then owns."""
        line = (message or message_of(error)).encode("utf-8", "replace").replace(b"\0", b"?")
        return self.api.CreateStatus(_code(error), ffi.new("char[]", line))

    def string(self, value: str) -> Any:
        """Returns a C string that lives as long as this object. For names, not for messages, which would accumulate."""
        known = self._strings.get(value)
        if known is None:
            known = self._strings[value] = ffi.new("char[]", value.encode())
        return known

    @contextlib.contextmanager
    def pairs(self, values: Mapping[str, str]) -> Iterator[Any]:
        """Provides key-value pairs during a `with`; the functions that receive them copy them."""
        made = self.new_pairs(values)
        try:
            yield made
        finally:
            self.api.ReleaseKeyValuePairs(made)

    def new_pairs(self, values: Mapping[str, str]) -> Any:
        """Returns key-value pairs that the caller passes on or releases."""
        out = ffi.new("OrtKeyValuePairs **")
        self.api.CreateKeyValuePairs(out)
        for key, value in values.items():
            self.api.AddKeyValuePair(out[0], ffi.new("char[]", key.encode()), ffi.new("char[]", value.encode()))
        return out[0]

    def read_pairs(self, pairs: Any) -> dict[str, str]:
        """Returns key-value pairs as a dict; {} for NULL."""
        if not pairs:
            return {}
        keys, values = ffi.new("const char *const **"), ffi.new("const char *const **")
        count = ffi.new("size_t *")
        self.api.GetKeyValuePairs(pairs, keys, values, count)
        return {text(keys[0][i]): text(values[0][i]) for i in range(count[0])}

    def get(self, function: Any, obj: Any, kind: str) -> Any:
        """Returns the result of `function(obj, kind *out)`. Raises OrtError for a NULL `obj`, which would crash the process."""
        if not obj:
            raise OrtError(f"ONNX Runtime passed NULL instead of an object with a {kind}")
        out = ffi.new(kind + " *")
        self.check_status(function(obj, out))
        return out[0]

    def get_out(self, function: Any, kind: str) -> Any:
        """Returns the result of `function(kind *out)`."""
        out = ffi.new(kind + " *")
        self.check_status(function(out))
        return out[0]

    def list(self, count: Any, fill: Any, obj: Any, kind: str) -> list[Any]:
        """Returns the results of two calls `count(obj, size_t *)` and `fill(obj, kind *, size_t)`."""
        number = self.get(count, obj, "size_t")
        if not number:
            return []
        out = ffi.new(kind + "[]", number)
        self.check_status(fill(obj, out, number))
        return list(ffi.unpack(out, number))


class Logger:
    """ONNX Runtime's logger. It belongs to the session or the environment that passed it."""

    def __init__(self, ort: Ort, pointer: Any) -> None:
        self._ort, self._pointer = ort, pointer
        self._file = ffi.new("ORTCHAR_T[]", file_name("onnxruntime_ep_wgpu"))

    @property
    def owner(self) -> int:
        """A number that is equal for the objects of one session, and differs between sessions that exist at the same time."""
        return address(self._pointer)

    def is_enabled(self, severity: int) -> bool:
        """Returns whether messages of this severity are shown."""
        return bool(self._pointer) and severity >= self._ort.get(
            self._ort.api.Logger_GetLoggingSeverityLevel, self._pointer, "int"
        )

    def log(self, severity: int, message: str) -> None:
        if self.is_enabled(severity):
            line = ffi.new("char[]", message.encode("utf-8", "replace").replace(b"\0", b"?"))
            self._ort.check_status(
                self._ort.api.Logger_LogMessage(
                    self._pointer, severity, line, self._file, 0, self._ort.string("webgpu")
                )
            )


# The attribute with the place of an error after its traceback was removed.
PLACE = "_onnxruntime_ep_wgpu_place"
