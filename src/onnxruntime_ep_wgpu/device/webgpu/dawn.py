"""Dawn, which has matrix units, from the package `wgpudawn`, if it is installed.

In: its extension module, a cffi module in API mode. It exports no function by name but provides their addresses. Out:
`library()`, or an error with the command to install it. Invariants: its functions are called with the types of `header`, after a
check that the types are the same (`header.difference`). Structures that only Dawn has are made by its own declarations.

Differences from wgpu-native:

- Futures take the place of submission indices.
- Bounds checks are a property of a device.
- An error callback runs on the calling thread before the call returns.
- Only the callback reports a loss.
- An invalid submit does not abort the process.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import starmap
from types import SimpleNamespace
from typing import Any

from ... import _submit, process  # type: ignore[attr-defined,unused-ignore]
from ...errors import DeviceError
from ...program.target import F16, SUBGROUP_MATRIX, SUBGROUPS, TIMESTAMPS, MatrixUnit
from .api import Calls
from .header import FUNCTIONS, address, constant, difference, feature_name, ffi, new
from .owned import ObjectOwner

NAME = "dawn"
PACKAGE, WANTED = "wgpudawn", "0.32.0.4"
INSTALL = f"pip install {PACKAGE}=={WANTED}"
# Matrix units are experimental in Dawn, and so is f16 on NVIDIA. Timestamps are not quantised.
_TOGGLES = ("allow_unsafe_apis", "vulkan_enable_f16_on_nvidia")
_NOT = ("timestamp_quantization",)
_UNCHECKED = "disable_robustness"
_FOREVER = (1 << 64) - 1
_PRIMARY = ("Vulkan", "Metal", "D3D12")
_TYPES = {"F32": "f32", "F16": "f16", "U32": "u32", "I32": "i32", "U8": "u8", "I8": "i8"}
# Types of webgpu.h with a layout that is relied on, and then those that only Dawn has.
_SHARED = (
    "WGPUAdapterInfo", "WGPUAdapterType", "WGPUBackendType", "WGPUBindGroupDescriptor", "WGPUBindGroupEntry",
    "WGPUBindGroupLayoutDescriptor", "WGPUBindGroupLayoutEntry", "WGPUBufferBindingType", "WGPUBufferDescriptor",
    "WGPUBufferMapCallbackInfo", "WGPUCallbackMode", "WGPUChainedStruct", "WGPUComputePassDescriptor",
    "WGPUComputePipelineDescriptor", "WGPUDeviceDescriptor", "WGPUErrorFilter", "WGPUErrorType", "WGPUFeatureName",
    "WGPUFuture", "WGPUFutureWaitInfo", "WGPUInstanceDescriptor", "WGPULimits", "WGPUMapAsyncStatus",
    "WGPUPassTimestampWrites", "WGPUPipelineLayoutDescriptor", "WGPUPopErrorScopeCallbackInfo", "WGPUQuerySetDescriptor",
    "WGPUQueryType", "WGPUQueueWorkDoneCallbackInfo", "WGPURequestDeviceCallbackInfo", "WGPURequestDeviceStatus",
    "WGPUShaderModuleDescriptor", "WGPUShaderSourceWGSL", "WGPUStringView", "WGPUSupportedFeatures",
)  # fmt: skip
_OWN = ("WGPUDawnTogglesDescriptor", "WGPUAdapterPropertiesSubgroupMatrixConfigs")
_OWN_FUNCTIONS = ("wgpuQueueSubmit", "wgpuQueueOnSubmittedWorkDone", "wgpuInstanceWaitAny", "wgpuInstanceProcessEvents")
_PLACE = re.compile(r"(?:^|\s):(\d+):(\d+) ", re.MULTILINE)


class Dawn:
    """The opened library. See `api.Library`."""

    name = NAME
    used = frozenset({F16, SUBGROUPS, SUBGROUP_MATRIX, TIMESTAMPS})
    wanted = frozenset({"implicit-device-synchronization", "subgroup-size-control"})
    keeps_staging = False
    module_checks = False

    def __init__(self, module: Any, version: str) -> None:
        self.version = version
        self._ffi, self._dawn = module.ffi, module.lib
        self.lib: Any = SimpleNamespace(**{name: self._function(name) for name in FUNCTIONS})
        self.owner = ObjectOwner(self.lib)
        self.features: Mapping[str, int] = {
            feature_name(name): int(getattr(module.lib, name))
            for name in dir(module.lib)
            if name.startswith("WGPUFeatureName_") and not name.endswith("_Force32")
        }
        self._functions = [self._address(name) for name in _OWN_FUNCTIONS]
        self._wait_any = self._function("wgpuInstanceWaitAny")
        self._instance: Any = None

    def _address(self, name: str) -> int:
        return int(self._ffi.cast("uintptr_t", self._ffi.addressof(self._dawn, name)))

    def _function(self, name: str) -> Callable[..., Any]:
        """Returns a function of webgpu.h with the types of `header`."""
        kind = ffi.typeof(name.replace("wgpu", "WGPUProc", 1))
        made: Callable[..., Any] = ffi.cast(kind, self._address(name))
        return made

    def _toggles(self, enabled: Sequence[str], kept: list[Any], kind: Any = ffi) -> Any:
        """Returns a chained struct that enables toggles, for a descriptor of the declarations `kind`.

        `kept` receives the objects that it points to.
        """
        own = self._ffi
        lists = [[own.new("char[]", name.encode()) for name in names] for names in (enabled, _NOT)]
        arrays = [own.new("const char *[]", names) for names in lists]
        made = own.new("WGPUDawnTogglesDescriptor *")
        made.chain.sType = self._dawn.WGPUSType_DawnTogglesDescriptor
        made.enabledToggleCount, made.enabledToggles = len(enabled), arrays[0]
        made.disabledToggleCount, made.disabledToggles = len(_NOT), arrays[1]
        kept += [lists, arrays, made]
        return kind.cast("WGPUChainedStruct *", kind.cast("uintptr_t", int(own.cast("uintptr_t", made))))

    @property
    def instance(self) -> Any:
        """The process-wide instance. Raises ForkError, DeviceError."""
        process.check_not_forked()
        if self._instance is None:
            process.mark_gpu_used()
            kept: list[Any] = []
            names = (
                self._dawn.WGPUInstanceFeatureName_TimedWaitAny,
                self._dawn.WGPUInstanceFeatureName_MultipleDevicesPerAdapter,
            )
            features = new("WGPUInstanceFeatureName[]", names)
            given = {
                "nextInChain": self._toggles(_TOGGLES, kept),
                "requiredFeatureCount": 2,
                "requiredFeatures": features,
            }
            made = self.lib.wgpuCreateInstance(new("WGPUInstanceDescriptor *", given))
            if not made:
                raise DeviceError(f"{PACKAGE} {self.version} creates no WebGPU instance: {INSTALL}")
            self._instance = self._instance or made  # another thread may have been first
        return self._instance

    def adapters(self) -> list[Any]:
        own, kept = self._ffi, list[Any]()
        here = own.cast("WGPUInstance", address(self.instance))
        options = own.new("WGPURequestAdapterOptions *")
        options.nextInChain = self._toggles(_TOGGLES, kept, own)
        enumerate_adapters = self._dawn.wgpu_dawn_enumerate_adapters
        count = enumerate_adapters(here, options, own.NULL, 0)
        handles = own.new("WGPUAdapter[]", count + 1)
        count = min(count, enumerate_adapters(here, options, handles, count))
        found = [ffi.cast("WGPUAdapter", int(own.cast("uintptr_t", handles[i]))) for i in range(count)]
        return [handle for handle in found if self._is_primary(handle)]

    def _is_primary(self, adapter: Any) -> bool:
        info = new("WGPUAdapterInfo *")
        self.lib.wgpuAdapterGetInfo(adapter, info)
        backends = {getattr(self._dawn, f"WGPUBackendType_{name}") for name in _PRIMARY}
        primary = info.backendType in backends
        self.lib.wgpuAdapterInfoFreeMembers(info[0])
        return primary

    def last_resort(self) -> list[Any]:
        return []

    def matrices(self, adapter: Any) -> Sequence[MatrixUnit]:
        own, lib = self._ffi, self._dawn
        configs = own.new("WGPUAdapterPropertiesSubgroupMatrixConfigs *")
        configs.chain.sType = lib.WGPUSType_AdapterPropertiesSubgroupMatrixConfigs
        info = own.new("WGPUAdapterInfo *", {"nextInChain": own.cast("WGPUChainedStruct *", configs)})
        if lib.wgpuAdapterGetInfo(own.cast("WGPUAdapter", address(adapter)), info) != lib.WGPUStatus_Success:
            return ()
        types = {getattr(lib, f"WGPUSubgroupMatrixComponentType_{name}"): spelled for name, spelled in _TYPES.items()}
        found = []
        for it in (configs.configs[i] for i in range(configs.configCount)):
            operand, result = types.get(it.componentType, ""), types.get(it.resultComponentType, "")
            try:
                found.append(MatrixUnit(it.M, it.N, it.K, operand, result, it.maxSubgroupSize))
            except ValueError:  # types that no kernel multiplies, such as f32 by f32
                continue
        lib.wgpuAdapterPropertiesSubgroupMatrixConfigsFreeMembers(configs[0])
        lib.wgpuAdapterInfoFreeMembers(info[0])
        return tuple(dict.fromkeys(found))

    def request_device(self, adapter: Any, descriptor: Any, info: Any, checked: bool) -> None:
        kept: list[Any] = []
        descriptor.nextInChain = self._toggles(_TOGGLES if checked else (*_TOGGLES, _UNCHECKED), kept)
        # The callback must run during the wait or never, because `userdata1` lives no longer. So other threads' events do not
        # run it, and the request and the wait are one call, which no interrupt can divide.
        info.mode = constant("WGPUCallbackMode_WaitAnyOnly")
        requests = starmap(self.lib.wgpuAdapterRequestDevice, ((adapter, descriptor, info[0]),))
        waits = map(ffi.new, ("WGPUFutureWaitInfo *",), zip(requests, strict=True))
        next(map(self._wait_any, (self.instance,), (1,), waits, (_FOREVER,)))

    def module(self, device: Any, descriptor: Any, checked: bool) -> Any:
        return self.owner.own("ShaderModule", self.lib.wgpuDeviceCreateShaderModule, device, descriptor)

    def tickets(self, device: Any, queue: Any) -> Any:
        made = _submit.ffi.new("Tickets *", {"device": address(device), "queue": address(queue)})
        made.instance, made.by_future = address(self.instance), 1
        for place, function in enumerate(self._functions):
            made.functions[place] = function
        for name in ("submit", "wait", "look"):
            setattr(made, name, _submit.ffi.addressof(_submit.lib, f"futures_{name}"))
        return made

    def xcode_capture(self, device: Any) -> Calls | None:
        return None

    def timestamp_period(self, queue: Any) -> float:
        return 1.0  # Dawn converts resolved timestamps to nanoseconds

    def readable(self, message: str) -> str:
        return "\n".join(line.rstrip() for line in message.splitlines() if line.strip()).strip()

    def line_of(self, message: str) -> int | None:
        place = _PLACE.search(message)
        return int(place.group(1)) if place else None

    def means_loss(self, message: str) -> bool:
        return "is lost" in message or "Device was lost" in message


@cache
def library() -> Dawn:
    """Returns the library, opened once. Raises DeviceError with the command to run if it is missing or another version."""
    try:
        from wgpudawn._lib import _wgpu_dawn as module  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except (Exception, SystemExit) as error:  # a broken installation raises anything
        missing = isinstance(error, ModuleNotFoundError) and error.name == PACKAGE
        why = "is not installed" if missing else f"cannot be loaded ({type(error).__name__}: {error})"
        raise DeviceError(f"Dawn is requested, but the package {PACKAGE} {why}: {INSTALL}") from error
    version = installed_version()
    try:
        lacking = next((it for it in (*FUNCTIONS, *_OWN_FUNCTIONS) if not hasattr(module.lib, it)), "")
        differs = lacking or difference(module.ffi, _SHARED) or _missing(module.ffi)
    except Exception as error:
        differs = f"interface ({type(error).__name__}: {error})"
    if differs:
        raise DeviceError(f"{PACKAGE} {version} has another {differs} than this package needs: {INSTALL}")
    return Dawn(module, version)


def installed() -> bool:
    """Whether the package is installed. Does not load it."""
    try:
        return importlib.util.find_spec(PACKAGE) is not None
    except (ImportError, ValueError):  # a module of that name without a spec
        return False


def _missing(declared: Any) -> str:
    """Returns the first missing type of Dawn's own; "" if none is missing."""
    for kind in _OWN:
        try:
            declared.typeof(kind)
        except declared.error:
            return kind
    return ""


def installed_version() -> str:
    """Returns the version of the package, from the name of the folder with its metadata. Does not load it."""
    found = importlib.util.find_spec(PACKAGE) if installed() else None
    prefix, suffix = f"{PACKAGE}-", ".dist-info"
    for place in (found.submodule_search_locations or []) if found is not None else []:
        with suppress(OSError):
            names = [it for it in os.listdir(os.path.dirname(place)) if it.startswith(prefix) and it.endswith(suffix)]
            if len(names) == 1:
                return names[0].removeprefix(prefix).removesuffix(suffix)
    from importlib.metadata import PackageNotFoundError, version  # 20 ms, in a session of 330

    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return "of an unknown version"
