"""The file of a model that is changed before it is used: read without its weights, which stay where they are.

In: a path. Out: the model as protobuf; a session of it after a change. Invariant: nothing keeps a copy of the weights: the session
maps the files that one of the path would, and reads them again from there after a loss of the device.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import onnxruntime as ort

from ...errors import ModelError
from ...options.types import ProviderOptions
from ...runtime.weight_file import ModelFile
from ..external_data import check_external_data, follow_links, take_in
from ..session import session

_SMALL = 1024  # bytes; what ONNX Runtime calculates with when it optimises should be at hand
_FOLDER = "session.model_external_initializers_file_folder_path"


def read(path: Path) -> onnx.ModelProto:
    """The model, with small weights, which code that changes it looks at. Raises ModelError when the file is none, and when one
    with weights is missing or too short, or may not be read, and when what is said of one makes no sense."""
    try:
        model = onnx.load(str(path), load_external_data=False)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    except Exception as error:  # protobuf's own errors, which its implementations do not share
        raise ModelError(f"{path} is no ONNX model ({error}): copy or export it again") from error
    check_external_data(path, model)
    take_in(model, path, _SMALL)
    return model


def session_of(model: onnx.ModelProto, path: Path, options: ProviderOptions) -> ort.InferenceSession:
    """A session of what was read from `path` and changed. The model loses the large weights that it holds itself."""
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
