"""Every provider option: its key, the values it takes, its default, what it does and since when.

In: options as text, as a session's configuration or the arguments of `session()` give them. Out: `Options`, checked.
Invariant: an unknown key or a value outside the domain raises OptionError, which names the key, the value and the valid
ones; an option is never ignored silently (`effect` says so in the documentation, and the log when it is set).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .errors import OptionError


@dataclass(frozen=True)
class Option:
    """One option. `domain` describes the valid values; `parse` turns text into a value or raises ValueError."""

    key: str
    domain: str
    default: str
    help: str
    parse: Callable[[str], Any]
    effect: str = "none yet"


def _flag(key: str, default: str, help: str, effect: str = "none yet") -> Option:
    return Option(key, "0, 1", default, help, lambda text: bool(_member(text, ("0", "1")) == "1"), effect)


def _choice(key: str, values: tuple[str, ...], default: str, help: str, effect: str = "none yet") -> Option:
    return Option(key, ", ".join(values), default, help, lambda text: _member(text, values), effect)


def _number(
    key: str, low: int, high: int | None, default: str, help: str, effect: str = "none yet", also: int | None = None
) -> Option:
    """An integer from `low` to `high`, or the single value `also`."""
    limits = f"{low} or more" if high is None else f"{low} to {high}"
    domain = f"an integer, {limits}" if also is None else f"an integer, {also} or {limits}"

    def parse(text: str) -> int:
        # Unlike int(): no spaces, signs or underscores.
        if not (text.isascii() and text.isdigit()):
            raise ValueError(text)
        value = int(text)
        if value != also and (value < low or (high is not None and value > high)):
            raise ValueError(text)
        return value

    return Option(key, domain, default, help, parse, effect)


def _foreign(key: str, what: str) -> Option:
    """A handle of another WebGPU implementation's object, which this provider cannot use."""
    return Option(
        key,
        "0 (a native handle of another WebGPU implementation cannot be used; deviceId gives a device of its own)",
        "0",
        f"Accepted for compatibility: {what}.",
        lambda text: int(_member(text, ("0",))),
        "refused unless 0",
    )


def _address(key: str, help: str) -> Option:
    """The address of an object of the wgpu-native library that is loaded."""
    effect = "both addresses, as `device_options()` gives them; an unknown one, or one alone, is an error"
    return replace(_number(key, 0, 2**64 - 1, "0", help, effect), domain="an address as a decimal number; 0 is none")


def _member(text: str, values: tuple[str, ...]) -> str:
    if text not in values:
        raise ValueError(text)
    return text


def _lines(text: str) -> tuple[str, ...]:
    return tuple(name for name in (line.strip() for line in text.splitlines()) if name)


_CACHE_MODES = ("disabled", "lazyRelease", "simple", "bucket")
_UINT32 = 2**32 - 1

OPTIONS: dict[str, Option] = {
    option.key: option
    for option in (
        _choice("preferredLayout", ("NCHW", "NHWC"), "NHWC", "Layout that convolutions calculate in."),
        _flag("enableGraphCapture", "0", "Record the GPU work of a run and replay it in later runs."),
        _flag("enableInt64", "1", "64-bit integers on the GPU.", "always on, always exact"),
        Option(
            "forceCpuNodeNames",
            "node names, one per line",
            "",
            "Nodes that stay on the CPU.",
            _lines,
            "the named nodes are not claimed; a name that no node has is a warning",
        ),
        _choice(
            "powerPreference",
            ("high-performance", "low-power"),
            "high-performance",
            "Which adapter to use when a session is given several devices.",
            "picks among the devices passed to the session; without it the first is used",
        ),
        _choice(
            "validationMode",
            ("disabled", "wgpuOnly", "basic", "full"),
            "basic",
            "How much is checked while kernels run.",
            "full compiles kernels with bounds checks and loop guards; the others do not",
        ),
        _number(
            "deviceId",
            0,
            2**31 - 1,
            "0",
            "Which device of the adapter: 0 is shared by default, the others are devices of their own.",
            "sessions with equal numbers share a device and its caches; see [memory.md](memory.md)",
        ),
        _address("webgpuInstance", "The WebGPU instance of webgpuDevice."),
        _address("webgpuDevice", "The device to use: one that this process made through wgpu-py."),
        _foreign("dawnProcTable", "the address of Dawn's function table"),
        _choice(
            "dawnBackendType",
            ("D3D12", "Vulkan"),
            "Vulkan",
            "Graphics API.",
            "the adapter is used through this API; an error when that is not possible here; without it the adapter's best",
        ),
        _flag("enablePIXCapture", "0", "Capture for the Windows tool PIX."),
        _flag("enableRobustness", "0", "Bounds checks in the driver."),
        _flag(
            "preserveDevice",
            "0",
            "Keep the device when its last session ends.",
            "1 keeps it; 0 lets it go with the last session or the last tensor on it, whichever ends later",
        ),
        _number("sessionBufferPoolGenerations", 0, _UINT32, "1", "Runs after which an unused buffer is given back."),
        _number("multiRotaryCacheConcatOffset", 0, _UINT32, "0", "Where the second rotary cache starts."),
        _choice(
            "kvCacheQuantizationBits", ("0", "4", "8"), "0", "Bits per element of a quantised KV cache; 0 is none."
        ),
        _number(
            "maxStorageBufferBindingSize",
            128 << 20,
            2**63 - 1,
            "0",
            "Largest binding in bytes; 0 is the adapter's.",
            also=0,
        ),
        _number("maxNumPendingDispatches", 1, 4096, "16", "Dispatches per submission."),
        _choice("storageBufferCacheMode", _CACHE_MODES, "bucket", "Reuse of storage buffers."),
        _choice("uniformBufferCacheMode", _CACHE_MODES, "simple", "Reuse of uniform buffers."),
        _choice("queryResolveBufferCacheMode", _CACHE_MODES, "disabled", "Reuse of query buffers."),
        _choice("defaultBufferCacheMode", _CACHE_MODES, "disabled", "Reuse of other buffers."),
        _choice("weightLoadAcceleration", ("off", "preferred", "required"), "off", "Loading weights past the CPU."),
        _flag("enableMatmulFp32Accumulation", "1", "Sum in f32 in matrix products of f16.", "always on"),
        _number(
            "adapterIndex",
            0,
            2**31 - 1,
            "0",
            "Which adapter.",
            "`session()` picks this one when it is given no device; an error when the session was given another one",
        ),
        _number(
            "maxStorageBuffersPerShaderStage",
            1,
            1024,
            "8",
            "Storage buffers that a kernel may bind.",
            "kernels are compiled for this many, or the adapter's own limit where that is lower",
        ),
    )
}


@dataclass(frozen=True)
class Options:
    """Checked options of one session. `given` is what the user set, as text."""

    values: Mapping[str, Any]
    given: Mapping[str, str]

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def without_effect(self) -> list[str]:
        """The keys that were set to something else than what this version does anyway."""
        return [key for key, text in self.given.items() if _inert(OPTIONS[key], text)]


def parse(given: Mapping[str, str]) -> Options:
    """Checks options. Raises OptionError for the first wrong key or value."""
    values = {key: option.parse(option.default) for key, option in OPTIONS.items()}
    for key, text in given.items():
        option = OPTIONS.get(key)
        if option is None:
            raise OptionError(_unknown(key))
        try:
            values[key] = option.parse(text)
        except ValueError:
            near = _nearest(text, option.domain.split(", ")) if ", " in option.domain else ""
            raise OptionError(f"option {key!r}: {text!r} is not valid; valid: {option.domain}{near}") from None
    return Options(values, dict(given))


def _inert(option: Option, text: str) -> bool:
    if option.effect.startswith("always on"):
        return text == "0"
    return option.effect == "none yet" and text != option.default


def as_text(value: Any) -> str:
    """A Python value as option text: flags become 1 and 0, sequences become lines."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, list | tuple):
        return "\n".join(str(item) for item in value)
    return str(value)


def _unknown(key: str) -> str:
    return f"unknown option {key!r}{_nearest(key, list(OPTIONS))}; valid options: {', '.join(OPTIONS)}"


def _nearest(text: str, candidates: list[str]) -> str:
    lowered = {candidate.lower(): candidate for candidate in candidates}
    found = difflib.get_close_matches(text.lower(), list(lowered), n=1, cutoff=0.5)
    return f" (did you mean {lowered[found[0]]!r}?)" if found else ""
