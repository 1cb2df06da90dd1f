"""What users pass where something else belongs: the error names the argument, what it is, and what to pass.

In: arguments of the functions in this folder. Out: the same, of the right kind. Raises TypeError, IsADirectoryError, OptionError.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import OptionError, cut

# Arguments of InferenceSession that `session()` has no use for.
_OF_INFERENCE_SESSION = {
    "providers": "session() passes this provider by itself, with the CPU provider for what cannot run here; choose the device"
    " with device=...",
    "provider_options": "session() takes provider options as keyword arguments: session(model, validationMode='full')",
    "path_or_bytes": "pass the model as the first argument",
}


def kind_of(value: Any) -> str:
    """What a value is, in words, for one that is long to show."""
    return f"an object of type {type(value).__name__}"


def model_argument(model: Any, or_bytes: bool = True) -> str | bytes:
    """The path of a model's file or, where that is possible, its bytes."""
    what = "the path of a model's file or its bytes" if or_bytes else "the path of a model's file"
    if isinstance(model, bytes) and or_bytes:
        return model
    if isinstance(model, bytes | bytearray | memoryview):
        way = "bytes(model)" if or_bytes else "the name of a file that they are written to"
        raise TypeError(f"model: {len(model)} bytes in a {type(model).__name__}; pass {way}")
    if hasattr(model, "SerializeToString"):
        way = "model.SerializeToString(), or " if or_bytes else ""
        raise TypeError(f"model: a {type(model).__name__} is not {what}; pass {way}the path that it was loaded from")
    if not isinstance(model, str | os.PathLike):
        raise TypeError(f"model: {cut(model)} is not {what}")
    path = os.fspath(model)
    if os.path.isdir(path) or str(path).endswith(".wgpu"):
        from .web_files import is_export

        if is_export(Path(path)):
            raise OptionError(f"model: {path} is an export already, for browsers; pass the model that it was made of")
    if os.path.isdir(path):
        raise IsADirectoryError(f"model: {path} is a folder; pass the file in it")
    return path


def session_argument(session: Any) -> Any:
    """A session, which may run anywhere."""
    if not hasattr(session, "get_providers"):  # libraries wrap sessions
        raise TypeError(
            f"session: {cut(session)} is not an onnxruntime.InferenceSession; onnxruntime_ep_wgpu.session(model) makes one"
        )
    return session


def model_name(model: Any) -> str:
    """What a model is called in what people read: its file's name, "model" for bytes."""
    return os.path.basename(os.fsdecode(model)) if isinstance(model, str | os.PathLike) else "model"


def settings_argument(sess_options: Any) -> Any:
    """SessionOptions, new ones for None."""
    import onnxruntime as ort  # exporting does without

    if sess_options is None:
        return ort.SessionOptions()
    if not isinstance(sess_options, ort.SessionOptions):
        raise TypeError(f"sess_options: {cut(sess_options)} is not an onnxruntime.SessionOptions")
    return sess_options


def sizes_argument(free_dimensions: Any) -> Mapping[str, int]:
    """Sizes by the names of dimensions."""
    if free_dimensions is not None and not isinstance(free_dimensions, Mapping):
        raise TypeError(f"free_dimensions: {cut(free_dimensions)} is not a dict of sizes by name, as {{'batch': 1}} is")
    return free_dimensions or {}


def feeds_argument(feeds: Any, session: Any) -> None:
    """The inputs of a run."""
    if not isinstance(feeds, Mapping):
        names = ", ".join(f"{it.name!r}: ..." for it in session.get_inputs())
        raise TypeError(
            f"input_feed: {kind_of(feeds)} is not a dict of arrays by the names of inputs; pass {{{names}}}"
        )


# numpy's names of types that ONNX Runtime calls otherwise.
_NAMES = {"float32": "float", "float64": "double"}


_UNEXPECTED = re.compile(r"Actual: \(tensor\((\w+)\)\) , expected: \((tensor\(\w+\))\)")


def tell_types(error: Exception, session: Any, feeds: Mapping[str, Any] | None = None) -> None:
    """Adds to ONNX Runtime's error about a run which inputs have another type than the model wants: its text names none.

    `feeds` are arrays or OrtValues; None for those of a binding, whose types are only in ONNX Runtime's text.
    """
    problems = []
    unexpected = _UNEXPECTED.search(str(error)) if feeds is None else None
    for it in session.get_inputs():
        if feeds is not None:
            given = _type_of(feeds.get(it.name))
        else:
            given = _numpy_name(unexpected[1]) if unexpected and unexpected[2] == it.type else ""
        wanted = _numpy_name(it.type.removeprefix("tensor(").removesuffix(")"))
        if given not in ("", "object", wanted):
            problems.append(
                f"input {it.name!r} has the type {given}, the model wants {wanted}: pass array.astype({wanted!r})"
            )
    if problems:
        error.args = (f"{error}; {' or '.join(problems) if feeds is None else '; '.join(problems)}",)


def _numpy_name(kind: str) -> str:
    return next((numpy for numpy, its in _NAMES.items() if its == kind), kind)


def _type_of(value: Any) -> str:
    """numpy's name for the element type of an array or an OrtValue; "" when it has none."""
    if callable(getattr(value, "data_type", None)):
        return _numpy_name(value.data_type().removeprefix("tensor(").removesuffix(")"))
    return str(getattr(getattr(value, "dtype", None), "name", ""))


def check_options(options: Mapping[str, Any]) -> None:
    """Refuses what InferenceSession takes and `session()` does not. Other unknown options are refused when options are read."""
    for name, way in _OF_INFERENCE_SESSION.items():
        if name in options:
            raise OptionError(f"{name}={cut(options[name])}: {way}")
