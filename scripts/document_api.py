"""Writes docs/api.md from the docstrings of the public names, `dir(onnxruntime_ep_wgpu)` and `dir(onnxruntime_ep_wgpu.scale)`:
`python scripts/document_api.py`."""

from __future__ import annotations

import argparse
import inspect
import textwrap
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu import scale

TARGET = Path(__file__).parents[1] / "docs" / "api.md"
HEAD = """# Python API

Written by `scripts/document_api.py` from docstrings, so `help(onnxruntime_ep_wgpu.session)` prints the same text. Modules, and
names that begin with an underscore, are private and may change.
"""
SECTIONS = {
    "Sessions": "session Progress warmup register devices report Report PipelineCounts PipelineCount check PROVIDER"
    " set_default_options ProviderOptions",
    "For ONNX Runtime's own functions": "get_library_path get_ep_name get_ep_names",
    "Measuring": "benchmark Times profile Profile",
    "Looking inside": "explain Explanation verify Verification",
    "Memory and devices": "buffer_of DeviceBuffer ort_value_from wgpu_device_of device_options",
    "Many requests": "scale.SessionPool scale.PoolStatistics scale.DeviceStatistics scale.Predictor scale.application scale.Server",
    "Language models": "LanguageModel Chat generate Sampling",
    "Browsers": "export Exported Precision export_transformers ExportedFolder",
    "Errors": "WgpuEpError",
}
"""The names of each section. Errors that are not listed follow the last one."""


def _signature(name: str, thing: Any) -> str:
    """Returns the signature, with types as in the source."""
    parts: list[str] = []
    parameters = [it for it in inspect.signature(thing).parameters.values() if not it.name.startswith("_")]
    for k, it in enumerate(parameters):
        if it.kind is it.KEYWORD_ONLY and not any(before.kind is it.KEYWORD_ONLY for before in parameters[:k]):
            parts.append("*")
        star = {it.VAR_POSITIONAL: "*", it.VAR_KEYWORD: "**"}.get(it.kind, "")
        kind = _kind(it.annotation)
        default = "" if it.default is it.empty else f" = {_default(it.default)}" if kind else f"={_default(it.default)}"
        parts.append(f"{star}{it.name}{f': {kind}' if kind else ''}{default}")
    back = _kind(inspect.signature(thing).return_annotation)
    line = f"{name}({', '.join(parts)}){f' -> {back}' if back not in ('', 'None') else ''}"
    return "\n".join(textwrap.wrap(line, 110, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False))


def _kind(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    # Annotations of named tuples are forward references with the text of the source.
    return str(getattr(annotation, "__forward_arg__", None) or getattr(annotation, "__name__", annotation))


def _default(value: Any) -> str:
    if repr(value) == "<factory>":  # of a dataclass
        return "..."
    return (
        repr(value) if isinstance(value, (int, float, str, bytes, tuple, type(None))) else f"{type(value).__name__}()"
    )


def _members(kind: type) -> Iterator[str]:
    for name, member in vars(kind).items():
        doc = None if name.startswith("_") else inspect.getdoc(member)
        if doc and isinstance(member, property):
            yield f"* `{name}`: {_indented(doc)}"
        elif doc and inspect.isfunction(member):
            signature = _signature(name, member).replace("(self, ", "(", 1).replace("(self)", "()", 1)
            yield f"* `{' '.join(signature.split())}`: {_indented(doc)}"


def _indented(doc: str) -> str:
    """Indents paragraphs for an item of a list."""
    return textwrap.indent(doc, "  ").lstrip()


def _entry(name: str) -> str:
    thing = attrgetter(name)(webgpu_ep)
    if isinstance(thing, str):
        return f"### `{name}`\n\n`{thing!r}`, the name for `providers=[...]`.\n"
    plain = name == "ProviderOptions" or (inspect.isclass(thing) and issubclass(thing, BaseException))
    head = f"### `{name}`\n\n" if plain else f"### `{name}`\n\n```text\n{_signature(name, thing)}\n```\n\n"
    members = [] if plain or not inspect.isclass(thing) else list(_members(thing))
    return head + "\n".join([f"{inspect.getdoc(thing)}", *(["", *members] if members else [])]) + "\n"


def _errors() -> Iterator[str]:
    """Yields all other errors, each with its base classes."""
    for name in webgpu_ep.__all__:
        thing = getattr(webgpu_ep, name)
        if inspect.isclass(thing) and issubclass(thing, Exception) and name != "WgpuEpError":
            kinds = ", ".join(f"`{base.__name__}`" for base in thing.__bases__)
            yield f"* `{name}` ({kinds}): {' '.join(str(inspect.getdoc(thing)).split())}"


def document() -> str:
    """Returns the whole file. Raises ValueError if SECTIONS and the public names differ."""
    parts, listed = [HEAD], list(_errors())
    named = {name for names in SECTIONS.values() for name in names.split()}
    errors = {line.split("`")[1] for line in listed}
    interface = {*webgpu_ep.__all__, *(f"scale.{name}" for name in scale.__all__)}
    if named | errors != interface:
        raise ValueError(f"SECTIONS and the interface differ in {sorted((named | errors) ^ interface)}")
    for title, names in SECTIONS.items():
        parts += [f"## {title}\n", *map(_entry, names.split())]
    return "\n".join([*parts, *listed]) + "\n"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    TARGET.write_text(document())
