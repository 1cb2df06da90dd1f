"""Dispatch lists as command buffers. In: dispatches and copies. Out: a finished WebGPU command buffer.

Invariant: a list becomes rows of 64-bit words once; encoding the rows is one call without the interpreter lock
(csrc/encode.c). Where that extension has not been built, a Python loop does the same, about five times slower.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from .buffers import Buffer
from .native import TYPES, address, ffi, lib
from .pipelines import BindGroup, Pipeline

try:
    from .. import _encode  # type: ignore[attr-defined,unused-ignore]
except ImportError:
    _encode = None

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
)
_WORDS = 5


class Recording:
    """A dispatch list ready to be submitted any number of times; keeps its pipelines, bind groups and buffers alive."""

    __slots__ = ("_dispatches", "words")

    def __init__(self, dispatches: Sequence[Dispatch]) -> None:
        self._dispatches = list(dispatches)
        self.words = array(
            "Q", [word for kernel, group, (x, y, z) in dispatches for word in (kernel.address, group.address, x, y, z)]
        )

    def __len__(self) -> int:
        return len(self._dispatches)

    def rebind(self, number: int, group: BindGroup) -> None:
        """Gives dispatch `number` other buffers."""
        kernel, _, workgroups = self._dispatches[number]
        self._dispatches[number] = kernel, group, workgroups
        self.words[number * _WORDS + 1] = group.address


class Encoder:
    """Encodes for one device; many threads may use it at once."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._address = address(device)
        self._functions = array("Q", [address(getattr(lib, name)) for name in _FUNCTIONS])

    def encode(self, recording: Recording, copies: Sequence[Copy], first: int = 0, count: int | None = None) -> Any:
        """The command buffer that copies (rounded up to 4 bytes), then runs `count` dispatches from number `first` on (all
        by default), in one compute pass."""
        if count is None:
            count = len(recording) - first
        if _encode is None:
            return self._encode_in_python(recording, copies, first, count)
        rows = array(
            "Q",
            [
                word
                for source, start, destination, place, nbytes in copies
                for word in (address(source.handle), start, address(destination.handle), place, (nbytes + 3) & ~3)
            ],
        )
        words = _encode.ffi.from_buffer
        commands = _encode.lib.encode(
            words("uint64_t[]", self._functions),
            self._address,
            words("uint64_t[]", rows),
            len(copies),
            words("uint64_t[]", recording.words) + first * _WORDS,
            count,
        )
        return ffi.cast(TYPES["WGPUCommandBuffer"], commands)

    def _encode_in_python(self, recording: Recording, copies: Sequence[Copy], first: int, count: int) -> Any:
        null = ffi.NULL
        encoder = lib.wgpuDeviceCreateCommandEncoder(self._device, null)
        for source, start, destination, place, nbytes in copies:
            lib.wgpuCommandEncoderCopyBufferToBuffer(
                encoder, source.handle, start, destination.handle, place, (nbytes + 3) & ~3
            )
        if count:
            set_pipeline = lib.wgpuComputePassEncoderSetPipeline
            set_bind_group = lib.wgpuComputePassEncoderSetBindGroup
            dispatch = lib.wgpuComputePassEncoderDispatchWorkgroups
            compute = lib.wgpuCommandEncoderBeginComputePass(encoder, null)
            for pipeline, group, (x, y, z) in recording._dispatches[first : first + count]:
                set_pipeline(compute, pipeline.handle)
                set_bind_group(compute, 0, group.handle, 0, null)
                dispatch(compute, x, y, z)
            lib.wgpuComputePassEncoderEnd(compute)
            lib.wgpuComputePassEncoderRelease(compute)
        commands = lib.wgpuCommandEncoderFinish(encoder, null)
        lib.wgpuCommandEncoderRelease(encoder)
        return commands
