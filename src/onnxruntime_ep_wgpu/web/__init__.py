"""Runs models in Pyodide, Python in the browser, on the page's WebGPU. Only the wheel `py3-none-any` has the JavaScript for it.

    session = await InferenceSession.create("model.onnx.wgpu/")      # exported beforehand with `wgpu-ep export`
    logits, = await session.run(["logits"], {"input_ids": ids})

Files, in the order data flows: `tensors` (conversion between Python and JavaScript), `library` (the JavaScript), `session`.
They do not require numpy, and import nothing else of the package.
"""

from .library import support as support
from .session import InferenceSession as InferenceSession
from .session import NodeArg as NodeArg
from .tensors import Tensor as Tensor

__all__ = ["InferenceSession", "NodeArg", "Tensor", "support"]
