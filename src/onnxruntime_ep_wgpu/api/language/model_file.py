"""The file of a model that is changed before it is used: read without its weights, which stay where they are.

In: a path. Out: the model as protobuf; a session of it after a change. Invariant: nothing keeps a copy of the weights: the session
maps the files that one of the path would, and reads them again from there after a loss of the device.
"""

from __future__ import annotations

import math
from pathlib import Path

import onnx
import onnx_ir as ir
import onnxruntime as ort

from ...errors import ModelError
from ...options.types import ProviderOptions
from ...runtime.weight_file import ModelFile
from ..external_data import follow_links, tensors_of
from ..sessions import session

_SMALL = 1024  # bytes; what ONNX Runtime calculates with when it optimises should be at hand
_WAY_OUT = "copy all files of the model, or export it again"
_FOLDER = "session.model_external_initializers_file_folder_path"


def read(path: Path) -> onnx.ModelProto:
    """The model. Raises ModelError when the file is none."""
    try:
        return onnx.load(str(path), load_external_data=False)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    except Exception as error:  # protobuf's own errors, which its implementations do not share
        raise ModelError(f"{path} is no ONNX model ({error}): copy or export it again") from error


def session_of(model: onnx.ModelProto, path: Path, options: ProviderOptions) -> ort.InferenceSession:
    """A session of what was read from `path` and changed. The model loses the weights that it holds itself.

    Raises ModelError when a file with weights is missing or too short, and when what is said of one makes no sense.
    """
    _check_external(model, path)
    folder = follow_links(model, path)
    if not any(it.data_location == onnx.TensorProto.EXTERNAL for it in model.graph.initializer):
        _leave_in_file(model, folder / path.resolve().name)
    settings = ort.SessionOptions()
    settings.add_session_config_entry(_FOLDER, str(folder.absolute()))
    return session(model.SerializeToString(), sess_options=settings, **options)


def _leave_in_file(model: onnx.ModelProto, path: Path) -> None:
    """Says of weights in a model that they lie in its file, at some place."""
    file = ModelFile(path)
    for tensor in model.graph.initializer:
        spans = file.spans(tensor.name)
        if len(tensor.raw_data) < _SMALL or len(spans) != 1 or spans[0].nbytes != len(tensor.raw_data):
            continue
        onnx.external_data_helper.set_external_data(tensor, path.name, spans[0].offset, spans[0].nbytes)
        tensor.ClearField("raw_data")


def _check_external(model: onnx.ModelProto, path: Path) -> None:
    """ONNX Runtime says which file is missing, and not to whom it belongs, nor what to do."""
    sizes: dict[Path, int] = {}
    for tensor in tensors_of(model.graph):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        try:
            where = onnx.external_data_helper.ExternalDataInfo(tensor)
            nbytes = -(-math.prod(tensor.dims) * ir.DataType(tensor.data_type).bitwidth // 8)
        except (ValueError, TypeError) as error:
            raise ModelError(
                f"{path}: where the weight {tensor.name!r} lies makes no sense ({error}): {_WAY_OUT}"
            ) from error
        file = path.parent / where.location
        if file not in sizes:
            sizes[file] = file.stat().st_size if file.is_file() else -1
        problem, end = "", (where.offset or 0) + (nbytes if where.length is None else where.length)
        if sizes[file] < 0:
            problem = "which is missing"
        elif sizes[file] < end:
            problem = f"which ends before, after {sizes[file]} bytes"
        elif where.length not in (None, nbytes):
            problem = f"{where.length} bytes, while its type and shape take {nbytes}"
        if problem:
            raise ModelError(
                f"{path}: the weight {tensor.name!r} lies in {file} up to byte {end}, {problem}: {_WAY_OUT}"
            )
