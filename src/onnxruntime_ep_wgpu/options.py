"""Every provider option: its key, the values it takes, its default, what it does and since when.

In: options as text, in layers: the defaults that a program sets, the environment's, a session's own. Out: `Options`,
checked. Invariant: an unknown key or a value outside the domain raises OptionError, which names the key, the value and
the valid ones; an option is never ignored silently (`effect` says so in the documentation, and the log when it is set).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

from .errors import OptionError, cut
from .option_types import ProviderOptions

NO_EFFECT = "none yet"


@dataclass(frozen=True)
class Option:
    """One option. `domain` describes the valid values; `parse` turns text into a value or raises ValueError.

    `inert` are values that ask for something and change nothing: the log says so when one is set. When the option has no
    effect at all, that is every value but the default.
    """

    key: str
    domain: str
    default: str
    help: str
    parse: Callable[[str], Any]
    effect: str = NO_EFFECT
    inert: tuple[str, ...] = ()

    def changes_nothing(self, text: str) -> bool:
        """Whether setting this value asks for something that does not happen."""
        return text in self.inert or (self.effect.startswith(NO_EFFECT) and text != self.default)


class _Refused(ValueError):
    """A value that is well formed, with the reason why it cannot be granted."""


def _flag(key: str, default: str, help: str, effect: str = NO_EFFECT, inert: tuple[str, ...] = ()) -> Option:
    return Option(key, "0, 1", default, help, lambda text: bool(_member(text, ("0", "1")) == "1"), effect, inert)


def _choice(
    key: str,
    values: tuple[str, ...],
    default: str,
    help: str,
    effect: str = NO_EFFECT,
    inert: tuple[str, ...] = (),
    refused: Mapping[str, str] | None = None,
) -> Option:
    """One of `values`; `refused` gives the reason for each that cannot be granted."""

    def parse(text: str) -> str:
        if refused and text in refused:
            raise _Refused(refused[text])
        return _member(text, values)

    return Option(key, ", ".join(values), default, help, parse, effect, inert)


def _number(
    key: str, low: int, high: int | None, default: str, help: str, effect: str = NO_EFFECT, also: int | None = None
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


def _cache(key: str, default: str, what: str, effect: str) -> Option:
    return _choice(key, ("disabled", "lazyRelease", "simple", "bucket"), default, f"Reuse of {what}.", effect)


def _foreign(key: str, what: str, lacks: str) -> Option:
    """The address of an object that only another WebGPU implementation has: 0, or an error with the reason."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit()):
            raise ValueError(text)
        if int(text):
            raise _Refused(f"this provider is built on wgpu, which {lacks}; leave the option out")
        return 0

    effect = f"refused unless 0: this provider is built on wgpu, which {lacks}"
    return Option(key, "0", "0", f"Accepted for compatibility: {what}.", parse, effect)


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


_UINT32 = 2**32 - 1

OPTIONS: dict[str, Option] = {
    option.key: option
    for option in (
        _choice(
            "preferredLayout",
            ("NCHW", "NHWC"),
            "NHWC",
            "Layout that convolutions calculate in.",
            "results are equal: a compiled kernel reads and writes through strides, so that no layout of a whole graph is"
            " chosen and no Transpose is put in; each kernel takes its operands as they lie",
            inert=("NCHW",),
        ),
        _flag(
            "enableGraphCapture",
            "0",
            "Record the GPU work of a run and replay it in later runs.",
            "one recording per gpu_graph_id and binding, or input shape; refused when a node runs elsewhere",
        ),
        _flag(
            "enableInt64",
            "1",
            "64-bit integers on the GPU.",
            "with 0 and 1 alike they are exact, natively or as pairs of words, and no node moves to the CPU for them",
        ),
        Option(
            "forceCpuNodeNames",
            "node names, one per line",
            "",
            "Nodes that stay on the CPU.",
            _lines,
            "the named nodes are not claimed, bodies of control flow and what a named function expands to included; a name"
            " that no node has is an error",
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
            "How much is checked.",
            "disabled, wgpuOnly: wgpu's own validation, which cannot be turned off; basic: also limits, sizes and aliasing"
            " when a plan is made and buffers are bound; full: also error scopes, kernels with bounds checks and loop"
            " guards, and an error that names node and place when a kernel makes NaN or infinity from finite inputs, or when"
            " an index out of a tensor lies outside its axis, which the other modes clamp or skip (runs one dispatch at a"
            " time, slowly)",
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
        _foreign("dawnProcTable", "the address of Dawn's function table", "has no such table"),
        _choice(
            "dawnBackendType",
            ("D3D12", "Vulkan"),
            "Vulkan",
            "Graphics API.",
            "the adapter is used through this API; an error when that is not possible here; without it the adapter's best",
        ),
        _flag(
            "enablePIXCapture",
            "0",
            "Every run of a group is a capture for PIX, RenderDoc or Xcode.",
            "captures with the debugger that this process was started from; an error when there is none",
        ),
        _flag(
            "enableRobustness",
            "0",
            "Kernels test every index against the size of its buffer.",
            "kernels are compiled with bounds checks and loop guards, as with validationMode full; without them kernels"
            " clamp only indices that come out of tensors",
        ),
        _flag(
            "preserveDevice",
            "0",
            "Keep the device when its last session ends.",
            "1 keeps it; 0 lets it go with the last session or the last tensor on it, whichever ends later",
        ),
        _number(
            "sessionBufferPoolGenerations",
            0,
            _UINT32,
            "1",
            "Runs after which an unused buffer is given back.",
            "counts per group of nodes; a buffer for intermediate values that so many runs did not use goes back to the"
            " storage buffer cache, 0 meaning all of them after each run",
        ),
        _number(
            "multiRotaryCacheConcatOffset",
            0,
            _UINT32,
            "0",
            "Where the second rotary cache starts.",
            "none yet: the operator that it belongs to (com.microsoft RotaryEmbedding) does not run here yet",
        ),
        _choice(
            "kvCacheQuantizationBits",
            ("0", "4", "8"),
            "0",
            "Bits per element of a quantised KV cache; 0 is none.",
            "none yet: the operator that it belongs to (com.microsoft GroupQueryAttention) does not run here yet",
        ),
        _number(
            "maxStorageBufferBindingSize",
            128 << 20,
            2**63 - 1,
            "0",
            "Largest binding in bytes; 0 is the adapter's.",
            "a larger tensor is bound in several windows, up to the size of a buffer; more than the adapter allows is an"
            " error",
            also=0,
        ),
        _number(
            "maxNumPendingDispatches",
            1,
            4096,
            "4096",
            "Dispatches per submission.",
            "longer runs are submitted in parts; the default submits nearly every run at once, since a run is encoded"
            " before any of it is submitted",
        ),
        _cache(
            "storageBufferCacheMode",
            "bucket",
            "storage buffers",
            "tensors and intermediate values; disabled: memory is let go when a buffer is given back, lazyRelease: when the"
            " next run ends, simple: kept for a buffer of equal size, bucket: of a similar size, since sizes are rounded up by"
            " an eighth at most (or 255 bytes). Up to 256 MiB are kept",
        ),
        _cache("uniformBufferCacheMode", "simple", "uniform buffers", "sizes that kernels read; modes as above"),
        _cache("queryResolveBufferCacheMode", "disabled", "query buffers", "timestamps of kernels; modes as above"),
        _cache(
            "defaultBufferCacheMode",
            "bucket",
            "other buffers",
            "those through which results reach the host; modes as above. Making one each time, as disabled does, costs a"
            " small download a quarter of its time or more",
        ),
        _choice(
            "weightLoadAcceleration",
            ("off", "preferred", "required"),
            "off",
            "Loading weights past the CPU.",
            "preferred loads as off does, because WebGPU reaches GPU memory through the host alone; required is refused",
            inert=("preferred",),
            refused={
                "required": "WebGPU reaches GPU memory through the host alone, so weights cannot be loaded past it"
            },
        ),
        _flag(
            "enableMatmulFp32Accumulation",
            "1",
            "Sum in f32 in matrix products of f16.",
            "sums are f32 with 0 too: f16 is a way to store numbers here, all kernels calculate in f32",
            inert=("0",),
        ),
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
    """Checked options of one session. `given` is what was set in any layer, as text."""

    values: Mapping[str, Any]
    given: Mapping[str, str]

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def without_effect(self) -> list[str]:
        """The keys that were set to something that does not happen in this version."""
        return [key for key, text in self.given.items() if OPTIONS[key].changes_nothing(text)]


@dataclass(frozen=True)
class Layer:
    """Options from one place; `source` names it in errors, "" for the session's own."""

    source: str
    given: Mapping[str, str]


def parse(given: Mapping[str, str], defaults: Sequence[Layer] = ()) -> Options:
    """Checks options. `given` wins over `defaults`, later defaults over earlier ones.

    Raises OptionError for the first wrong key or value, in a layer that is overruled too.
    """
    values = {key: option.parse(option.default) for key, option in OPTIONS.items()}
    texts: dict[str, str] = {}
    for layer in (*defaults, Layer("", given)):
        for key, text in layer.given.items():
            values[key] = _value(key, text, f" ({layer.source})" if layer.source else "")
            texts[key] = text
    return Options(values, texts)


def require(key: str, where: str = "") -> Option:
    """The option of this key. Raises OptionError with the nearest key; `where` goes behind the unknown one."""
    option = OPTIONS.get(key)
    if option is None:
        raise OptionError(
            f"unknown option {cut(key)}{where}{_nearest(key, list(OPTIONS))}; valid options: {', '.join(OPTIONS)}"
        )
    return option


def _value(key: str, text: str, source: str) -> Any:
    option = require(key, f"{source} with the value {cut(text)}")
    try:
        return option.parse(text)
    except _Refused as refused:
        raise OptionError(
            f"option {key!r}{source}: {cut(text)} is refused: {refused}; valid: {option.domain}"
        ) from None
    except ValueError:
        near = _nearest(text, option.domain.split(", ")) if ", " in option.domain else ""
        raise OptionError(f"option {key!r}{source}: {cut(text)} is not valid; valid: {option.domain}{near}") from None


_program_defaults: dict[str, str] = {}


def set_default_options(**options: Unpack[ProviderOptions]) -> None:
    """Sets what sessions use that do not set an option themselves, from now on and in this process.

    Replaces the defaults that were set before: without arguments, the built-in ones hold again. A session's own options
    win; these win over the environment's configuration. Raises OptionError, and then changes nothing.
    """
    texts = {key: as_text(value) for key, value in options.items()}
    parse({}, [Layer("set_default_options", texts)])
    global _program_defaults
    _program_defaults = texts


def program_defaults() -> Layer:
    """What `set_default_options` set."""
    return Layer("set_default_options", _program_defaults)


def as_text(value: Any) -> str:
    """A Python value as option text: flags become 1 and 0, sequences become lines."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, list | tuple):
        return "\n".join(str(item) for item in value)
    return str(value)


def _nearest(text: str, candidates: list[str]) -> str:
    import difflib

    lowered = {candidate.lower(): candidate for candidate in candidates}
    found = difflib.get_close_matches(text.lower()[:100], list(lowered), n=1, cutoff=0.5)
    return f" (did you mean {lowered[found[0]]!r}?)" if found else ""
