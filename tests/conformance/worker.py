"""One process of the conformance run: opens and runs some cases and prints one line of JSON for each.

    python -m tests.conformance.worker '{"provider": "ours", "int64": "native", "optimize": false}' < names

A line `{"start": name}` goes out before a case, so that the parent knows which case took the process down with it.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import warnings
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

from tests import provider

from . import cases, direct
from .compare import difference, to_value

Row = dict[str, Any]


@dataclass(frozen=True)
class Setup:
    """How cases are run.

    `provider`: as in tests.provider, or `compiler` for our compiler without onnxruntime. `int64`: `native` or `pair`.
    `optimize`: with onnxruntime's own graph optimisations.
    """

    provider: str = provider.DEFAULT
    int64: str = "native"
    optimize: bool = False


def run_case(name: str, setup: Setup) -> Row:
    """The case's row: status, what differs, nodes by provider, reasons.

    status: `right`, `wrong`, `error` (the run failed), `refused` (no session), `random` (only types and shapes
    compared), `unfed` (its types cannot be passed through onnxruntime's Python binding).
    """
    data = cases.read(name)
    row: Row = {"name": name, "gpu": {}, "cpu": {}, "reasons": [], "status": "refused", "detail": None}
    if setup.provider == "compiler":
        return row | direct.run(data)
    settings = ort.SessionOptions()
    if not setup.optimize:
        settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = provider.open_session(data.model, setup.provider, session_options=settings)
    except Exception as error:
        return row | {"detail": _brief(error)}
    placed = provider.placement(session)
    row["gpu"] = Counter(op for _, op in placed.on_gpu)
    row["cpu"] = placed.cpu_operators()
    row["reasons"] = provider.reasons(session) if setup.provider == "ours" and placed.on_cpu else []
    try:
        feeds = _feeds(session, data)
    except Exception as error:
        return row | {"status": "unfed", "detail": _brief(error)}
    try:
        got = _run(session, feeds)
    except _NoPythonTypeError as error:
        return row | {"status": "unfed", "detail": _brief(error)}
    except Exception as error:
        return row | {"status": "error", "detail": _brief(error)}
    for output, value, want in zip(session.get_outputs(), got, data.outputs, strict=False):
        problem = difference(value, want, data.rtol, data.atol, values=not data.random)
        if problem:
            return row | {"status": "wrong", "detail": f"{output.name}: {problem}"}
    return row | {"status": "random" if data.random else "right"}


class _NoPythonTypeError(Exception):
    """A result whose element type has no numpy array in onnxruntime's binding."""


def _feeds(session: ort.InferenceSession, data: cases.Data) -> dict[str, Any]:
    """Inputs by name; an optional input that the suite leaves out is missing."""
    model = onnx.load_model_from_string(data.model)
    declared = {i.name for i in session.get_inputs()}
    feeds = {}
    for value, given in zip(model.graph.input, data.inputs, strict=False):
        if value.name not in declared:
            continue
        array = to_value(given)
        element = value.type.tensor_type.elem_type
        if isinstance(array, (np.ndarray, np.generic)) and element and not _native(element):
            feeds[value.name] = _ort_value(np.asarray(array), element)
        else:
            feeds[value.name] = np.asarray(array) if isinstance(array, np.generic) else array
    return feeds


def _native(element: int) -> bool:
    """Whether numpy has the element type by itself, without ml_dtypes."""
    return element <= 13


def _ort_value(array: np.ndarray, element: int) -> ort.OrtValue:
    """A tensor of a type that numpy lacks, written byte by byte as onnx lays it out."""
    value = ort.OrtValue.ortvalue_from_shape_and_type(list(array.shape), element)
    data = numpy_helper.from_array(array).raw_data
    ctypes.memmove(value.data_ptr(), data, len(data))
    return value


def _run(session: ort.InferenceSession, feeds: dict[str, Any]) -> list[Any]:
    names = [o.name for o in session.get_outputs()]
    strange = [
        o.type
        for o in session.get_outputs()
        if any(t in o.type for t in ("bfloat16", "float8", "float4", "int4", "int2"))
    ]
    if not strange and not any(isinstance(v, ort.OrtValue) for v in feeds.values()):
        result: list[Any] = session.run(names, feeds)
        return result
    if any(isinstance(v, list) or v is None for v in feeds.values()):
        raise _NoPythonTypeError("sequence of a type that numpy lacks")
    values = {k: v if isinstance(v, ort.OrtValue) else ort.OrtValue.ortvalue_from_numpy(v) for k, v in feeds.items()}
    results = session.run_with_ort_values(names, values)
    try:
        return [_numpy(r) for r in results]
    except (RuntimeError, TypeError, ValueError) as error:
        raise _NoPythonTypeError(str(error)) from error


def _numpy(value: Any) -> np.ndarray:
    if _native(value.element_type()):
        native: np.ndarray = value.numpy()
        return native
    tensor = onnx.TensorProto(data_type=value.element_type(), dims=value.shape())
    empty = np.empty(value.shape(), onnx.helper.tensor_dtype_to_np_dtype(value.element_type()))
    tensor.raw_data = ctypes.string_at(value.data_ptr(), len(numpy_helper.from_array(empty).raw_data))
    return numpy_helper.to_array(tensor)


def _brief(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:400]


def main() -> None:
    setup = Setup(**json.loads(sys.argv[1]))
    warnings.simplefilter("ignore")
    ort.set_default_logger_severity(4)
    if setup.int64 == "pair":
        provider.hide_int64()
    for name in sys.stdin.read().split():
        print(json.dumps({"start": name}), flush=True)
        with np.errstate(all="ignore"):
            row = run_case(name, setup)
        print(json.dumps(row), flush=True)
    sys.stdout.flush()
    os._exit(0)  # exit codes of a provider's shutdown are tested elsewhere


if __name__ == "__main__":
    main()
