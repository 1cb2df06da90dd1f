"""Tensors on a model's adapter, and repeated runs that are bound to them.

In: shapes or arrays. Out: ONNX Runtime's OrtValues, and their content. Errors of the provider keep their types. Several bound
runs can be submitted at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort

from ...records import dataclass
from ..reports import state_of
from ..sessions import RaisingProviderErrors

if TYPE_CHECKING:
    from ...device import Context
    from ...plugin.chained import ChainedRuns, PastRuns

DEVICE = "webgpu"


@dataclass(frozen=True)
class AdapterMemory:
    """The memory of adapter `number`, in ONNX Runtime's numbering, on the device of `context` or on the shared one."""

    number: int
    context: Context | None = None

    def empty(self, shape: Sequence[int], dtype: Any) -> Any:
        """Allocates an uninitialised tensor."""
        with RaisingProviderErrors() as watch, watch.active:
            watch.memory = self.context
            return ort.OrtValue.ortvalue_from_shape_and_type(list(shape), dtype, DEVICE, self.number)

    def put(self, array: np.ndarray[Any, Any]) -> Any:
        """Allocates a tensor with the content of the array."""
        with RaisingProviderErrors() as watch, watch.active:
            watch.memory = self.context
            return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), DEVICE, self.number)

    def is_lost(self, value: Any) -> bool:
        """Returns whether the device that a tensor lay on was lost."""
        from ...plugin.memory import space

        return space.space().is_lost(value.data_ptr())

    def write(self, value: Any, array: np.ndarray[Any, Any]) -> None:
        """Overwrites a tensor of this memory."""
        from ...plugin.memory import space

        device, (buffer, offset) = space.space().write(value.data_ptr(), array.nbytes)
        device.upload(buffer, offset, array)

    def read(self, value: Any) -> np.ndarray[Any, Any]:
        """Waits for all submitted work, and returns the content of a tensor."""
        with RaisingProviderErrors() as watch, watch.active:
            found: np.ndarray[Any, Any] = value.numpy()
            return found


class BoundRun:
    """A repeatable run of a session with bound inputs. `outputs` are those that are bound to tensors.

    `binds_again`: bind the inputs before each run. If a node on the CPU reads an input, ONNX Runtime copies it when it is bound,
    and later runs read that copy."""

    def __init__(self, session: Any, inputs: Mapping[str, Any], binds_again: bool = False) -> None:
        self._session, self.binding = session, session.io_binding()
        self.inputs = inputs
        self.outputs: dict[str, Any] = {}
        self.known: PastRuns | None = None  # the last run's record, if C code executed it
        self._binds_again = binds_again
        self._bind()

    def _bind(self) -> None:
        for name, value in self.inputs.items():
            self.binding.bind_ortvalue_input(name, value)

    def write(self, name: str, value: Any) -> None:
        """Binds an output to a tensor."""
        self.outputs[name] = value
        self.binding.bind_ortvalue_output(name, value)

    def run(self) -> None:
        from ...plugin import chained

        if self._binds_again:
            self._bind()
        before = chained.runs_done()
        self._session.run_with_iobinding(self.binding, _without_capture())
        self.known = chained.runs_since(before)


@cache
def _without_capture() -> ort.RunOptions:
    """With the option enableGraphCapture, runs of one id have one set of tensors, and texts have more. C code repeats runs without
    a capture too."""
    from ...plugin.captures import NO_CAPTURE, RUN_KEY

    options = ort.RunOptions()
    options.add_run_config_entry(RUN_KEY, str(NO_CAPTURE))
    return options


def chain(
    runs: Sequence[BoundRun], read: Any, written: tuple[Any, np.ndarray[Any, Any]] | None = None
) -> ChainedRuns | None:
    """Returns a chain of runs with bound outputs, perhaps none, followed by a readback of the 64-bit integers of `read`.

    Returns None if C code has no record of some run. `written`: a tensor, and the array that is uploaded to it before each
    chain."""
    from ...plugin import chained

    known = [it.known for it in runs if it.known is not None]
    if len(known) < len(runs):
        return None
    results = [it.data_ptr() for run in runs for it in run.outputs.values()]
    others = [it.data_ptr() for run in runs for it in run.inputs.values()]
    first = None
    if written is not None:
        value, array = written
        first = chained.HostBytes(value.data_ptr(), array.ctypes.data, array.nbytes)
    return chained.chained(known, results, others, read.data_ptr(), int(np.prod(read.shape())), first)


def memory_of(session: Any) -> AdapterMemory:
    """Returns the memory of a session's device."""
    context: Context = state_of(session).context
    return AdapterMemory(context.adapter.index, context)
