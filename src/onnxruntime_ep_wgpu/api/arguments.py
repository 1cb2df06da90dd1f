"""Validation of the arguments of public functions. The error names the argument, its value, and what to pass instead.

In: arguments of the functions in this folder. Out: the same, of the right type. Raises TypeError, IsADirectoryError, OptionError.
"""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import OptionError, cut

# Arguments of InferenceSession that `session()` does not accept, with the remedy.
_OF_INFERENCE_SESSION = {
    "providers": "session() always uses this provider, and the CPU provider for nodes that cannot run here; choose the"
    " device with device=...",
    "provider_options": "session() takes provider options as keyword arguments: session(model, validationMode='full')",
    "path_or_bytes": "pass the model as the first argument",
}


def kind_of(value: Any) -> str:
    """Returns a short description of a value by its type, for values with a long repr."""
    return f"an object of type {type(value).__name__}"


def model_argument(model: Any, or_bytes: bool = True) -> str | bytes:
    """Returns the path of a model's file or, with `or_bytes`, its bytes."""
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
    if not path:
        raise OptionError(f"model: {path!r} is no path; pass {what}")
    try:
        named = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        named = False
    if not named:
        raise OptionError(f"model: {cut(path)} has a character that no name of a file has; pass {what}")
    if os.path.isdir(path) or str(path).endswith(".wgpu"):
        from .web_files import is_export

        if is_export(Path(path)):
            raise OptionError(f"model: {path} is an export already, for browsers; pass the model that it was made of")
    if os.path.isdir(path):
        raise IsADirectoryError(f"model: {path} is a folder; pass the file in it")
    return path


def whole_number(value: Any) -> int | None:
    """Returns an integer, including numpy's, as an int; None for other values and for bools."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def session_argument(session: Any) -> Any:
    """Returns the session. It may use any provider."""
    if not hasattr(session, "get_providers"):  # not isinstance: libraries wrap sessions
        raise TypeError(
            f"session: {cut(session)} is not an onnxruntime.InferenceSession; onnxruntime_ep_wgpu.session(model) makes one"
        )
    return session


def model_name(model: Any) -> str:
    """Returns the display name of a model: its file's name, or "model" for bytes."""
    return os.path.basename(os.fsdecode(model)) if isinstance(model, str | os.PathLike) else "model"


def settings_argument(sess_options: Any) -> Any:
    """Returns the SessionOptions, or new ones for None."""
    import onnxruntime as ort  # here, because export works without it

    if sess_options is None:
        return ort.SessionOptions()
    if not isinstance(sess_options, ort.SessionOptions):
        raise TypeError(f"sess_options: {cut(sess_options)} is not an onnxruntime.SessionOptions")
    return sess_options


def sizes_argument(free_dimensions: Any) -> Mapping[str, int]:
    """Returns the sizes by dimension name, {} for None."""
    if free_dimensions is not None and not isinstance(free_dimensions, Mapping):
        raise TypeError(f"free_dimensions: {cut(free_dimensions)} is not a dict of sizes by name, as {{'batch': 1}} is")
    return free_dimensions or {}


def feeds_argument(feeds: Any, session: Any) -> None:
    """Checks that the inputs of a run are a mapping."""
    if not isinstance(feeds, Mapping):
        names = ", ".join(f"{it.name!r}: ..." for it in session.get_inputs())
        raise TypeError(
            f"input_feed: {kind_of(feeds)} is not a dict of arrays by the names of inputs; pass {{{names}}}"
        )


# numpy's type names that differ from ONNX Runtime's.
_NAMES = {"float32": "float", "float64": "double"}


_UNEXPECTED = re.compile(r"Actual: \(tensor\((\w+)\)\) , expected: \((tensor\(\w+\))\)")


def explain_types(error: Exception, session: Any, feeds: Mapping[str, Any] | None = None) -> None:
    """Adds the inputs of a wrong type to ONNX Runtime's error, as its text has no input names.

    `feeds` are arrays or OrtValues. It is None for a binding: there, the types come from ONNX Runtime's text.
    """
    problems = []
    unexpected = _UNEXPECTED.search(str(error)) if feeds is None else None
    for it in session.get_inputs():
        if feeds is not None:
            given = _type_of(feeds.get(it.name))
        else:
            given = _numpy_name(unexpected[1]) if unexpected and unexpected[2] == it.type else ""
        wanted = _numpy_name(it.type.removeprefix("tensor(").removesuffix(")"))
        if given.startswith(("str", "bytes")) and wanted != "string":
            problems.append(f"input {it.name!r} has text, the model needs numbers of the type {wanted}")
        elif given not in ("", "object", wanted):
            problems.append(
                f"input {it.name!r} has the type {given}, the model needs {wanted}: pass array.astype({wanted!r})"
            )
    if problems:
        error.args = (f"{error}; {' or '.join(problems) if feeds is None else '; '.join(problems)}",)


def _numpy_name(kind: str) -> str:
    return next((numpy for numpy, its in _NAMES.items() if its == kind), kind)


def _type_of(value: Any) -> str:
    """Returns numpy's name of the element type of an array or an OrtValue; "" if it has none."""
    if callable(getattr(value, "data_type", None)):
        return _numpy_name(value.data_type().removeprefix("tensor(").removesuffix(")"))
    return str(getattr(getattr(value, "dtype", None), "name", ""))


def check_options(options: Mapping[str, Any]) -> None:
    """Raises OptionError for arguments of InferenceSession that `session()` does not accept.

    Other unknown options raise when the options are parsed."""
    for name, way in _OF_INFERENCE_SESSION.items():
        if name in options:
            raise OptionError(f"{name}={cut(options[name])}: {way}")
