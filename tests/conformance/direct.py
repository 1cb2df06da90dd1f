"""A case compiled and run by this package alone, without ONNX Runtime: tells a kernel's fault from the plugin's.

Where any node cannot run on WebGPU the case has the status `refused` and the reasons.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from .cases import Data
from .compare import difference, to_value

UNKNOWN_UNTIL_A_RUN = re.compile(
    "depends on the input|depends on an input|depends on data|is not a constant|in a run, but it must be known before"
)
"""Reasons for which models hold a value as an initializer where the suite's cases have an input."""


def run(data: Data) -> dict[str, Any]:
    """The part of a row (see worker) that the compiler can say.

    A case that is refused because its input decides on more than sizes runs again with all inputs but the first as
    initializers, as models have them; its row says so in `constants`.
    """
    model = onnx.load_model_from_string(data.model)
    row = _run(model, data, data.inputs)
    if row["status"] == "refused" and UNKNOWN_UNTIL_A_RUN.search(row["detail"]):
        rest = list(model.graph.input)[1:]
        values = [np.asarray(to_value(v)) for v in data.inputs]
        if all(v.dtype.kind in "biuf" for v in values) and len(values) == len(rest) + 1:
            model.graph.initializer.extend(
                numpy_helper.from_array(v, i.name) for v, i in zip(values[1:], rest, strict=True)
            )
            del model.graph.input[1:]
            row = _run(model, data, data.inputs[:1]) | {"constants": True}
    return row


def _run(model: onnx.ModelProto, data: Data, inputs: Sequence[Any]) -> dict[str, Any]:
    from onnxruntime_ep_wgpu.compiler.lower.lower import attempt
    from onnxruntime_ep_wgpu.errors import UnsupportedError
    from tests import support

    model = onnx.shape_inference.infer_shapes(model)
    module = ir.from_proto(model)
    operators = [node.op_type for node in module.graph]
    reasons = [r for r in attempt(module.graph, module.opset_imports, support.target()).reasons if r]
    if reasons:
        return {"status": "refused", "detail": reasons[0], "reasons": reasons}
    arrays = [np.asarray(to_value(value)) for value in inputs]
    try:
        results = support.run_model(model, *arrays)
    except UnsupportedError as error:
        return {"status": "refused", "detail": str(error), "reasons": [str(error)]}
    except Exception as error:
        return {"status": "error", "detail": f"{type(error).__name__}: {error}"[:400]}
    placed = {"gpu": {op: operators.count(op) for op in set(operators)}}
    for output, got, want in zip(model.graph.output, results, data.outputs, strict=False):
        problem = difference(got, want, data.rtol, data.atol, values=not data.random)
        if problem:
            return {"status": "wrong", "detail": f"{output.name}: {problem}", **placed}
    return {"status": "random" if data.random else "right", **placed}
