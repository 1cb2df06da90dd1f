"""The types, constants and strings of webgpu.h, which all libraries share.

In: the header, parsed when this package was built. Out: `ffi`, `new`, `constant` and helpers. Invariant: no library is opened
here. The functions of any library are called with these types, so handles and structures have the same types everywhere. A
library with a different header is refused when it is opened (`difference`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from ...errors import DeviceError

try:
    from ..._wgpu import ffi as _declared
except ImportError as error:
    raise DeviceError(
        f"{error}: the native parts of this checkout are not built; run `python setup.py build_ext --inplace`"
    ) from error

ffi: Any = _declared
new: Callable[..., Any] = ffi.new


def constant(name: str) -> int:
    """Returns the number of an enumeration's constant, such as `WGPUQueryType_Timestamp`."""
    return int(ffi.typeof(name.split("_")[0]).relements[name])


# WGPUBufferUsage, WGPUMapMode and WGPUShaderStage are C constants and not enumerations.
USAGE_MAP_READ, USAGE_MAP_WRITE, USAGE_COPY_SRC, USAGE_COPY_DST = 0x1, 0x2, 0x4, 0x8
USAGE_UNIFORM, USAGE_STORAGE, USAGE_QUERY_RESOLVE = 0x40, 0x80, 0x200
MAP_READ, MAP_WRITE = 1, 2
STAGE_COMPUTE = 4
WHOLE_TEXT = (1 << 64) - 1  # WGPU_STRLEN: the string is terminated by a zero

# The fields of WGPULimits, and the size in bytes of each.
LIMITS = {name: ffi.sizeof(kind.type) for name, kind in ffi.typeof("WGPULimits").fields if name != "nextInChain"}


def spec_name(camel: str) -> str:
    """Converts a limit to the spelling of WebGPU's specification and wgpu-py: `maxBufferSize` -> `max-buffer-size`."""
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in camel)


# Texture formats in names of features, which the specification writes without hyphens.
_FORMATS = {"Depth32Float": "depth32float", "BGRA8Unorm": "bgra8unorm", "RG11B10Ufloat": "rg11b10ufloat"}
_WORDS = re.compile("(?<=[a-z])(?=[A-Z])|(?<=[0-9])(?=[A-Z][a-z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=d)(?=3D)")


def feature_name(constant: str) -> str:
    """Converts a feature to the spelling of the specification and wgpu-py: `WGPUFeatureName_ShaderF16` -> `shader-f16`."""
    name = constant.split("_", 1)[1]
    for camel, plain in _FORMATS.items():
        name = name.replace(camel, plain)
    return _WORDS.sub("-", name).lower()


def feature_numbers(declared: Any, kinds: Iterable[str]) -> dict[str, int]:
    """Returns the number of every feature in these enumerations of a library's declarations (a cffi FFI)."""
    return {
        feature_name(name): number
        for kind in kinds
        for number, name in declared.typeof(kind).elements.items()
        if not name.endswith("_Force32")
    }


def address(handle: Any) -> int:
    """Returns a handle or function pointer of a library as a number."""
    return int(ffi.cast("uintptr_t", handle))


def text_of(view: Any) -> str:
    """Returns the Python string of a WGPUStringView."""
    if view.data == ffi.NULL or view.length == 0:
        return ""
    if view.length == WHOLE_TEXT:
        return str(ffi.string(view.data).decode(errors="replace"))
    return str(ffi.string(view.data, view.length).decode(errors="replace"))


class StringView:
    """A C copy of a string. `fill` sets a WGPUStringView to it. Keep it alive until the call that reads it is done."""

    def __init__(self, text: str) -> None:
        encoded = text.encode()
        self.length = len(encoded)
        self.data = new("char[]", encoded)

    def fill(self, view: Any) -> None:
        view.data = self.data
        view.length = self.length


# The functions of webgpu.h that this package uses from every library. A library's file names those that only it has.
FUNCTIONS = (
    *(f"wgpu{kind}{call}" for kind in ("Buffer", "Device") for call in ("AddRef", "Destroy")),
    *(
        f"wgpu{kind}Release"
        for kind in (
            "ComputePassEncoder", "CommandEncoder", "CommandBuffer", "QuerySet", "BindGroup", "ComputePipeline",
            "ShaderModule", "PipelineLayout", "BindGroupLayout", "Buffer", "Queue", "Device",
        )
    ),
    *(
        f"wgpu{call}"
        for call in (
            "AdapterAddRef", "AdapterGetFeatures", "AdapterGetInfo", "AdapterGetLimits", "AdapterInfoFreeMembers",
            "AdapterRequestDevice", "BufferGetConstMappedRange", "BufferGetMappedRange", "BufferMapAsync", "BufferUnmap",
            "CommandEncoderBeginComputePass", "CommandEncoderCopyBufferToBuffer", "CommandEncoderFinish",
            "CommandEncoderResolveQuerySet", "ComputePassEncoderDispatchWorkgroups", "ComputePassEncoderEnd",
            "ComputePassEncoderSetBindGroup", "ComputePassEncoderSetPipeline", "CreateInstance", "DeviceCreateBindGroup",
            "DeviceCreateBindGroupLayout", "DeviceCreateBuffer", "DeviceCreateCommandEncoder", "DeviceCreateComputePipeline",
            "DeviceCreatePipelineLayout", "DeviceCreateQuerySet", "DeviceCreateShaderModule", "DeviceGetQueue",
            "DevicePopErrorScope", "DevicePushErrorScope", "InstanceProcessEvents", "QueueWriteBuffer",
            "SupportedFeaturesFreeMembers",
        )
    ),
)  # fmt: skip


def difference(declared: Any, kinds: Iterable[str]) -> str:
    """Returns the first of these types (structures, enumerations) that differs in other declarations (a cffi FFI), or ""."""
    for kind in kinds:
        try:
            theirs = declared.typeof(kind)
        except declared.error:
            return kind
        ours = ffi.typeof(kind)
        if _shape(ffi, ours) != _shape(declared, theirs) and not _extends(ours, theirs):
            return kind
    return ""


def _shape(declared: Any, kind: Any) -> Any:
    if kind.kind != "struct":
        return None
    return declared.sizeof(kind), [(name, field.offset, field.type.cname) for name, field in kind.fields]


def _extends(ours: Any, theirs: Any) -> bool:
    """Whether all constants of an enumeration have the same meaning in the other one, which may have more."""
    return bool(ours.kind == "enum" and all(theirs.elements.get(n) == name for n, name in ours.elements.items()))
