"""How long each dispatch takes on the GPU, from timestamp queries. In: dispatches. Out: seconds per dispatch.

Invariant: every dispatch runs in a pass of its own, so the times leave out overlap between dispatches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .encoding import Dispatch
from .native import USAGE_COPY_SRC, USAGE_QUERY_RESOLVE, ffi, lib, new

# WebGPU allows 4,096 queries in a set, two per dispatch.
PER_SET = 2048


def encode_timed(device: Any, dispatches: Sequence[Dispatch], queries: Any, resolved: Any) -> Any:
    """A command buffer that runs at most PER_SET dispatches and leaves two 64-bit timestamps of each in `resolved`."""
    encoder = lib.wgpuDeviceCreateCommandEncoder(device, ffi.NULL)
    for number, (pipeline, group, (x, y, z)) in enumerate(dispatches):
        writes = new("WGPUPassTimestampWrites *")
        writes.querySet = queries
        writes.beginningOfPassWriteIndex = 2 * number
        writes.endOfPassWriteIndex = 2 * number + 1
        descriptor = new("WGPUComputePassDescriptor *")
        descriptor.timestampWrites = writes
        compute = lib.wgpuCommandEncoderBeginComputePass(encoder, descriptor)
        lib.wgpuComputePassEncoderSetPipeline(compute, pipeline.handle)
        lib.wgpuComputePassEncoderSetBindGroup(compute, 0, group.handle, 0, ffi.NULL)
        lib.wgpuComputePassEncoderDispatchWorkgroups(compute, x, y, z)
        lib.wgpuComputePassEncoderEnd(compute)
        lib.wgpuComputePassEncoderRelease(compute)
    lib.wgpuCommandEncoderResolveQuerySet(encoder, queries, 0, 2 * len(dispatches), resolved, 0)
    commands = lib.wgpuCommandEncoderFinish(encoder, ffi.NULL)
    lib.wgpuCommandEncoderRelease(encoder)
    return commands


def query_set(device: Any, count: int) -> Any:
    """A set of `count` timestamp queries."""
    descriptor = new("WGPUQuerySetDescriptor *")
    descriptor.type = lib.WGPUQueryType_Timestamp
    descriptor.count = count
    return lib.wgpuDeviceCreateQuerySet(device, descriptor)


RESOLVE_USAGE = USAGE_QUERY_RESOLVE | USAGE_COPY_SRC
