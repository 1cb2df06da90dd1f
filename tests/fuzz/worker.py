"""One process of the fuzzing run: opens and runs cases and prints what became of each.

    python -m tests.fuzz.worker truncated:3 mutated:17 ...

In: names of cases. Out: per case a line `start NAME` and a line `end NAME OUTCOME`: `ran`, the type of the error that said
what is wrong, or `defect:TYPE` for an error that nobody meant to raise. A case that takes longer than patience.SECONDS ends the
process with the place where it was.
"""

from __future__ import annotations

import faulthandler
import sys
import warnings
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from onnxruntime_ep_wgpu.errors import InternalError, ShaderError, WgpuEpError
from tests import feeding, patience
from tests.conformance.cases import RANDOM
from tests.provider import exact

from . import cases

INTEGERS = (f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))
TYPES = {f"tensor({name})": np.dtype(name) for name in (*INTEGERS, "float16", "bool")}
TYPES |= {"tensor(float)": np.dtype(np.float32), "tensor(double)": np.dtype(np.float64)}


class Unfed(Exception):
    """The session was made and has an input that this program has no value for."""


LARGEST_INPUT = 1 << 20  # elements


def value_of(info: Any) -> Any:
    """An input as the session declares it; free dims are 2."""
    shape = [size if isinstance(size, int) and size >= 0 else 2 for size in info.shape]
    if info.type not in TYPES or np.prod(shape, dtype=float) > LARGEST_INPUT:
        raise Unfed(f"nothing to feed for {info.type} {shape}")
    return (np.arange(np.prod(shape, dtype=int)) % 5).reshape(shape).astype(TYPES[info.type])


def fed(array: Any) -> Any:
    """A value as a session takes it."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype) if array.dtype != object else onnx.TensorProto.STRING
    return array if feeding.native(kind) else feeding.ort_value(array, kind)


def run_case(name: str, provider: str) -> str:
    """Opens a case's model and runs it twice; the outcome in a word."""
    case = cases.make(name)
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    try:
        if provider == "cpu":
            session = ort.InferenceSession(case.model, exact(settings), providers=["CPUExecutionProvider"])
        else:
            import onnxruntime_ep_wgpu

            # One device serves every case: a driver takes longer to open one than most cases take.
            options = {"preserveDevice": "1", **case.options}
            session = onnxruntime_ep_wgpu.session(case.model, sess_options=settings, allow_cpu_only=True, **options)
        given = case.feeds or {}
        feeds = {it.name: fed(given[it.name]) if it.name in given else value_of(it) for it in session.get_inputs()}
        for _ in range(2):
            results = feeding.run(session, feeds)
        if case.feeds is not None and provider != "cpu" and not onnxruntime_ep_wgpu.report(session).on_cpu:
            return compared(case.model, settings, feeds, results)
    except Exception as error:
        kind = type(error)
        # Text that is no UTF-8 in a model stops ONNX Runtime's Python binding.
        meant = isinstance(
            error, (WgpuEpError, Unfed, UnicodeDecodeError, feeding.NoPythonTypeError)
        ) or kind.__module__.startswith("onnxruntime")
        return (
            kind.__name__
            if meant and not isinstance(error, (InternalError, ShaderError))
            else f"defect:{kind.__name__}"
        )
    return "ran"


def compared(model: bytes, settings: ort.SessionOptions, feeds: dict[str, Any], ours: list[Any]) -> str:
    """`ran` when the CPU provider has the same results, `beyond` when it refuses the model or the run."""
    try:
        theirs = ort.InferenceSession(model, exact(settings), providers=["CPUExecutionProvider"])
        results = feeding.run(theirs, feeds)
    except Exception:
        return "beyond"
    graph = onnx.load_model_from_string(model).graph
    constants = [onnx.numpy_helper.to_array(it) for it in graph.initializer]
    if {it.op_type for it in graph.node} & {*RANDOM, "Dropout"}:  # other numbers are as good
        alike = all(np.shape(mine) == np.shape(other) for mine, other in zip(ours, results, strict=True))
        return "ran" if alike else "defect:Shape"
    strange = any(it.dtype.kind == "f" and not (np.abs(it) < 1e20).all() for it in constants)
    for k, (mine, other) in enumerate(zip(ours, results, strict=True)):
        if (difference := _difference(np.asarray(mine), np.asarray(other), strange)) is not None:
            print(f"{k}: {difference}", file=sys.stderr)
            return "defect:Wrong"
    return "ran"


def _difference(mine: Any, other: Any, strange: bool = False) -> str | None:
    """How results differ by more than roundings and a unit of what is quantised. `strange`: the model has NaN, infinity or numbers
    that the CPU provider makes one of."""
    if mine.dtype != other.dtype or mine.shape != other.shape:
        return f"{mine.dtype}{list(mine.shape)} for {other.dtype}{list(other.shape)}"
    if mine.dtype.kind in "OUS" or not mine.size:
        return None
    if strange:
        return None  # in padding and in bytes, providers differ
    a, b = mine.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return "other places are finite"
    each = 1 if mine.dtype.itemsize == 1 and mine.dtype.kind in "iu" else 0
    room = 0.0 if mine.dtype.kind in "iub" else 1e-3 if mine.dtype.itemsize > 2 else 2e-2
    most = np.max(np.abs(b[finite]), initial=0)
    far = np.max(np.abs(a[finite] - b[finite]), initial=0)
    return None if far <= each + room * max(most, 1e-3) else f"{far} of {most}"


def main(provider: str, names: list[str]) -> None:
    warnings.simplefilter("ignore")
    for name in names:
        print("start", name, flush=True)
        faulthandler.dump_traceback_later(patience.SECONDS, exit=True)
        outcome = run_case(name, provider)
        faulthandler.cancel_dump_traceback_later()
        print("end", name, outcome, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "-":  # with the CPU provider alone, to tell whose a crash is
        main("cpu", sys.argv[2:])
    else:
        main("ours", sys.argv[1:])
