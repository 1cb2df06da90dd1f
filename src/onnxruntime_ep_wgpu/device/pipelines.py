"""Compiled kernels. In: WGSL text and the kind of each binding. Out: `Pipeline` and `BindGroup`, or a `ShaderError`.

Invariant: every pipeline has an explicit bind group layout, one per tuple of binding kinds. So a bind group of one pipeline fits
every pipeline with the same kinds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import DeviceError, LimitError, ShaderError
from .buffers import BufferBinding
from .webgpu.api import Library
from .webgpu.header import STAGE_COMPUTE, StringView, address, constant, ffi, new
from .webgpu.messages import errors


@dataclass(frozen=True, eq=False)
class Pipeline:
    """One compiled kernel. `bindings` are "read", "read_write" or "uniform" by binding number in group 0."""

    label: str
    bindings: tuple[str, ...]
    handle: Any
    layout: Any
    address: int


class BindGroup:
    """The buffers of one dispatch; opaque. The library keeps their memory, so Python need not keep the buffers."""

    __slots__ = ("address", "handle")

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.address = address(handle)


class Compiler:
    """Creates layouts, pipelines and bind groups of one device. Thread safe.

    `problem` returns the library's messages about the previous calls. It raises if the device is lost.
    """

    def __init__(self, library: Library, device: Any, problem: Callable[[], str]) -> None:
        self._library, self._lib, self._own = library, library.lib, library.owner.own
        self._device = device
        self._problem = problem
        self._lock = threading.Lock()
        self.layouts: dict[tuple[str, ...], tuple[Any, Any]] = {}
        self._kinds = {
            "read": constant("WGPUBufferBindingType_ReadOnlyStorage"),
            "read_write": constant("WGPUBufferBindingType_Storage"),
            "uniform": constant("WGPUBufferBindingType_Uniform"),
        }

    def layout(self, bindings: tuple[str, ...]) -> tuple[Any, Any]:
        """Returns (bind group layout, pipeline layout) for these binding kinds."""
        known = self.layouts.get(bindings)
        if known is None:
            with self._lock:
                known = self.layouts.get(bindings)
                if known is None:
                    known = self.layouts[bindings] = self._make_layout(bindings)
        return known

    def _make_layout(self, bindings: tuple[str, ...]) -> tuple[Any, Any]:
        entries = new("WGPUBindGroupLayoutEntry[]", max(1, len(bindings)))
        for number, kind in enumerate(bindings):
            entries[number].binding = number
            entries[number].visibility = STAGE_COMPUTE
            entries[number].buffer.type = self._kinds[kind]
        group_descriptor = new("WGPUBindGroupLayoutDescriptor *")
        group_descriptor.entryCount = len(bindings)
        group_descriptor.entries = entries
        group = self._own("BindGroupLayout", self._lib.wgpuDeviceCreateBindGroupLayout, self._device, group_descriptor)
        groups = new("WGPUBindGroupLayout[]", [group])
        descriptor = new("WGPUPipelineLayoutDescriptor *")
        descriptor.bindGroupLayoutCount = 1
        descriptor.bindGroupLayouts = groups
        layout = self._own("PipelineLayout", self._lib.wgpuDeviceCreatePipelineLayout, self._device, descriptor)
        problem = self._problem()
        if problem:
            raise DeviceError(f"the bindings {bindings} are refused by the device: {problem}")
        return group, layout

    def compile(self, wgsl: str, bindings: tuple[str, ...], label: str, bounds_checks: bool) -> Pipeline:
        """Compiles `wgsl`, entry point `main`. Raises ShaderError with the label, the message and the WGSL line."""
        group, layout = self.layout(bindings)
        code, name, entry = StringView(wgsl), StringView(label), StringView("main")
        source = new("WGPUShaderSourceWGSL *")
        source.chain.sType = constant("WGPUSType_ShaderSourceWGSL")
        code.fill(source.code)
        module_descriptor = new("WGPUShaderModuleDescriptor *")
        module_descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", source)
        name.fill(module_descriptor.label)
        module = self._library.module(self._device, module_descriptor, bounds_checks)
        problem = self._problem()
        if problem:
            raise ShaderError(self._explain(problem, wgsl, label))
        descriptor = new("WGPUComputePipelineDescriptor *")
        name.fill(descriptor.label)
        descriptor.layout = layout
        descriptor.compute.module = module
        entry.fill(descriptor.compute.entryPoint)
        pipeline = self._own("ComputePipeline", self._lib.wgpuDeviceCreateComputePipeline, self._device, descriptor)
        problem = self._problem()
        if problem:
            raise ShaderError(self._explain(problem, wgsl, label))
        return Pipeline(label, bindings, pipeline, group, address(pipeline))

    def _explain(self, problem: str, wgsl: str, label: str) -> str:
        """The message of a ShaderError: the kernel, the line of WGSL, and the library's whole message."""
        number, where = self._library.line_of(problem), ""
        if number is not None:
            lines = wgsl.splitlines()
            line = lines[number - 1].strip() if 0 < number <= len(lines) else ""
            where = f", line {number}: `{line}`"
        return f"kernel {label!r} does not compile{where}: {problem}"

    def bind_group(self, pipeline: Pipeline, entries: Sequence[BufferBinding], limit: int) -> BindGroup:
        """Creates a bind group of `pipeline` from (buffer, offset, size) per binding; sizes and `limit` in bytes."""
        count = len(entries)
        if count != len(pipeline.bindings):
            raise DeviceError(f"kernel {pipeline.label!r} has {len(pipeline.bindings)} bindings, {count} were given")
        # In the order of the fields of WGPUBindGroupEntry; only those for buffers.
        rows = [
            (ffi.NULL, number, buffer.handle, offset, size) for number, (buffer, offset, size) in enumerate(entries)
        ]
        array = new("WGPUBindGroupEntry[]", rows or 1)
        descriptor = new("WGPUBindGroupDescriptor *")
        descriptor.layout = pipeline.layout
        descriptor.entryCount = count
        descriptor.entries = array
        handle = self._own("BindGroup", self._lib.wgpuDeviceCreateBindGroup, self._device, descriptor)
        if errors.messages:
            problem = self._problem()
            for buffer, _, size in entries:
                if size > limit:
                    raise LimitError(
                        f"kernel {pipeline.label!r} binds {size} bytes of {buffer.label or 'a tensor'};"
                        f" the adapter allows {limit} (max-storage-buffer-binding-size)"
                    )
            raise DeviceError(f"the buffers of kernel {pipeline.label!r} cannot be bound: {problem}")
        return BindGroup(handle)
