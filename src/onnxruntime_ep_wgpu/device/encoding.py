"""Encodes dispatch lists as command buffers. In: dispatches and copies. Out: a finished WebGPU command buffer.

Invariant: a list is converted to rows of 64-bit words once. Encoding the rows is one call without the interpreter lock
(csrc/encode.c).
"""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from .buffers import Buffer
from .native import native as native
from .pipelines import BindGroup, Pipeline
from .webgpu.api import Library
from .webgpu.header import address
from .webgpu.owned import depend

Dispatch = tuple[Pipeline, BindGroup, tuple[int, int, int]]
Copy = tuple[Buffer, int, Buffer, int, int]

# In the order of csrc/encode.c.
_FUNCTIONS = (
    "wgpuDeviceCreateCommandEncoder",
    "wgpuCommandEncoderCopyBufferToBuffer",
    "wgpuCommandEncoderBeginComputePass",
    "wgpuComputePassEncoderSetPipeline",
    "wgpuComputePassEncoderSetBindGroup",
    "wgpuComputePassEncoderDispatchWorkgroups",
    "wgpuComputePassEncoderEnd",
    "wgpuComputePassEncoderRelease",
    "wgpuCommandEncoderFinish",
    "wgpuCommandEncoderRelease",
    "wgpuQueueWriteBuffer",
    "wgpuCommandBufferRelease",
    "wgpuBufferMapAsync",
    "wgpuBufferGetConstMappedRange",
    "wgpuBufferUnmap",
)
_WORDS = 5


@cache
def functions_of(library: Library) -> array[int]:
    """The table of a library's functions for csrc/encode.c."""
    return array("Q", [address(getattr(library.lib, name)) for name in _FUNCTIONS])


class Recording:
    """A dispatch list that can be submitted any number of times. It keeps its pipelines and bind groups alive."""

    __slots__ = ("_dispatches", "words")

    def __init__(self, dispatches: Sequence[Dispatch]) -> None:
        self._dispatches = list(dispatches)
        self.words = array(
            "Q", [word for kernel, group, (x, y, z) in dispatches for word in (kernel.address, group.address, x, y, z)]
        )

    def changed(self, rows: Mapping[int, Dispatch]) -> Recording:
        """Returns a copy with some dispatches replaced, by index."""
        made = Recording(())
        made._dispatches, made.words = self._dispatches.copy(), self.words[:]
        for number, (kernel, group, grid) in rows.items():
            made._dispatches[number] = kernel, group, grid
            made.words[number * _WORDS : (number + 1) * _WORDS] = array("Q", (kernel.address, group.address, *grid))
        return made

    def __len__(self) -> int:
        return len(self._dispatches)

    def __iter__(self) -> Iterator[Dispatch]:
        return iter(self._dispatches)


class BoundRecording:
    """A recording that binds buffers of callers, without keeping them alive. When one of them dies, it releases its bind groups,
    which keep their memory."""

    __slots__ = ("__weakref__", "_buffers", "recording")

    def __init__(self, recording: Recording, buffers: Sequence[weakref.ref[Buffer] | None]) -> None:
        self.recording: Recording | None = recording
        self._buffers = buffers
        depend(self)

    def buffers_ended(self) -> None:
        if any(buffer is not None and buffer() is None for buffer in self._buffers):
            self.recording = None


def copy_words(copies: Iterable[Copy]) -> array[int]:
    """Copies as rows for csrc/encode.c, with sizes rounded up to 4 bytes."""
    words = array("Q")
    for source, start, destination, place, nbytes in copies:
        words.extend((address(source.handle), start, address(destination.handle), place, (nbytes + 3) & ~3))
    return words


def encode_copies(lib: Any, encoder: Any, copies: Sequence[Copy]) -> None:
    """Adds copies to a command encoder, with sizes rounded up to 4 bytes. `lib` has the functions of its library."""
    for source, start, destination, place, nbytes in copies:
        lib.wgpuCommandEncoderCopyBufferToBuffer(
            encoder, source.handle, start, destination.handle, place, (nbytes + 3) & ~3
        )


class Encoder:
    """Encodes commands for one device. Thread safe."""

    def __init__(self, library: Library, device: Any) -> None:
        self._device = device
        self._address = address(device)
        self._functions, self._own_address = functions_of(library), library.owner.own_address

    def encode(
        self,
        recording: Recording,
        before: Sequence[Copy] = (),
        after: Sequence[Copy] = (),
        first: int = 0,
        count: int | None = None,
    ) -> Any:
        """Returns the command buffer of the copies `before`, `count` dispatches from index `first` on, and the copies `after`.

        `count` defaults to all. The dispatches share one compute pass. Sizes of copies are rounded up to 4 bytes.
        """
        if count is None:
            count = len(recording) - first
        words = native.ffi.from_buffer
        copies = words("uint64_t[]", copy_words((*before, *after))), len(before), len(after)
        rows = words("uint64_t[]", recording.words) + first * _WORDS, count
        functions = words("uint64_t[]", self._functions)
        return self._own_address("CommandBuffer", native.lib.encode, functions, self._address, *copies, *rows)
