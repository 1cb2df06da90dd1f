"""Compiled kernels. In: WGSL text and the kind of each binding. Out: `Pipeline` and `BindGroup`, or a `ShaderError`.

Invariant: every pipeline has an explicit bind group layout, one per tuple of binding kinds, so that a bind group made
for one pipeline fits every pipeline of the same kinds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import DeviceError, ShaderError
from .buffers import Buffer, Releases
from .native import STAGE_COMPUTE, Text, errors, ffi, lib


@dataclass(frozen=True, eq=False)
class Pipeline:
    """One compiled kernel; `bindings` are "read", "read_write" or "uniform" by binding number in group 0."""

    label: str
    bindings: tuple[str, ...]
    handle: Any
    layout: Any


class BindGroup:
    """The buffers of one dispatch; opaque. Keeps its buffers alive."""

    __slots__ = ("_release", "buffers", "handle")

    def __init__(self, handle: Any, buffers: tuple[Buffer, ...], releases: Releases) -> None:
        self.handle = handle
        self.buffers = buffers
        self._release = releases.add

    def __del__(self) -> None:
        handle = getattr(self, "handle", None)
        if handle is not None:
            self._release(lib.wgpuBindGroupRelease, handle)


class Compiler:
    """Makes layouts and pipelines of one device. Not thread safe: the device calls it under its lock."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._layouts: dict[tuple[str, ...], tuple[Any, Any]] = {}
        self._kinds = {
            "read": lib.WGPUBufferBindingType_ReadOnlyStorage,
            "read_write": lib.WGPUBufferBindingType_Storage,
            "uniform": lib.WGPUBufferBindingType_Uniform,
        }

    def layout(self, bindings: tuple[str, ...]) -> tuple[Any, Any]:
        """(bind group layout, pipeline layout) for these binding kinds."""
        known = self._layouts.get(bindings)
        if known is not None:
            return known
        entries = ffi.new("WGPUBindGroupLayoutEntry[]", max(1, len(bindings)))
        for number, kind in enumerate(bindings):
            entries[number].binding = number
            entries[number].visibility = STAGE_COMPUTE
            entries[number].buffer.type = self._kinds[kind]
        group_descriptor = ffi.new("WGPUBindGroupLayoutDescriptor *")
        group_descriptor.entryCount = len(bindings)
        group_descriptor.entries = entries
        group = lib.wgpuDeviceCreateBindGroupLayout(self._device, group_descriptor)
        groups = ffi.new("WGPUBindGroupLayout[]", [group])
        descriptor = ffi.new("WGPUPipelineLayoutDescriptor *")
        descriptor.bindGroupLayoutCount = 1
        descriptor.bindGroupLayouts = groups
        layout = lib.wgpuDeviceCreatePipelineLayout(self._device, descriptor)
        problem = errors.take()
        if problem:
            raise DeviceError(f"the bindings {bindings} are refused by the device: {_summary(problem)}")
        self._layouts[bindings] = group, layout
        return group, layout

    def compile(self, wgsl: str, bindings: tuple[str, ...], label: str, checked: bool) -> Pipeline:
        """Compiles `wgsl`, entry point `main`. Raises ShaderError with the label, the message and the WGSL line."""
        group, layout = self.layout(bindings)
        code, name, entry = Text(wgsl), Text(label), Text("main")
        source = ffi.new("WGPUShaderSourceWGSL *")
        source.chain.sType = lib.WGPUSType_ShaderSourceWGSL
        code.fill(source.code)
        module_descriptor = ffi.new("WGPUShaderModuleDescriptor *")
        module_descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", source)
        name.fill(module_descriptor.label)
        if checked:
            module = lib.wgpuDeviceCreateShaderModule(self._device, module_descriptor)
        else:
            # Without bounds checks and loop guards: 5 to 15 % faster (matmul on an H200). Kernels clamp what a tensor
            # decides, so no index leaves its buffer.
            module = lib.wgpuDeviceCreateShaderModuleTrusted(self._device, module_descriptor, 0)
        problem = errors.take()
        if problem:
            if module != ffi.NULL:
                lib.wgpuShaderModuleRelease(module)
            raise ShaderError(_explain(problem, wgsl, label))
        descriptor = ffi.new("WGPUComputePipelineDescriptor *")
        name.fill(descriptor.label)
        descriptor.layout = layout
        descriptor.compute.module = module
        entry.fill(descriptor.compute.entryPoint)
        pipeline = lib.wgpuDeviceCreateComputePipeline(self._device, descriptor)
        lib.wgpuShaderModuleRelease(module)
        problem = errors.take()
        if problem:
            raise ShaderError(_explain(problem, wgsl, label))
        return Pipeline(label, bindings, pipeline, group)

    def bind_group(
        self, pipeline: Pipeline, entries: Sequence[tuple[Buffer, int, int]], releases: Releases
    ) -> BindGroup:
        """A bind group of `pipeline` from (buffer, offset, size) per binding, in bytes. Raises DeviceError."""
        count = len(entries)
        if count != len(pipeline.bindings):
            raise DeviceError(f"kernel {pipeline.label!r} has {len(pipeline.bindings)} bindings, {count} were given")
        array = ffi.new("WGPUBindGroupEntry[]", max(1, count))
        for number, (buffer, offset, size) in enumerate(entries):
            entry = array[number]
            entry.binding = number
            entry.buffer = buffer.handle
            entry.offset = offset
            entry.size = size
        descriptor = ffi.new("WGPUBindGroupDescriptor *")
        descriptor.layout = pipeline.layout
        descriptor.entryCount = count
        descriptor.entries = array
        handle = lib.wgpuDeviceCreateBindGroup(self._device, descriptor)
        if errors.messages:
            problem = errors.take()
            raise DeviceError(f"the buffers of kernel {pipeline.label!r} cannot be bound: {_summary(problem)}")
        return BindGroup(handle, tuple(buffer for buffer, _, _ in entries), releases)


def _summary(problem: str) -> str:
    """wgpu-native's message on one line, without its headings."""
    lines = [line.strip() for line in problem.splitlines()]
    return "; ".join(line for line in lines if line and line not in ("Validation Error", "Caused by:"))


def _explain(problem: str, wgsl: str, label: str) -> str:
    """The text of a ShaderError: the kernel, what is wrong, the line of WGSL, and wgpu-native's whole message."""
    place = re.search(r"┌─ .*?:(\d+):(\d+)", problem)
    where = ""
    if place:
        number = int(place.group(1))
        lines = wgsl.splitlines()
        line = lines[number - 1].strip() if 0 < number <= len(lines) else ""
        where = f", line {number}: `{line}`"
    return f"kernel {label!r} does not compile{where}\n{problem.strip()}"
