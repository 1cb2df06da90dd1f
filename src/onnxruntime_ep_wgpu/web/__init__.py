"""Models in Pyodide: Python in the browser, on the page's WebGPU. In the wheel `py3-none-any` alone, which brings the
JavaScript.

    session = await InferenceSession.create("model.onnx.wgpu/")      # exported beforehand with `wgpu-ep export`
    logits, = await session.run(["logits"], {"input_ids": ids})

Files, in the order data flows: `tensors` (Python's arrays and JavaScript's), `library` (the JavaScript), `session`. Nothing
here needs numpy, and nothing of the rest of the package is imported.
"""

from .library import support as support
from .session import InferenceSession as InferenceSession
from .session import NodeArg as NodeArg
from .tensors import Tensor as Tensor

__all__ = ["InferenceSession", "NodeArg", "Tensor", "support"]
