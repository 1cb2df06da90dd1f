"""The provider options as types, for completion and checks of `session(model, ...)` in editors and type checkers.

At run time, `table.py` counts; a test compares the two.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal, TypeAlias, TypedDict

Flag: TypeAlias = bool | Literal["0", "1", 0, 1]
Number: TypeAlias = int | str
CacheMode: TypeAlias = Literal["disabled", "lazyRelease", "simple", "bucket"]


class ProviderOptions(TypedDict, total=False):
    """Every option of a session, as Python values or as text. docs/options.md describes their effects."""

    preferredLayout: Literal["NCHW", "NHWC"]
    enableGraphCapture: Flag
    enableInt64: Flag
    forceCpuNodeNames: str | Sequence[str]
    powerPreference: Literal["high-performance", "low-power"]
    validationMode: Literal["disabled", "wgpuOnly", "basic", "full"]
    deviceId: Number
    webgpuInstance: Number
    webgpuDevice: Number
    dawnProcTable: Number
    dawnBackendType: Literal["D3D12", "Vulkan", ""]
    webgpuLibrary: Literal["auto", "wgpu-native", "dawn"]
    enablePIXCapture: Flag
    enableRobustness: Flag
    preserveDevice: Flag
    sessionBufferPoolGenerations: Number
    multiRotaryCacheConcatOffset: Number
    kvCacheQuantizationBits: Literal["0", "4", "8", 0, 4, 8]
    maxStorageBufferBindingSize: Number
    maxNumPendingDispatches: Number
    storageBufferCacheMode: CacheMode
    uniformBufferCacheMode: CacheMode
    queryResolveBufferCacheMode: CacheMode
    defaultBufferCacheMode: CacheMode
    weightLoadAcceleration: Literal["off", "preferred", "required"]
    enableMatmulFp32Accumulation: Flag
    enableInt8Activations: Flag
    adapterIndex: Number
    maxStorageBuffersPerShaderStage: Number
    tuningTable: str | os.PathLike[str]
