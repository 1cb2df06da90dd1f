"""A case compiled and run by this package alone, without ONNX Runtime: tells a kernel's fault from the plugin's.

Where any node cannot run on WebGPU the case has the status `refused` and the reasons.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from .cases import Data
from .compare import difference, to_value


def run(data: Data) -> dict[str, Any]:
    """The part of a row (see worker) that the compiler can say."""
    from onnxruntime_ep_wgpu.compile import check
    from onnxruntime_ep_wgpu.errors import UnsupportedError
    from tests import support

    model = onnx.shape_inference.infer_shapes(onnx.load_model_from_string(data.model))
    module = ir.from_proto(model)
    operators = [node.op_type for node in module.graph]
    reasons = [r for r in check(module.graph, module.opset_imports, support.target()) if r]
    if reasons:
        return {"status": "refused", "detail": reasons[0], "reasons": reasons}
    arrays = [np.asarray(to_value(value)) for value in data.inputs]
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
