"""Tensors on the adapter that a model runs on. In: shapes or arrays. Out: ONNX Runtime's OrtValues, and what they hold; what went
wrong in the provider, of its own type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort

from ...options.types import ProviderOptions
from ...records import dataclass
from ..devices import devices
from ..sessions import RaisingWhatHappened

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

    def later(self, value: Any) -> Callable[[], np.ndarray[Any, Any]]:
        """What a tensor of 64-bit integers, which is not empty, holds when all that runs so far has been done. Gives what waits for
        that, and not for runs that begin in between, which may write to the tensor."""
        from ...plugin.memory import space

        found = np.empty(value.shape(), np.int64)
        device, (buffer, offset) = space.space().read(value.data_ptr(), found.nbytes)
        wait = device.download_later(buffer, offset, found.reshape(-1).view(np.uint8).data)

        def get() -> np.ndarray[Any, Any]:
            wait()
            return found

        return get


def memory_of(options: ProviderOptions) -> AdapterMemory:
    """The memory of sessions with these options: the adapter that they name, else the first."""
    return AdapterMemory(int(options.get("adapterIndex", devices()[0].ep_metadata["adapter"])))
