"""The adapter, the library and the context of a session.

In: the adapters of the devices that the session was given, and its options. Out: an adapter, a library, a context. Invariant: a
session runs on a device that it was given. An option that names another device is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING

from ..device import adapters, context_of
from ..device.choice import LibraryChoice, automatic
from ..device.webgpu import libraries
from ..errors import OptionError
from ..options import Options

if TYPE_CHECKING:
    from ..device import Adapter, Context


def choose(passed: Sequence[Adapter], options: Options) -> tuple[Adapter, str]:
    """Returns the adapter of a session, and the reason: adapterIndex, else powerPreference, else the first adapter.

    Raises OptionError for an adapterIndex that no adapter has, or that is not among `passed`.
    """
    if "adapterIndex" in options.given:
        return _numbered(passed, options["adapterIndex"]), "adapterIndex"
    if "powerPreference" not in options.given:
        return passed[0], "the first"
    frugal = options["powerPreference"] == "low-power"
    order = ["IntegratedGPU", "DiscreteGPU"] if frugal else ["DiscreteGPU", "IntegratedGPU"]
    rank = {kind: place for place, kind in enumerate([*order, "Unknown", "CPU"])}
    return min(passed, key=lambda adapter: rank.get(adapter.type, len(rank))), "powerPreference"


def library_for(adapter: Adapter, options: Options, types: Callable[[], Set[str]]) -> LibraryChoice:
    """Returns the WebGPU library of a session.

    It is webgpuLibrary, else WGPU_EP_LIBRARY, else the choice for the adapter and the model. `types` returns the operand types
    of the model's products. Raises OptionError.
    """
    given = "webgpuLibrary" in options.given
    requested = options["webgpuLibrary"] if given else libraries.requested()
    if options["webgpuInstance"] or options["webgpuDevice"]:
        base = libraries.base().name
        if given and requested not in (libraries.AUTO, base):
            raise OptionError(
                f"option 'webgpuLibrary': {requested!r} contradicts webgpuDevice, which is a device of {base}"
            )
        return LibraryChoice(base, "webgpuDevice")
    if requested == libraries.AUTO:
        return automatic(adapter, types)
    return LibraryChoice(requested, "webgpuLibrary" if given else libraries.VARIABLE)


def context_for(adapter: Adapter, options: Options, library: str, checked: bool) -> Context:
    """Returns the context of a session on this adapter and library: that of deviceId, or of the device at webgpuDevice.

    `checked`: kernels check every index. Raises OptionError for addresses that are not those of a device on this adapter,
    DeviceError for a library that cannot be used.
    """
    instance, device = options["webgpuInstance"], options["webgpuDevice"]
    if not instance and not device:
        return context_of(adapter, options["deviceId"], library, checked)
    from ..device.borrowed import context_at  # imports the package wgpu, which other sessions do not need

    found = context_at(instance, device, options["deviceId"] if "deviceId" in options.given else None)
    if found.adapter.index != adapter.index:
        raise OptionError(
            f"option 'webgpuDevice': that device is on adapter {found.adapter.index} ({found.adapter.name}), the session's"
            f" device is on adapter {adapter.index} ({adapter.name})"
        )
    return found


def numbered(index: int) -> Adapter:
    """Returns the adapter with this adapterIndex. Raises OptionError that lists the adapters."""
    found = adapters()
    if index >= len(found):
        names = ", ".join(f"{adapter.index}: {adapter.name}" for adapter in found)
        raise OptionError(f"option 'adapterIndex': there is no adapter {index}; there are {names or 'none'}")
    return found[index]


def _numbered(passed: Sequence[Adapter], index: int) -> Adapter:
    wanted = numbered(index)
    for adapter in passed:
        if adapter.index == index:
            return adapter
    given = " and ".join(f"{adapter.index} ({adapter.name})" for adapter in passed)
    raise OptionError(
        f"option 'adapterIndex': {index} ({wanted.name}) contradicts the device passed to the session, on adapter {given};"
        f" pass the device whose metadata has adapter={index}, or omit the option"
    )
