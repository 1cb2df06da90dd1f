"""Ray support for actors: the assigned device, and models from the object store.

Ray numbers the GPUs of a node, and assigns numbers to an actor that requests `num_gpus`. It hides the others from CUDA, but
Vulkan ignores that: every actor sees all adapters of the node. So the k-th GPU is mapped to the k-th hardware adapter. The two
orders may differ, but actors still have different GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ..api.devices import devices
from ..api.session import session
from ..errors import DeviceError
from .runner import Runner


def library() -> Any:
    """Returns the module ray. Raises ImportError with installation advice."""
    try:
        import ray
    except ImportError as error:
        raise ImportError("Ray is not installed: pip install 'ray[data,serve]'") from error
    return ray


def runner_of(
    model: Any, device: Any, output_names: Sequence[str] | None, batches: bool, options: dict[str, Any]
) -> Runner:
    """Creates a session in an actor.

    `model` is that of `session()`, or a reference to bytes in Ray's object store. `device` is that of `session()`; None means
    the assigned one."""
    ray = library()
    if isinstance(model, ray.ObjectRef):
        model = ray.get(model)
    chosen = assigned(assigned_numbers(ray), devices()) if device is None else device
    return Runner(partial(session, model, device=chosen, **options), output_names, batches)


def assigned_numbers(ray: Any) -> list[str]:
    """Returns the numbers of the GPUs assigned to this actor; [] outside of actors, and for actors that request none."""
    return list(ray.get_runtime_context().get_accelerator_ids().get("GPU", [])) if ray.is_initialized() else []


def assigned(numbers: Sequence[str], found: Sequence[Any]) -> Any:
    """Returns the device for an actor's GPU numbers, None for any device. Raises DeviceError if there is no such adapter.

    Ray counts GPUs by vendor tools, or by `ray start --num-gpus`."""
    hardware = [it for it in found if "software" not in it.ep_metadata]
    if not numbers:
        return None
    if len(hardware) == 1 and len(numbers) == 1 and not numbers[0].isdecimal():
        return hardware[0]  # a GPU with an identifier instead of a number is the only one
    if numbers[0].isdecimal() and int(numbers[0]) < len(hardware):
        return hardware[int(numbers[0])]
    names = ", ".join(it.ep_metadata["name"] for it in found)
    raise DeviceError(
        f"Ray assigned GPU {numbers[0]!r}, and this process sees {len(hardware)} adapters of hardware (all adapters: {names}):"
        " install the GPU vendor's Vulkan driver on every node, or name a device with device=..."
    )
