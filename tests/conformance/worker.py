"""One process of the conformance run: opens and runs some cases and prints one line of JSON for each.

    python -m tests.conformance.worker '{"provider": "ours", "int64": "native", "optimize": false}' < names

A line `{"start": name}` goes out before a case, so that the parent knows which case took the process down with it.
"""

from __future__ import annotations

import faulthandler
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

from tests import feeding, patience, provider, targets

from . import cases, direct, suites
from .compare import difference, to_value

Row = dict[str, Any]


@dataclass(frozen=True)
class Setup:
    """How cases are run.

    `provider`: as in tests.provider, or `compiler` for our compiler without onnxruntime. `target`, `int64`: as in
    tests.targets. `optimize`: with onnxruntime's own graph optimisations. `suite`: the folder with the cases; without one
    they are the node cases of ONNX.
    """

    provider: str = provider.DEFAULT
    target: str = "own"
    int64: str = "native"
    optimize: bool = False
    suite: str = ""


def run_case(name: str, setup: Setup) -> Row:
    """The case's row: status, what differs, nodes by provider, reasons.

    status: `right`, `wrong`, `error` (the run failed), `refused` (no session), `random` (only types and shapes
    compared), `unfed` (its types cannot be passed through onnxruntime's Python binding).
    """
    data = suites.read(setup.suite, name) if setup.suite else cases.read(name)
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
        got = feeding.run(session, feeds)
    except feeding.NoPythonTypeError as error:
        return row | {"status": "unfed", "detail": _brief(error)}
    except Exception as error:
        return row | {"status": "error", "detail": _brief(error)}
    for output, value, want in zip(session.get_outputs(), got, data.outputs, strict=False):
        problem = difference(value, want, data.rtol, data.atol, values=not data.random)
        if problem:
            return row | {"status": "wrong", "detail": f"{output.name}: {problem}"}
    return row | {"status": "random" if data.random else "right"}


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
        if isinstance(array, (np.ndarray, np.generic)) and element and not feeding.native(element):
            feeds[value.name] = feeding.ort_value(np.asarray(array), element)
        else:
            feeds[value.name] = np.asarray(array) if isinstance(array, np.generic) else array
    return feeds


def _brief(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:400]


def main() -> None:
    setup = Setup(**json.loads(sys.argv[1]))
    warnings.simplefilter("ignore")
    ort.set_default_logger_severity(4)
    for name in sys.stdin.read().split():
        print(json.dumps({"start": name}), flush=True)
        faulthandler.dump_traceback_later(patience.SECONDS, exit=True)
        with np.errstate(all="ignore"), targets.using(targets.Way(setup.target, setup.int64)):
            row = run_case(name, setup)
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps(row), flush=True)
    sys.stdout.flush()
    os._exit(0)  # exit codes of a provider's shutdown are tested elsewhere


if __name__ == "__main__":
    main()
