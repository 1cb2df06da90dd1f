"""Tensors on the adapter that a model runs on. In: shapes or arrays. Out: ONNX Runtime's OrtValues, and what they hold; what went
wrong in the provider, of its own type. And runs with such tensors, which stay where they are: several again at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort

from ...options.types import ProviderOptions
from ...records import dataclass
from ..devices import devices
from ..sessions import RaisingWhatHappened

if TYPE_CHECKING:
    from ...plugin.chained import ChainedRuns, PastRuns

DEVICE = "webgpu"


@dataclass(frozen=True)
class AdapterMemory:
    """The memory of adapter `number`, as ONNX Runtime counts them."""

    number: int

    def empty(self, shape: Sequence[int], dtype: Any) -> Any:
        """A tensor that holds anything."""
        with RaisingWhatHappened() as watch, watch.lasts:
            return ort.OrtValue.ortvalue_from_shape_and_type(list(shape), dtype, DEVICE, self.number)

    def put(self, array: np.ndarray[Any, Any]) -> Any:
        """A tensor that holds the array."""
        with RaisingWhatHappened() as watch, watch.lasts:
            return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), DEVICE, self.number)

    def write(self, value: Any, array: np.ndarray[Any, Any]) -> None:
        """Gives a tensor of this memory another content."""
        from ...plugin.memory import space

        device, (buffer, offset) = space.space().write(value.data_ptr(), array.nbytes)
        device.upload(buffer, offset, array)

    def read(self, value: Any) -> np.ndarray[Any, Any]:
        """What a tensor holds when all that runs so far has been done."""
        with RaisingWhatHappened() as watch, watch.lasts:
            found: np.ndarray[Any, Any] = value.numpy()
            return found


class BoundRun:
    """A run of a session with these inputs, bound, that is done again and again. `outputs` are those that were bound to tensors."""

    def __init__(self, session: Any, inputs: Mapping[str, Any]) -> None:
        self._session, self.binding = session, session.io_binding()
        self.inputs = inputs
        self.outputs: dict[str, Any] = {}
        self.known: PastRuns | None = None  # the last time, where C code did it
        for name, value in inputs.items():
            self.binding.bind_ortvalue_input(name, value)

    def write(self, name: str, value: Any) -> None:
        """Binds an output."""
        self.outputs[name] = value
        self.binding.bind_ortvalue_output(name, value)

    def run(self) -> None:
        from ...plugin import chained

        before = chained.done()
        self._session.run_with_iobinding(self.binding)
        self.known = chained.done_since(before)


def chain(
    runs: Sequence[BoundRun], read: Any, written: tuple[Any, np.ndarray[Any, Any]] | None = None
) -> ChainedRuns | None:
    """Runs whose outputs are all bound, one behind another, or none, and the 64-bit integers of a tensor that are read behind them.
    None where C code does not know all of them. `written`: a tensor, and the array that it gets before each time."""
    from ...plugin import chained

    known = [it.known for it in runs if it.known is not None]
    if len(known) < len(runs):
        return None
    results = [it.data_ptr() for run in runs for it in run.outputs.values()]
    others = [it.data_ptr() for run in runs for it in run.inputs.values()]
    first = None
    if written is not None:
        value, array = written
        first = chained.Written(value.data_ptr(), array.ctypes.data, array.nbytes)
    return chained.chained(known, results, others, read.data_ptr(), int(np.prod(read.shape())), first)


def memory_of(options: ProviderOptions) -> AdapterMemory:
    """The memory of sessions with these options: the adapter that they name, else the first."""
    return AdapterMemory(int(options.get("adapterIndex", devices()[0].ep_metadata["adapter"])))
