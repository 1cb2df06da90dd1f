"""Values of a random graph and how exactly they are known.

A value has, for every run, samples: element arrays that a correct implementation might get, the first without rounding.
Floats are calculated in float64 whatever their type; the other samples carry a random error of the size that the type and the
operator allow, so that a few of them show how errors grow on the way through the graph. A value with a single sample is exact:
integers, booleans, and floats that every implementation calculates without rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
from onnx import TensorProto

SAMPLES = 3
"""Samples with errors, beside the first."""

CODES = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "float64": TensorProto.DOUBLE,
    "int8": TensorProto.INT8,
    "int16": TensorProto.INT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "uint8": TensorProto.UINT8,
    "uint16": TensorProto.UINT16,
    "uint32": TensorProto.UINT32,
    "uint64": TensorProto.UINT64,
    "bool": TensorProto.BOOL,
}
UNIT = {"float32": 2.0**-21, "float16": 2.0**-10, "bfloat16": 2.0**-7, "float64": 2.0**-50}
"""The relative error of one operator: 4 units of the last place of f32, 8 of f64, and a rounding per node of halves."""
LARGEST = {"float32": 1e4, "float16": 2e3, "bfloat16": 1e4, "float64": 1e4}
"""Beyond this a float is not drawn further."""
LEAST = 1e-12
"""Nor is a tensor with no larger element that is not all zeros: its squares are subnormal, which adapters may flush."""
LOOSEST = {"float32": 1e-3, "float16": 3e-2, "bfloat16": 6e-2, "float64": 1e-3}
"""The largest error, as a part of the tensor's scale, with which a value is drawn: a wrong element cannot hide behind it."""
SMALLEST = {"float32": 1e-30, "float16": 1e-7, "bfloat16": 1e-30, "float64": 1e-30}
"""Numbers below this may be flushed to zero."""
FLOATS = ("float32", "float16", "bfloat16")
"""Those that every operator of floats has kernels for."""
INTEGERS = tuple(name for name in CODES if "int" in name)

Samples = tuple[np.ndarray, ...]


def numpy_type(dtype: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def calculated(array: np.ndarray, dtype: str) -> np.ndarray:
    """The array as this folder calculates with it."""
    return array.astype(np.float64) if dtype in UNIT else array


def stored(array: np.ndarray, dtype: str) -> np.ndarray:
    """The array as a model holds it."""
    return array.astype(numpy_type(dtype))


@dataclass(eq=False)
class Value:
    """A tensor of the graph; `runs` has its samples per run. `on_host`: it follows from shapes and constants alone."""

    name: str
    dtype: str
    runs: tuple[Samples, ...]
    on_host: bool = False
    constant: bool = False
    readers: int = field(default=0)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(samples[0].shape for samples in self.runs)

    @property
    def rank(self) -> int:
        return int(self.runs[0][0].ndim)

    @property
    def exact(self) -> bool:
        return all(len(samples) == 1 for samples in self.runs)

    @property
    def is_float(self) -> bool:
        return self.dtype in UNIT

    @property
    def elements(self) -> int:
        """Of the largest run."""
        return max(samples[0].size for samples in self.runs)

    @property
    def least_elements(self) -> int:
        return min(samples[0].size for samples in self.runs)

    def dim(self, axis: int) -> tuple[int, ...]:
        """The extent of an axis, per run."""
        return tuple(shape[axis] for shape in self.shapes)

    @property
    def largest(self) -> float:
        return max((float(np.abs(samples[0]).max(initial=0)) for samples in self.runs), default=0.0)

    @property
    def least(self) -> float:
        return min((float(samples[0].min(initial=np.inf)) for samples in self.runs), default=0.0)


def deviation(samples: Samples) -> np.ndarray:
    """How far the samples are from the first, per element."""
    first = samples[0]
    return np.max([np.abs(other - first) for other in samples[1:]], axis=0) if samples[1:] else np.zeros(first.shape)


def tolerance(samples: Samples, dtype: str) -> np.ndarray:
    """How far a correct result may be from the first sample, per element; zero where it must be equal.

    A few samples may by chance all lie close at one element, so the tensor's typical deviation counts everywhere.
    """
    if len(samples) == 1:
        return np.zeros(samples[0].shape)
    spread = deviation(samples)
    typical = float(np.sqrt(np.mean(spread**2))) if spread.size else 0.0
    return 8 * spread + 4 * typical + 2 * UNIT[dtype] * np.abs(samples[0]) + SMALLEST[dtype]
