"""The provider factory: lists devices, and makes providers for sessions, and memory and copies for devices.

In: ONNX Runtime's hardware devices, a session's options. Out: one device entry per physical adapter, and a provider that runs
exactly on the adapter of its entry. Invariants: no environment variable is needed, even for software adapters and on machines
where ONNX Runtime finds no GPU. Objects that a live session uses outlive the factory's release.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._ort import ffi
from ..device import adapters, adapters_problem
from ..device.choice import automatic
from ..device.contexts import shared_context
from ..device.webgpu import libraries
from ..errors import DeviceError
from ..live import LiveSet
from ..names import EP_NAME, NAMES, REGISTRATION, VENDOR
from ..registration import noted
from . import collector
from .abi import INFO, WARNING, Logger, Ort, address, text
from .allocator import Allocator
from .callbacks import CallbackTable, callback, held
from .memory.transfer import DataTransfer

if TYPE_CHECKING:
    from ..device import Adapter, Context
    from .session import SessionState

_HARDWARE_GPU, _DEVICE_GPU = 1, 1
# Memory has vendor 0 and no alignment. With other values, `bind_output` and the device names "webgpu" and "gpu" do not find it.
# Its device id is the adapter's number. onnxruntime-genai requests memory by this name.
_MEMORY_NAME, _VENDOR_ID, _ALIGNMENT = "WebGPU_Buf", 0, 0
# Earlier versions refuse a session with several devices that have their own memory.
SEVERAL_DEVICES = 27
_DEFAULT_MEMORY, _DEVICE_ALLOCATOR = 0, 0
# The metadata key of the adapter's index in `adapters()`. CreateEp finds the adapter by it.
ADAPTER_KEY = "adapter"
SHOWN_LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-storage-size",
)


def library_of(adapter: Adapter) -> str:
    """Returns the WebGPU library of sessions that request none, and the reason. The model may change it."""
    requested = libraries.requested()
    name, why = automatic(adapter) if requested == libraries.AUTO else (requested, libraries.VARIABLE)
    return f"{name} ({why})"


def metadata(adapter: Adapter) -> dict[str, str]:
    """Returns the metadata of an adapter for `ort.get_ep_devices()`."""
    shown = {
        ADAPTER_KEY: str(adapter.index),
        "name": adapter.name,
        "backend": adapter.backend,
        "library": library_of(adapter),
        "type": adapter.type,
        "driver": adapter.driver,
        "features": ",".join(sorted(adapter.target().features)),
    }
    shown |= {limit: str(adapter.limits[limit]) for limit in SHOWN_LIMITS if limit in adapter.limits}
    shown |= {"rejected matrix units": wrong} if (wrong := adapter.refused_matrices) else {}
    return shown | ({"software": "1"} if adapter.software else {})


class Factory(CallbackTable, struct="OrtEpFactory"):
    """One provider name of one registration, which has the name `registration`."""

    def __init__(self, ort: Ort, name: str, version: str, logger: Logger, registration: str = "") -> None:
        super().__init__(ort)
        self.registration = registration
        self.name, self.version, self.logger = name, version, logger
        self._memory: dict[int, Any] = {}
        self._hardware: list[Any] = []
        self._on: dict[int, list[Adapter]] = {}  # adapters by the addresses of ONNX Runtime's hardware devices
        self._users: LiveSet[CallbackTable] = LiveSet()
        self._released = False
        # By adapter, once there was a session: the context of memory that belongs to no session.
        self._followed: dict[int, Context] = {}

    @callback("GetName")
    def get_name(self) -> Any:
        return self.ort.string(self.name)

    @callback("GetVendor")
    def get_vendor(self) -> Any:
        return self.ort.string(VENDOR)

    @callback("GetVendorId")
    def get_vendor_id(self) -> int:
        return _VENDOR_ID

    @callback("GetVersion")
    def get_version(self) -> Any:
        return self.ort.string(self.version)

    @callback("IsStreamAware")
    def is_stream_aware(self) -> bool:
        return False

    @callback("GetSupportedDevices")
    def get_supported_devices(self, hardware: Any, count: int, out: Any, capacity: int, out_count: Any) -> None:
        out_count[0] = 0
        if self._shown_already():
            return
        found = adapters()
        if found:
            noted.device_shown = True
        elif self.name == EP_NAME:  # logged once, not for both names
            self.logger.log(WARNING, adapters_problem() or "no WebGPU adapter")
        free = [hardware[i] for i in range(count) if self.ort.api.HardwareDevice_Type(hardware[i]) == _HARDWARE_GPU]
        for place, adapter in enumerate(found[:capacity]):
            out[place] = self._device(adapter, free)
            out_count[0] = place + 1

    def _shown_already(self) -> bool:
        """Returns whether this package's own registration, which `session()` makes, lists the devices for this ONNX Runtime.

        A program may register the library after that. Devices that are listed twice could not be passed to one session.
        """
        others = [it for it in held.copy().values() if isinstance(it, Factory) and it is not self and not it._released]
        return any(
            it.registration == REGISTRATION and it.name == self.name and it.ort.api == self.ort.api for it in others
        )

    def _device(self, adapter: Adapter, free: list[Any]) -> Any:
        """Returns the device entry of an adapter, on ONNX Runtime's hardware device if there is one, otherwise on a new one."""
        ort = self.ort
        api, ep = ort.api, ort.ep
        for device in free:
            if (api.HardwareDevice_VendorId(device), api.HardwareDevice_DeviceId(device)) == (
                adapter.vendor_id,
                adapter.device_id,
            ):
                free.remove(device)
                break
        else:
            made = ffi.new("OrtHardwareDevice **")
            with ort.pairs({"is_virtual": "1", "name": adapter.name}) as pairs:
                ort.check_status(
                    ep.CreateHardwareDevice(
                        _HARDWARE_GPU, adapter.vendor_id, adapter.device_id, ort.string(adapter.vendor), pairs, made
                    )
                )
            device = made[0]
            self._hardware.append(device)
        self._on.setdefault(address(device), []).append(adapter)
        entry = ffi.new("OrtEpDevice **")
        with ort.pairs(metadata(adapter)) as pairs:
            ort.check_status(ep.CreateEpDevice(self.pointer, device, pairs, ffi.NULL, entry))
        ort.check_status(ep.EpDevice_AddAllocatorInfo(entry[0], self.memory_info(adapter.index)))
        return entry[0]

    @callback("ValidateCompiledModelCompatibilityInfo")
    def validate_compiled_model_compatibility_info(self, hardware: Any, count: int, info: Any, out: Any) -> None:
        from .context.compatible import compatibility

        known = [self._on.get(address(hardware[i]), ()) for i in range(count)]
        out[0] = compatibility(text(info), [adapter for them in known for adapter in them])

    def memory_info(self, number: int) -> Any:
        """Returns the OrtMemoryInfo for the memory of adapter `number`."""
        known = self._memory.get(number)
        if known is None:
            out = ffi.new("OrtMemoryInfo **")
            self.ort.check_status(
                self.ort.api.CreateMemoryInfo_V2(
                    self.ort.string(_MEMORY_NAME),
                    _DEVICE_GPU,
                    _VENDOR_ID,
                    number,
                    _DEFAULT_MEMORY,
                    _ALIGNMENT,
                    _DEVICE_ALLOCATOR,
                    out,
                )
            )
            known = self._memory[number] = out[0]
        return known

    @callback("CreateEp")
    def create_ep(self, _hardware: Any, described: Any, count: int, session: Any, logger: Any, out: Any) -> None:
        with collector.paused():
            from .provider import Provider  # imports the modules of sessions, which a registration does not need

        noted.used = True
        log = Logger(self.ort, logger)
        provider = Provider(self, log, lambda copies: self._session_state(described, count, session, log, copies))
        self._users.add(provider)
        provider.pass_to_ort(out)

    def _session_state(
        self, described: Any, count: int, session: Any, log: Logger, copies: Callable[[], int]
    ) -> SessionState:
        """Returns the state of a session with these devices and options. Raises OptionError, DeviceError."""
        from .context.options import ContextOptions
        from .device_choice import choose
        from .session import SessionState
        from .sources import entries_of, options_of

        options = options_of(self.ort, session, NAMES)
        known = {str(adapter.index): adapter for adapter in adapters()}
        passed = [known[self.ort.read_pairs(described[i])[ADAPTER_KEY]] for i in range(count)]
        if not passed:
            raise DeviceError("no device was passed to the session")
        if len(set(passed)) > 1 and self.ort.version < SEVERAL_DEVICES:
            raise DeviceError(
                f"onnxruntime {self.ort.version_text} takes one device per session; pass one of the {len(passed)},"
                f" or install onnxruntime 1.{SEVERAL_DEVICES} or later"
            )
        chosen, why = choose(passed, options)
        if len(passed) > 1:
            names = ", ".join(repr(adapter.name) for adapter in passed)
            log.log(INFO, f"{len(passed)} devices were passed ({names}); the session runs on {chosen.name!r}: {why}")
        contexts = ContextOptions.of(entries_of(self.ort, session))
        state = SessionState(self.ort, self.name, chosen, options, contexts, log, copies)
        self._follow(state.context)
        return state

    @callback("ReleaseEp", device=True)
    def release_ep(self, provider: Any) -> None:
        if (known := held.get(address(provider))) is not None:
            known.release()

    @callback("CreateAllocator")
    def create_allocator(self, info: Any, _options: Any, out: Any) -> None:
        self.new_allocator(info).pass_to_ort(out)

    def new_allocator(self, info: Any, context: Context | None = None) -> Allocator:
        """Returns an allocator for `info`.

        It uses the memory of `context` if that is on this adapter, otherwise the adapter's shared memory.
        """
        number = self.ort.ep.MemoryDevice_GetDeviceId(self.ort.ep.MemoryInfo_GetMemoryDevice(info))
        is_shared = False
        if context is None or context.adapter.index != number:
            is_shared, context = True, self._followed.get(number) or shared_context(adapters()[number])
        allocator = Allocator(self.ort, info, context, is_shared=is_shared)
        self._users.add(allocator)
        return allocator

    def _follow(self, context: Context) -> None:
        """Call this when a session has begun on this context. New memory outside sessions is allocated there from now on.

        So no session needs to copy it. A context with a deviceId has no effect, and WGPU_EP_LIBRARY takes precedence.
        """
        if context.number or libraries.requested() != libraries.AUTO:
            return
        number = context.adapter.index
        self._followed[number] = context
        for it in self._users:
            if (
                isinstance(it, Allocator)
                and it.is_shared
                and it.context.adapter.index == number
                and it.context is not context
            ):
                it.follow(context)

    @callback("ReleaseAllocator", device=True)
    def release_allocator(self, allocator: Any) -> None:
        known = held.get(address(allocator))
        if known is not None:
            self.remove_user(known)
            known.release()

    @callback("CreateDataTransfer")
    def create_data_transfer(self, out: Any) -> None:
        DataTransfer(self.ort).pass_to_ort(out)

    def remove_user(self, user: CallbackTable) -> None:
        """Removes an object of a session. The last one closes a factory that was released before."""
        self._users.discard(user)
        if self._released and not self._users:
            self._close()

    def release(self) -> None:
        """Call this when ONNX Runtime releases the factory. It may still use objects that the factory made."""
        self._released = True
        if not self._users:
            self._close()

    def _close(self) -> None:
        super().release()
        for info in self._memory.values():
            self.ort.api.ReleaseMemoryInfo(info)
        for device in self._hardware:
            self.ort.ep.ReleaseHardwareDevice(device)
