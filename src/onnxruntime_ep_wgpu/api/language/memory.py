"""Tensors on the adapter that a model runs on. In: shapes or arrays. Out: ONNX Runtime's OrtValues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort

from ...options.types import ProviderOptions
from ..devices import devices

DEVICE = "webgpu"


@dataclass(frozen=True)
class Memory:
    """The memory of adapter `number`, as ONNX Runtime counts them."""

    number: int

    def empty(self, shape: Sequence[int], dtype: Any) -> Any:
        """A tensor that holds anything."""
        return ort.OrtValue.ortvalue_from_shape_and_type(list(shape), dtype, DEVICE, self.number)

    def put(self, array: np.ndarray[Any, Any]) -> Any:
        """A tensor that holds the array."""
        return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), DEVICE, self.number)


def memory_of(options: ProviderOptions) -> Memory:
    """The memory of sessions with these options: the adapter that they name, else the first."""
    return Memory(int(options.get("adapterIndex", devices()[0].ep_metadata["adapter"])))
