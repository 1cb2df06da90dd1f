"""Reads a model to change it without loading its weights.

In: a path. Out: the model as protobuf, and a session of the changed model. Invariant: no copy of the weights is kept. The
session maps the original files, and reads them again after a loss of the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
import onnxruntime as ort
from onnx_ir.serde import SerdeError

from ...errors import ModelError
from ...options.types import ProviderOptions
from ...runtime.weight_file import ModelFile
from ..external_data import check_external_data, follow_links, take_in
from ..model_file import root_cause_of
from ..session import session

_SMALL = 1024  # bytes; smaller weights are loaded, because ONNX Runtime's optimisations use their values
_FOLDER = "session.model_external_initializers_file_folder_path"


def read(path: Path) -> onnx.ModelProto:
    """Reads a model with only its small weights. Raises ModelError.

    Reasons are: the file is not a model; a weight's file is missing, too short or not allowed; or a weight's entry is
    invalid."""
    try:
        model = onnx.load(str(path), load_external_data=False)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    except Exception as error:  # protobuf's own errors, which its implementations do not share
        raise ModelError(f"{path} is not an ONNX model ({error}): copy or export it again") from error
    check_external_data(path, model)
    take_in(model, path, _SMALL)
    return model


@contextmanager
def understood(path: Path) -> Iterator[None]:
    """Turns Python's errors about a malformed graph in the `with` into ModelErrors.

    For code that reads or changes the model of `path` before ONNX Runtime validates it."""
    try:
        yield
    except ModelError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, SerdeError, TypeError, ValueError) as error:
        raise ModelError(
            f"the graph of {path} is invalid ({type(error).__name__}: {root_cause_of(error)}): copy or export it again"
        ) from error


def session_of(model: onnx.ModelProto, path: Path, options: ProviderOptions) -> ort.InferenceSession:
    """Returns a session of a changed model that was read from `path`. Removes large embedded weights from the model."""
    folder = follow_links(model, path)
    if not any(it.data_location == onnx.TensorProto.EXTERNAL for it in model.graph.initializer):
        _make_external(model, folder / path.resolve().name)
    settings = ort.SessionOptions()
    settings.add_session_config_entry(_FOLDER, str(folder.absolute()))
    return session(model.SerializeToString(), sess_options=settings, **options)


def _make_external(model: onnx.ModelProto, path: Path) -> None:
    """Turns embedded weights into references to their place in the model's file."""
    file = ModelFile(path)
    for tensor in model.graph.initializer:
        spans = file.spans(tensor.name)
        if len(tensor.raw_data) < _SMALL or len(spans) != 1 or spans[0].nbytes != len(tensor.raw_data):
            continue
        onnx.external_data_helper.set_external_data(tensor, path.name, spans[0].offset, spans[0].nbytes)
        tensor.ClearField("raw_data")
