"""The files beside a model that its weights lie in: are they there, and long enough?

In: an ONNX model. Out: an error that names the weight, the file and the bytes, before anything reads them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ModelError

if TYPE_CHECKING:
    import onnx_ir as ir


def check_external_data(source: Path, model: ir.Model | None = None) -> None:
    """Raises ModelError when a file that `source` keeps weights in is missing or too short. `model` is what was read of it.

    What is no ONNX model says nothing of such files.
    """
    import onnx_ir as ir

    if model is None:
        try:
            model = ir.load(source)
        except Exception:
            return
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if not isinstance(tensor, ir.ExternalTensor):
            continue
        path = Path(tensor.path)
        if not path.is_file():
            raise ModelError(
                f"{source} keeps its weights in {path}, which is not there ({value.name!r} is the first): put the file"
                " beside the model, under that name"
            )
        start = tensor.offset or 0
        end = start + (tensor.nbytes if tensor.length is None else max(tensor.length, tensor.nbytes))
        if path.stat().st_size < end:
            raise ModelError(
                f"{path} has {path.stat().st_size} bytes, and the weight {value.name!r} of {source} is the bytes {start} to"
                f" {end} of it: the file is cut off or another model's; fetch it again"
            )
