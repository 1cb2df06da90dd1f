"""One GPU as the runtime sees it: memory in, dispatches, memory out.

In: bytes, WGSL, dispatch lists. Out: buffers, pipelines, bytes. Invariants: encoding and submitting happen under one
lock per device, waiting for the GPU under none; a lost device is refused before wgpu-native is called, which would
abort the process; the queue runs uploads, copies and submits in the order of the calls.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

from wgpu.backends.wgpu_native._mappings import (  # type: ignore[import-untyped,unused-ignore]
    enum_str2int,
    enummap,
)

from ..errors import DeviceError, DeviceLostError, LimitError
from ..target import Target
from .adapters import Adapter
from .buffers import Buffer, Releases, StagingPool
from .native import (
    BACKEND_OPENGL,
    MAP_READ,
    PRIMARY_BACKENDS,
    USAGE_COPY_DST,
    USAGE_COPY_SRC,
    USAGE_MAP_READ,
    USAGE_STORAGE,
    USAGE_UNIFORM,
    errors,
    expect,
    ffi,
    instance,
    lib,
    on_device,
    on_error,
    on_lost,
    on_mapped,
)
from .pipelines import BindGroup, Compiler, Pipeline

# Writes wait in wgpu-native's own staging memory until the next submit; past this many bytes we submit them ourselves.
FLUSH_BYTES = 64 << 20

_COUNTERS = (
    "pipelines",
    "submits",
    "dispatches",
    "bind_groups",
    "buffers",
    "buffer_bytes",
    "uploads",
    "downloads",
)


class Device:
    """A WebGPU device and its queue. Methods may be called from many threads. Use `open_device`."""

    def __init__(self, adapter: Adapter, target: Target) -> None:
        self.adapter = adapter
        self.target = target
        self.counters: dict[str, int] = dict.fromkeys(_COUNTERS, 0)
        self._lost_reason: str | None = None
        self._handle = _request(adapter, target, self._on_lost)
        self._queue = lib.wgpuDeviceGetQueue(self._handle)
        self._lock = threading.Lock()
        self._compile_lock = threading.Lock()
        self._count_lock = threading.Lock()
        self._releases = Releases(self._lock, self.counters)
        self._compiler = Compiler(self._handle)
        self._pipelines: dict[tuple[str, tuple[str, ...], bool], Pipeline] = {}
        self._staging = StagingPool(lambda size: self._create(size, USAGE_MAP_READ | USAGE_COPY_DST, "staging"))
        self._unflushed = 0

    @property
    def lost(self) -> bool:
        """Whether the device went away; every further call raises DeviceLostError."""
        return self._lost_reason is not None

    def _on_lost(self, _reason: int, message: str) -> None:
        self._lost_reason = message or "no reason given"

    def _check(self) -> None:
        if self._lost_reason is not None:
            raise DeviceLostError(
                f"the device {self.adapter.name!r} was lost ({self._lost_reason});"
                " tensors on it are gone, create the session again"
            )

    # Memory

    def _create(self, size: int, usage: int, label: str) -> Any:
        self._check()
        descriptor = ffi.new("WGPUBufferDescriptor *")
        descriptor.usage = usage
        descriptor.size = size
        handle = lib.wgpuDeviceCreateBuffer(self._handle, descriptor)
        if errors.messages:
            problem = errors.take()
            raise DeviceError(f"no GPU memory for {label or 'a buffer'} of {size} bytes: {problem.strip()}")
        return handle

    def _new(self, size: int, usage: int, label: str) -> Buffer:
        handle = self._create(size, usage, label)
        with self._lock:
            self._releases.drain()
            self.counters["buffers"] += 1
            self.counters["buffer_bytes"] += size
        return Buffer(handle, size, usage, label, self._releases)

    def _count(self, what: str) -> None:
        with self._count_lock:
            self.counters[what] += 1

    def buffer(self, nbytes: int, label: str = "") -> Buffer:
        """A zeroed storage buffer of at least `nbytes` bytes. Raises LimitError above the adapter's buffer limit."""
        size = max(16, (nbytes + 15) & ~15)
        limit = self.target.max_buffer_bytes
        if size > limit:
            raise LimitError(
                f"{label or 'a tensor'} needs {nbytes} bytes in one buffer;"
                f" the adapter {self.adapter.name!r} allows {limit} (max-buffer-size)"
            )
        usage = USAGE_STORAGE | USAGE_COPY_SRC | USAGE_COPY_DST
        return self._new(size, usage, label)

    def uniform(self, data: bytes) -> Buffer:
        """A uniform buffer that holds `data`, padded with zeros to a multiple of 16 bytes."""
        size = max(16, (len(data) + 15) & ~15)
        usage = USAGE_UNIFORM | USAGE_COPY_DST
        buffer = self._new(size, usage, "uniforms")
        self._write(buffer, 0, data.ljust(size, b"\0"), size)
        return buffer

    def upload(self, buffer: Buffer, offset: int, data: memoryview | bytes) -> None:
        """Writes `data` (contiguous, any number of bytes) at `offset` bytes; a copy is taken before this returns.

        GPU memory is written in words of 4 bytes: the up to 3 bytes after the data in its last word become zero, and an
        `offset` inside a word costs a readback of that word.
        """
        view = memoryview(data)
        if not view.nbytes:
            return
        view = view.cast("B") if view.ndim else memoryview(view.tobytes())
        _inside(buffer, offset, view.nbytes, "upload")
        self._count("uploads")
        lead = offset & 3
        if lead:
            word = bytearray(4)
            self.download(buffer, offset - lead, memoryview(word))
            first = min(4 - lead, view.nbytes)
            word[lead : lead + first] = view[:first]
            self._write(buffer, offset - lead, bytes(word), 4)
            view = view[first:]
            offset += first
        whole = view.nbytes & ~3
        if whole:
            self._write(buffer, offset, view, whole)
        if view.nbytes > whole:
            self._write(buffer, offset + whole, bytes(view[whole:]).ljust(4, b"\0"), 4)

    def _write(self, buffer: Buffer, offset: int, data: memoryview | bytes, nbytes: int) -> None:
        self._check()
        lib.wgpuQueueWriteBuffer(self._queue, buffer.handle, offset, ffi.from_buffer(data), nbytes)
        self._raise("the upload")
        self._unflushed += nbytes
        if self._unflushed > FLUSH_BYTES:
            with self._lock:
                self._check()
                self._unflushed = 0
                lib.wgpuQueueSubmit(self._queue, 0, ffi.NULL)

    def download(self, buffer: Buffer, offset: int, into: memoryview) -> None:
        """Fills `into` (contiguous, writable) from `offset` bytes on, after everything submitted so far has run.

        Other Python threads run meanwhile, and may use the device.
        """
        target = into if into.format == "B" and into.ndim == 1 else into.cast("B")
        nbytes = target.nbytes
        if not nbytes:
            return
        _inside(buffer, offset, nbytes, "download")
        start = offset & ~3
        length = (offset + nbytes + 3 & ~3) - start
        staging, size = self._staging.take(length)
        arrived = threading.Event()
        answer: list[tuple[int, str]] = []

        def mapped(status: int, message: str) -> None:
            answer.append((status, message))
            arrived.set()

        with self._lock:
            self._check()
            self._releases.drain()
            encoder = lib.wgpuDeviceCreateCommandEncoder(self._handle, ffi.NULL)
            lib.wgpuCommandEncoderCopyBufferToBuffer(encoder, buffer.handle, start, staging, 0, length)
            index = self._finish_and_submit(encoder)
            self._unflushed = 0
            info = ffi.new("WGPUBufferMapCallbackInfo *")
            info.mode = lib.WGPUCallbackMode_AllowProcessEvents
            info.callback = on_mapped
            info.userdata1 = expect(mapped)
            lib.wgpuBufferMapAsync(staging, MAP_READ, 0, length, info[0])
        self._wait_for(index, arrived)
        self._count("downloads")
        if not answer or answer[0][0] != lib.WGPUMapAsyncStatus_Success:
            self._check()
            raise DeviceError(f"the GPU memory of {buffer!r} cannot be read: {answer[0][1] if answer else 'no answer'}")
        source = int(ffi.cast("uintptr_t", lib.wgpuBufferGetConstMappedRange(staging, 0, length)))
        # ctypes.memmove lets other Python threads run, unlike a memoryview assignment.
        destination = int(ffi.cast("uintptr_t", ffi.from_buffer(target, require_writable=True)))
        ctypes.memmove(destination, source + offset - start, nbytes)
        lib.wgpuBufferUnmap(staging)
        self._staging.give(staging, size)

    def copy(self, src: Buffer, src_offset: int, dst: Buffer, dst_offset: int, nbytes: int) -> None:
        """Copies on the GPU. Offsets are multiples of 4; `nbytes` is rounded up to 4. `src` and `dst` must differ."""
        self.submit((), ((src, src_offset, dst, dst_offset, nbytes),))

    # Kernels

    def pipeline(self, wgsl: str, bindings: tuple[str, ...], label: str, checked: bool = False) -> Pipeline:
        """The compiled kernel of `wgsl` (entry point `main`, group 0), compiled once per device.

        `bindings` gives "read", "read_write" or "uniform" by binding number. `checked` adds bounds checks and loop
        guards. Raises ShaderError that names the label, the message and the line.
        """
        key = (wgsl, bindings, checked)
        known = self._pipelines.get(key)
        if known is not None:
            return known
        with self._compile_lock:
            known = self._pipelines.get(key)
            if known is None:
                self._check()
                known = self._compiler.compile(wgsl, bindings, label, checked)
                self._pipelines[key] = known
                self.counters["pipelines"] += 1
        return known

    def bind_group(self, pipeline: Pipeline, entries: Sequence[tuple[Buffer, int, int]]) -> BindGroup:
        """The buffers of a dispatch: (buffer, offset, size) per binding, in bytes. Raises DeviceError when refused."""
        self._check()
        self._count("bind_groups")
        return self._compiler.bind_group(pipeline, entries, self._releases)

    def submit(
        self,
        dispatches: Sequence[tuple[Pipeline, BindGroup, tuple[int, int, int]]],
        copies_before: Sequence[tuple[Buffer, int, Buffer, int, int]] = (),
    ) -> None:
        """Runs `copies_before` (src, offset, dst, offset, bytes), then `dispatches` (kernel, buffers, workgroups).

        One encoder, one compute pass, one submit; returns when the work is queued. Raises DeviceError when WebGPU
        refuses the work (nothing has run then) and DeviceLostError.
        """
        set_pipeline = lib.wgpuComputePassEncoderSetPipeline
        set_bind_group = lib.wgpuComputePassEncoderSetBindGroup
        dispatch = lib.wgpuComputePassEncoderDispatchWorkgroups
        null = ffi.NULL
        with self._lock:
            self._check()
            self._releases.drain()
            encoder = lib.wgpuDeviceCreateCommandEncoder(self._handle, null)
            for src, src_offset, dst, dst_offset, nbytes in copies_before:
                lib.wgpuCommandEncoderCopyBufferToBuffer(
                    encoder, src.handle, src_offset, dst.handle, dst_offset, (nbytes + 3) & ~3
                )
            if dispatches:
                compute = lib.wgpuCommandEncoderBeginComputePass(encoder, null)
                current = None
                for pipeline, group, (x, y, z) in dispatches:
                    if pipeline is not current:
                        set_pipeline(compute, pipeline.handle)
                        current = pipeline
                    set_bind_group(compute, 0, group.handle, 0, null)
                    dispatch(compute, x, y, z)
                lib.wgpuComputePassEncoderEnd(compute)
                lib.wgpuComputePassEncoderRelease(compute)
            self._finish_and_submit(encoder)
            self._unflushed = 0
            self.counters["submits"] += 1
            self.counters["dispatches"] += len(dispatches)

    def _finish_and_submit(self, encoder: Any) -> int:
        """Submits what `encoder` recorded and gives the submission's index. The caller holds the lock."""
        commands = lib.wgpuCommandEncoderFinish(encoder, ffi.NULL)
        lib.wgpuCommandEncoderRelease(encoder)
        if errors.messages:
            # Submitting an invalid command buffer would abort the process.
            lib.wgpuCommandBufferRelease(commands)
            self._raise("the submitted work")
        index = int(lib.wgpuQueueSubmitForIndex(self._queue, 1, ffi.new("WGPUCommandBuffer *", commands)))
        lib.wgpuCommandBufferRelease(commands)
        return index

    def wait(self) -> None:
        """Returns when everything submitted so far has run. Other Python threads run meanwhile."""
        with self._lock:
            self._check()
            self._releases.drain()
            index = int(lib.wgpuQueueSubmitForIndex(self._queue, 0, ffi.NULL))
            self._unflushed = 0
        self._wait_for(index)

    def _wait_for(self, index: int, arrived: threading.Event | None = None) -> None:
        """Waits without a lock for submission `index`, and for `arrived`, which another thread's poll may set."""
        lib.wgpuDevicePoll(self._handle, True, ffi.new("WGPUSubmissionIndex *", index))
        while arrived is not None and not arrived.wait(0.01):
            if self._lost_reason is not None:
                return
            lib.wgpuDevicePoll(self._handle, False, ffi.NULL)

    def _raise(self, what: str) -> None:
        if errors.messages:
            problem = errors.take()
            self._check()
            raise DeviceError(f"{what} was refused by the device {self.adapter.name!r}: {problem.strip()}")


def _inside(buffer: Buffer, offset: int, nbytes: int, what: str) -> None:
    if offset < 0 or offset + nbytes > buffer.size:
        raise DeviceError(f"{what} of {nbytes} bytes at offset {offset} leaves {buffer!r}")


def _request(adapter: Adapter, target: Target, on_loss: Any) -> Any:
    """Asks the adapter for a device with the limits and features of `target`. Raises DeviceError when refused."""
    limits = ffi.new("WGPULimits *")
    own = adapter.limits
    raised = {
        "max-storage-buffers-per-shader-stage": target.max_storage_buffers,
        "max-compute-invocations-per-workgroup": target.max_invocations,
        "max-compute-workgroup-size-x": own["max-compute-workgroup-size-x"],
        "max-compute-workgroup-size-y": own["max-compute-workgroup-size-y"],
        "max-compute-workgroup-size-z": own["max-compute-workgroup-size-z"],
        "max-compute-workgroup-storage-size": target.max_workgroup_storage,
        "max-storage-buffer-binding-size": target.max_binding_bytes,
        "max-buffer-size": target.max_buffer_bytes,
    }
    for name, kind in ffi.typeof("WGPULimits").fields:
        if name == "nextInChain":
            continue
        key = _limit_name(name)
        # "undefined" asks for WebGPU's default. OpenGL has less than the defaults in places: there, ask for its own.
        undefined = (1 << 8 * ffi.sizeof(kind.type)) - 1
        setattr(limits, name, raised.get(key, own.get(key, undefined) if adapter.backend == "OpenGL" else undefined))
    numbers = [enummap.get(f"FeatureName.{name}") or enum_str2int["NativeFeature"][name] for name in target.features]
    features = ffi.new("WGPUFeatureName[]", numbers or 1)
    descriptor = ffi.new("WGPUDeviceDescriptor *")
    descriptor.requiredFeatureCount = len(numbers)
    descriptor.requiredFeatures = features
    descriptor.requiredLimits = limits
    descriptor.deviceLostCallbackInfo.mode = lib.WGPUCallbackMode_AllowSpontaneous
    descriptor.deviceLostCallbackInfo.callback = on_lost
    descriptor.deviceLostCallbackInfo.userdata1 = expect(on_loss)
    descriptor.uncapturedErrorCallbackInfo.callback = on_error
    answers: list[tuple[int, Any, str]] = []
    userdata = ffi.new_handle(answers)
    info = ffi.new("WGPURequestDeviceCallbackInfo *")
    info.mode = lib.WGPUCallbackMode_AllowProcessEvents
    info.callback = on_device
    info.userdata1 = userdata
    lib.wgpuAdapterRequestDevice(adapter.handle, descriptor, info[0])
    if not answers:
        lib.wgpuInstanceProcessEvents(instance(BACKEND_OPENGL if adapter.backend == "OpenGL" else PRIMARY_BACKENDS))
    status, handle, message = answers[0] if answers else (-1, ffi.NULL, "no answer")
    if status != lib.WGPURequestDeviceStatus_Success:
        raise DeviceError(f"the adapter {adapter.name!r} refused a device: {message}")
    return handle


def _limit_name(camel: str) -> str:
    """`maxComputeWorkgroupSizeX` -> `max-compute-workgroup-size-x`."""
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in camel)


_registry: dict[tuple[int, int, Target], Device] = {}
_registry_lock = threading.Lock()


def open_device(adapter: Adapter, context: int = 0, max_storage_buffers: int | None = None) -> Device:
    """The device of (adapter, context), made on first use and shared by all sessions; anew after a loss.

    Raises DeviceError when the adapter refuses.
    """
    target = adapter.target(max_storage_buffers)
    key = (adapter.index, context, target)
    with _registry_lock:
        device = _registry.get(key)
        if device is None or device.lost:
            device = _registry[key] = Device(adapter, target)
        return device
