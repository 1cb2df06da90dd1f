"""The plugin's only door to the device layer, the compiler and the runtime.

In: what the plugin has (adapters, onnx_ir graphs, addresses resolved to buffers). Out: what it needs from the rest of the
package, imported when first used. Other modules here write `backend.check(...)`, so that tests can put something else in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from ..program.dtypes import DType

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from ..device import Adapter, Buffer, Context, Device
    from ..program.target import Target
    from ..runtime.replay import Capture
    from ..runtime.settings import RunSettings

# Where output i of a dtype and shape goes: (buffer, offset in bytes), None when it is empty.
Allocate = Callable[[int, DType, tuple[int, ...]], "tuple[Buffer, int] | None"]


class Executable(Protocol):
    """What runs as a compiled group, with its weights on `device`."""

    device: Device

    def run(self, inputs: Sequence[Any], allocate: Allocate) -> None:
        """Queues the work; `allocate` is called once per output, in order. Thread safe."""


class Capturable(Executable, Protocol):
    """An executable whose run can be had in parts."""

    def fitting(self, inputs: Sequence[Any]) -> Capturable:
        """What to run for these inputs: another executable where they are beyond a limit of this one."""

    def planned(self, inputs: Sequence[Any]) -> AbstractContextManager[Any]:
        """The plan of these inputs' shapes and shape-setting values, for a `with`; the same again while a capture has it."""

    def outputs(self, plan: Any, allocate: Allocate) -> list[Any]:
        """The places of the outputs, allocated in order."""

    def submit(self, plan: Any, places: Sequence[Any]) -> None:
        """The rest of `run`: queues the work of a plan on these places, inputs first."""

    def capture(self, plan: Any, places: Sequence[Any], kept: Sequence[bool]) -> Capture:
        """The same to be replayed; the tensors that are not `kept` in place are copied from and to their places."""


class Recoverable(Protocol):
    """A compiled group, on a new device after a loss."""

    def executable(self) -> Executable:
        """The group on the device to use now, for one run."""


def adapters() -> tuple[Adapter, ...]:
    """The chips of this machine, the one to use first."""
    from ..device import adapters

    return adapters()


def adapters_problem() -> str | None:
    """Why there is no adapter; None when there is one."""
    from ..device import adapters_problem

    return adapters_problem()


def debugger_problem() -> str | None:
    """Why runs cannot be captured for a graphics debugger; None when one is attached."""
    from ..device import debugger

    return None if debugger.attached() else debugger.MISSING


def let_go() -> None:
    """Gives back what has died on the devices; for finalisers too."""
    from ..device import let_go

    let_go()


def context_of(adapter: Adapter, number: int = 0) -> Context:
    """The device of an adapter that all sessions with this deviceId share."""
    from ..device import context_of

    return context_of(adapter, number)


def context_at(instance: int, device: int, number: int | None) -> Context:
    """The context of a device that the caller made through wgpu-py, by the addresses of its instance and itself."""
    from ..device.borrowed import context_at

    return context_at(instance, device, number)


def check(graph: ir.Graph, opsets: Mapping[str, int], target: Target) -> list[str | None]:
    """Per node of `graph`, None or the reason why it cannot run on `target`."""
    from ..compiler.compile import check

    return check(graph, opsets, target)


def compile_graph(graph: ir.Graph, opsets: Mapping[str, int], target: Target, name: str, checked: bool) -> Any:
    """The Program of a graph, with assertions about data when `checked`. Raises UnsupportedError for a node that `check`
    refuses."""
    from ..compiler.compile import compile_graph

    return compile_graph(graph, opsets, target, name, checked)


def specialiser(graph: ir.Graph, opsets: Mapping[str, int], target: Target, name: str, checked: bool) -> Any:
    """What compiles the graph again for certain sizes; made before `compile_graph`."""
    from .specialise import Specialiser

    return Specialiser(graph, opsets, target, name, checked)


def recoverable(
    program: Any, current: Callable[[], Device], settings: RunSettings, model_path: str, specialise: Any
) -> Recoverable:
    """A Program with its weights uploaded to the device that `current` gives, and to the one that it gives after a loss.

    `model_path`: the model's file, "" when it was given as bytes. For `specialise` see `specialiser`.
    """
    from ..runtime.recovery import RecoverableExecutable
    from ..runtime.weights import FromModel

    return RecoverableExecutable(program, current, settings, FromModel(model_path), specialise)


def kernels(program: Any) -> dict[str, tuple[str, ...]]:
    """For every ONNX node in a Program, the dispatches that calculate it: number in running order and kernel, `3 softmax`."""
    found: dict[str, list[str]] = {}
    for number, dispatch in enumerate(program.dispatches):
        for name in dispatch.origin:
            found.setdefault(name, []).append(f"{number} {program.kernels[dispatch.kernel].label}")
    return {name: tuple(labels) for name, labels in found.items()}


def device_tensor(
    dtype: DType, shape: tuple[int, ...], buffer: Buffer | None, offset: int, host: Callable[[], np.ndarray[Any, Any]]
) -> Any:
    """An input as the runtime takes it: where it lies (None: it is empty), and how to get its value when that sets a shape."""
    from ..runtime.inputs import DeviceTensor

    return DeviceTensor(dtype, shape, buffer, offset, host)
