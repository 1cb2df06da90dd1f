"""Dependencies of a claim or a Program besides the graph: our code, the libraries for compilation, Target and settings.

In: a Target and settings. Out: a text that is equal if these are equal. Files of this package and of libraries are identified
by size and times, as by make and git, with a stat per file. Invariant: changed code has another identity. A process that began
before a file was changed has no identity, because it may run the file's old or new content.
"""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import fields
from importlib.util import find_spec
from typing import Any

import numpy as np

from ... import version
from ...program.program import FORMAT_VERSION
from ...program.settings import CompileSettings
from ...program.target import Target

_PACKAGE = os.path.dirname(os.path.abspath(version.__file__))
_ENDINGS = (".py", ".wgsl")
_LIBRARIES = ("onnx", "onnx_ir", "ml_dtypes", "numpy")


def identity_of(target: Target, settings: CompileSettings) -> str | None:
    """Returns the identity; None if it is uncertain which code this process runs."""
    code = code_identity()
    if code is None:
        return None
    parts = [code, *(f"{it.name}={plain(getattr(target, it.name))}" for it in fields(target))]
    parts += [f"{it.name}={plain(getattr(settings, it.name))}" for it in fields(settings)]
    return hashlib.sha256("\n".join(parts).encode("utf-8", "backslashreplace")).hexdigest()


def code_identity() -> str | None:
    """Returns the part of the identity that all sessions of a process share: our code and the libraries."""
    try:
        code, libraries = _code(), _libraries()
    except OSError:
        return None
    return None if code is None else f"{code}\n{libraries}"


def plain(value: Any) -> str:
    """Returns a field's value as text, which is equal for equal values."""
    return repr(sorted(value) if isinstance(value, frozenset) else value)


def _code() -> str | None:
    """Returns a digest of the state of this package's files; None if one changed after this process began to import them."""
    digest = hashlib.sha256(f"{version.VERSION} {FORMAT_VERSION} {sys.version} {sys.byteorder}".encode())
    newest, pending = 0, [_PACKAGE]
    while pending:
        folder = pending.pop()
        with os.scandir(folder) as found:
            items = sorted(found, key=lambda it: it.name)
        for it in items:
            if it.is_dir():
                if it.name != "__pycache__":
                    pending.append(it.path)
            elif it.name.endswith(_ENDINGS):
                known = it.stat()
                newest = max(newest, known.st_mtime_ns, known.st_ctime_ns)
                digest.update(f"{it.path} {known.st_size} {known.st_mtime_ns} {known.st_ctime_ns}\n".encode())
    return digest.hexdigest() if newest < version.BEGAN else None


def _libraries() -> str:
    """Returns the installed versions of the libraries, without importing them."""
    lines = [f"numpy {np.__version__}"]
    for name in _LIBRARIES:
        try:
            spec = find_spec(name)
        except (ImportError, ValueError):  # `sys.modules` has a module without a specification
            spec = None
        place = "" if spec is None or spec.origin is None else spec.origin
        lines.append(f"{name} {place}")
        if place:
            with_name = os.path.dirname(os.path.dirname(place))
            known = os.stat(place)
            lines.append(f"{known.st_size} {known.st_mtime_ns} {known.st_ctime_ns}")
            folders = sorted(it for it in os.listdir(with_name) if it.endswith((".dist-info", ".egg-info")))
            lines += [it for it in folders if it.lower().replace("-", "_").startswith(f"{name}_")]
    return "\n".join(lines)
