"""ONNX Runtime's C interface as Python sees it: calls into it, its texts, and errors as its statuses.

In: an OrtApiBase. Out: `Ort`, one per OrtApi table; everything that talks to ONNX Runtime carries one, as several copies of
ONNX Runtime may live in one process. Objects that ONNX Runtime calls are in `callbacks.py`.
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
    return line if isinstance(error, WgpuEpError) else line + place_of(error)


def place_of(error: BaseException) -> str:
    """Where an error was raised first."""
    known: str | None = error.__dict__.get(PLACE)
    if known is not None:
        return known
    frames = list(frames_of(error))
    if not frames:
        return ""
    code = frames[-1].tb_frame.f_code
    return f" [{os.path.basename(code.co_filename)}:{frames[-1].tb_lineno} in {code.co_name}]"


def frames_of(error: BaseException) -> Iterator[TracebackType]:
    """What an error went through, the place where it was raised last."""
    found = error.__traceback__
    while found is not None:
        yield found
        found = found.tb_next


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

    def check_status(self, status: Any) -> None:
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
        """The result of a call `function(obj, kind *out)`. Raises OrtError for a NULL `obj`, which would end the process."""
        if not obj:
            raise OrtError(f"ONNX Runtime gave NULL where a {kind} was to be read of it")
        out = ffi.new(kind + " *")
        self.check_status(function(obj, out))
        return out[0]

    def get_out(self, function: Any, kind: str) -> Any:
        """The result of a call `function(kind *out)`."""
        out = ffi.new(kind + " *")
        self.check_status(function(out))
        return out[0]

    def list(self, count: Any, fill: Any, obj: Any, kind: str) -> list[Any]:
        """The results of a pair of calls `count(obj, size_t *)`, `fill(obj, kind *, size_t)`."""
        number = self.get(count, obj, "size_t")
        if not number:
            return []
        out = ffi.new(kind + "[]", number)
        self.check_status(fill(obj, out, number))
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
            self._ort.check_status(
                self._ort.api.Logger_LogMessage(
                    self._pointer, severity, line, self._file, 0, self._ort.string("webgpu")
                )
            )


# What an error without its traceback keeps of it.
PLACE = "_onnxruntime_ep_wgpu_place"
