"""Tensors on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort


def on_device(array: np.ndarray, name: str = "webgpu") -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy(array, name, 0)


def empty(shape: list[int], dtype: Any = np.float32) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_shape_and_type(shape, dtype, "webgpu", 0)
