"""Every error a user can meet. Each message names the thing, the value and the way out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

_SHOWN = 120
E = TypeVar("E", bound=BaseException)


def cut(value: object) -> str:
    """A value of the user for a message: its `repr`, cut in the middle when it is long."""
    text = repr(value)
    if len(text) <= _SHOWN:
        return text
    return f"{text[: _SHOWN // 2]}...{text[-_SHOWN // 4 :]} ({len(text)} characters)"


def cause_of(error: Exception) -> str:
    """The text of an error within a message; of a KeyError, which says no more than a key, what is missing."""
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def with_message(error: E, text: str) -> E:
    """The same error with another text: its other fields stay."""
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
    """The device has no memory left for a buffer; names the tensor and its bytes. A smaller input may fit."""


class ForkError(DeviceError):
    """The process was forked from one that uses the GPU. Start processes with the method spawn."""


class DeviceLostError(DeviceError):
    """The device went away; tensors that callers own on it are gone. The next run continues on a new device."""


class ModelChangedError(WgpuEpError):
    """A weight is needed again after a loss of the device, and the model's file does not hold it any more."""


class LimitError(WgpuEpError):
    """A tensor or a dispatch is larger than the adapter allows; names tensor, bytes and limit.

    `sizes` are those of the run by the symbols of its Program, where the Program compiled for them may stay within the limit."""

    def __init__(self, message: str = "", sizes: Mapping[str, int] | None = None) -> None:
        super().__init__(message)
        self.sizes: Mapping[str, int] = sizes or {}


class ShaderError(WgpuEpError):
    """A kernel did not compile; names the kernel and the line."""


class NonFiniteError(WgpuEpError):
    """A kernel made NaN or infinity from finite inputs, with validationMode full; names node, value and place."""


class ModelError(WgpuEpError):
    """A node that no provider can run; names the node and what is wrong with it."""


class InternalError(WgpuEpError):
    """A fault of this package and not of the model; names the node and the place in the code. Please report it."""


class Fault(str):
    """A reason against a node that is a fault, with the `error` that says so: of the model, or of this package."""

    error: ModelError | InternalError

    def __new__(cls, error: ModelError | InternalError) -> Fault:
        made = super().__new__(cls, error)
        made.error = error
        return made


class OutOfRangeError(ModelError, IndexError):
    """An index lies outside the axis that it counts along; names node, index, place, axis and extent."""


class UnsupportedError(WgpuEpError):
    """A node cannot run on WebGPU; the message is the reason shown to the user."""


class FreeSizeError(UnsupportedError):
    """A node cannot run on WebGPU while sizes of the model's inputs are free; where they are fixed, it may.

    `keys` name the free dimensions, as far as they are known, and `reason` is the message without the `way` to fix them."""

    def __init__(self, reason: str = "", keys: Sequence[str] = (), way: str = "") -> None:
        super().__init__(f"{reason}; {way}" if way else reason)
        self.reason, self.keys = reason, tuple(keys)


class FreeSize(str):
    """A reason against a node that fixed sizes of the model's inputs may remove: the text of a FreeSizeError."""


class InputError(WgpuEpError, ValueError):
    """An input has the wrong name, type, rank or shape, or inputs do not fit together."""


class ExtentError(InputError):
    """An input has not the rank or the extents that the model says, or that were inferred for it where the model says nothing."""


class BatchError(WgpuEpError, ValueError):
    """Requests cannot be joined to a batch; names the input or output that has another first axis."""


class QueueFullError(WgpuEpError):
    """As many requests wait as the queue of a SessionPool takes."""


class PoolClosedError(WgpuEpError):
    """A SessionPool takes no requests any more: it was closed, or none of its devices can be used."""


class ProgramError(WgpuEpError):
    """A saved Program is damaged, of another format version, or made for another target."""


class PlaceTakenError(WgpuEpError, FileExistsError):
    """Something lies where a result is to be written, and it is not replaced. `reason` is the message without the `way` out."""

    def __init__(self, reason: str = "", way: str = "remove it, or name another place") -> None:
        super().__init__(f"{reason}: {way}")
        self.reason = reason


class WriteError(WgpuEpError, OSError):
    """A file cannot be written: names the file and the reason. What was there before is still there, and whole.

    `reason` is the system's: the disk is full, read-only or away. `errno` is its number, where it has one."""

    reason: str = ""

    @classmethod
    def of(cls, path: object, reason: str, number: int | None = None) -> WriteError:
        """The error about a path."""
        made = cls(f"{path} cannot be written: {reason}; name another place, or make room")
        made.reason, made.errno = reason, number
        return made
