"""What actors of Ray ask: the device that Ray assigned, and a model from its object store.

Ray numbers the GPUs of a node and gives an actor that asks for `num_gpus` the numbers of its own. It hides the others from CUDA,
which Vulkan does not heed: every actor sees all adapters of the node. So the k-th GPU is the k-th adapter of hardware here.
Where the order of the two differs, as it may, actors still have different GPUs.
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
    """Ray. Raises ImportError, saying how to install it."""
    try:
        import ray
    except ImportError as error:
        raise ImportError("Ray is not installed: pip install 'ray[data,serve]'") from error
    return ray


def runner_of(
    model: Any, device: Any, output_names: Sequence[str] | None, batches: bool, options: dict[str, Any]
) -> Runner:
    """A session in an actor. `model` is what `session()` takes, or a reference to bytes in Ray's object store; `device` is what it
    takes, None for the assigned one."""
    ray = library()
    if isinstance(model, ray.ObjectRef):
        model = ray.get(model)
    chosen = assigned(assigned_numbers(ray), devices()) if device is None else device
    return Runner(partial(session, model, device=chosen, **options), output_names, batches)


def assigned_numbers(ray: Any) -> list[str]:
    """Those of the GPUs that Ray assigned to this actor; none outside of actors, and for those that ask for none."""
    return list(ray.get_runtime_context().get_accelerator_ids().get("GPU", [])) if ray.is_initialized() else []


def assigned(numbers: Sequence[str], found: Sequence[Any]) -> Any:
    """The device of an actor whose GPUs have these numbers, None for any. Raises DeviceError when there is no such adapter: Ray
    counts GPUs by what their vendors' tools report, or by what `ray start --num-gpus` says."""
    hardware = [it for it in found if "software" not in it.ep_metadata]
    if not numbers:
        return None
    if len(hardware) == 1 and len(numbers) == 1 and not numbers[0].isdecimal():
        return hardware[0]  # a GPU that is known by a longer name is the only one
    if numbers[0].isdecimal() and int(numbers[0]) < len(hardware):
        return hardware[int(numbers[0])]
    names = ", ".join(it.ep_metadata["name"] for it in found)
    raise DeviceError(
        f"Ray assigned GPU {numbers[0]!r}, and this process sees {len(hardware)} adapters of hardware (all adapters: {names}):"
        " install the GPU vendor's Vulkan driver on every node, or name a device with device=..."
    )
