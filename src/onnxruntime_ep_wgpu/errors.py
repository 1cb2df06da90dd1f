"""All errors that reach users. Each message names the object, the value and the remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

_SHOWN = 120
E = TypeVar("E", bound=BaseException)


def cut(value: object) -> str:
    """Returns the `repr` of a user's value for a message. A long one is shortened in the middle."""
    text = repr(value)
    if len(text) <= _SHOWN:
        return text
    return f"{text[: _SHOWN // 2]}...{text[-_SHOWN // 4 :]} ({len(text)} characters)"


def cause_of(error: Exception) -> str:
    """Returns the text of an error for use in a message. The text of a KeyError is only the key, so "is missing" is added."""
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def with_message(error: E, text: str) -> E:
    """Returns a copy of the error with another text and the same attributes."""
    made = type(error).__new__(type(error), text)
    made.__dict__.update(error.__dict__)
    return made


class WgpuEpError(RuntimeError):
    """Base of all errors of this package."""


class OptionError(WgpuEpError, ValueError):
    """A provider option has an unknown key or a value outside its domain."""


class DeviceError(WgpuEpError):
    """No usable adapter, a missing graphics loader, or a failed request to the device."""


class OutOfMemoryError(DeviceError, MemoryError):
    """The device has no memory left for a buffer; names the tensor and its size in bytes. A smaller input may fit."""


class ForkError(DeviceError):
    """The process was forked from one that uses the GPU. Start processes with the method "spawn"."""


class DeviceLostError(DeviceError):
    """The device was lost, and with it the tensors that callers own on it. The next run continues on a new device."""


class ModelChangedError(WgpuEpError):
    """A weight must be uploaded again after a loss of the device, but the model's file no longer contains it."""


class LimitError(WgpuEpError):
    """A tensor or a dispatch is larger than the adapter allows; names tensor, bytes and limit.

    `sizes` maps the symbols of the Program to the sizes of this run. It is set if a Program compiled for these sizes may stay
    within the limit."""

    def __init__(self, message: str = "", sizes: Mapping[str, int] | None = None) -> None:
        super().__init__(message)
        self.sizes: Mapping[str, int] = sizes or {}


class ShaderError(WgpuEpError):
    """A kernel failed to compile; names the kernel and the line."""


class NonFiniteError(WgpuEpError):
    """A kernel made NaN or infinity from finite inputs; names node, value and index. Raised with validationMode full."""


class ModelError(WgpuEpError):
    """A node that no provider can run; names the node and the defect."""


class InternalError(WgpuEpError):
    """A bug of this package, not of the model; names the node and the place in the code. Please report it."""


class Fault(str):
    """The reason for a refused node, if the cause is an `error`: a defect of the model, or a bug of this package."""

    error: ModelError | InternalError

    def __new__(cls, error: ModelError | InternalError) -> Fault:
        made = super().__new__(cls, error)
        made.error = error
        return made


class OutOfRangeError(ModelError, IndexError):
    """An index lies outside its axis; names node, index, place, axis and extent."""


class UnsupportedError(WgpuEpError):
    """A node cannot run on WebGPU; the message is the reason shown to the user."""


class FreeSizeError(UnsupportedError):
    """A node cannot run on WebGPU while some input dimensions of the model are free. With fixed sizes it may.

    `keys` are the names of the free dimensions, as far as they are known. `reason` is the message without `way`, the text on
    how to fix them."""

    def __init__(self, reason: str = "", keys: Sequence[str] = (), way: str = "") -> None:
        super().__init__(f"{reason}; {way}" if way else reason)
        self.reason, self.keys = reason, tuple(keys)


class FreeSize(str):
    """The text of a FreeSizeError: the reason for a refused node that fixed input sizes may make acceptable."""


class InputError(WgpuEpError, ValueError):
    """An input has the wrong name, type, rank or shape, or inputs do not fit together."""


class ExtentError(InputError):
    """An input differs in rank or extents from the model's declared shape or, without one, from the inferred shape."""


class BatchError(WgpuEpError, ValueError):
    """Requests cannot be joined to a batch; names the input or output with a different first axis."""


class QueueFullError(WgpuEpError):
    """The queue of a SessionPool is full."""


class PoolClosedError(WgpuEpError):
    """A SessionPool accepts no more requests: it was closed, or none of its devices can be used."""


class ProgramError(WgpuEpError):
    """A saved Program is damaged, of another format version, or made for another target."""


class PlaceTakenError(WgpuEpError, FileExistsError):
    """The output path exists and is not replaced. `reason` is the message without `way`, the remedy."""

    def __init__(self, reason: str = "", way: str = "remove it, or name another place") -> None:
        super().__init__(f"{reason}: {way}")
        self.reason = reason


class WriteError(WgpuEpError, OSError):
    """A file cannot be written; names the file and the reason. A previous file of that name is unchanged.

    `reason` is the system's: the disk is full, read-only or gone. `errno` is the system's error number, if there is one."""

    reason: str = ""

    @classmethod
    def of(cls, path: object, reason: str, number: int | None = None) -> WriteError:
        """Returns the error for a path."""
        made = cls(f"{path} cannot be written: {reason}; name another place, or make room")
        made.reason, made.errno = reason, number
        return made
