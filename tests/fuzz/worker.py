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
import onnxruntime as ort

from onnxruntime_ep_wgpu.errors import InternalError, ShaderError, WgpuEpError
from tests import patience

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


def run_case(name: str, provider: str) -> str:
    """Opens a case's model and runs it twice; the outcome in a word."""
    case = cases.make(name)
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    try:
        if provider == "cpu":
            session = ort.InferenceSession(case.model, settings, providers=["CPUExecutionProvider"])
        else:
            import onnxruntime_ep_wgpu

            session = onnxruntime_ep_wgpu.session(
                case.model, sess_options=settings, allow_cpu_only=True, **case.options
            )
        feeds = {info.name: value_of(info) for info in session.get_inputs()}
        for _ in range(2):
            session.run(None, feeds)
    except Exception as error:
        kind = type(error)
        # Text that is no UTF-8 in a model stops ONNX Runtime's Python binding.
        meant = isinstance(error, (WgpuEpError, Unfed, UnicodeDecodeError)) or kind.__module__.startswith("onnxruntime")
        return (
            kind.__name__
            if meant and not isinstance(error, (InternalError, ShaderError))
            else f"defect:{kind.__name__}"
        )
    return "ran"


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
