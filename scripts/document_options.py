"""Writes docs/options.md from the table in options.py: `python scripts/document_options.py`."""

from __future__ import annotations

from pathlib import Path

from onnxruntime_ep_wgpu.options import OPTIONS

TARGET = Path(__file__).parents[1] / "docs" / "options.md"
HEAD = """# Provider options

Written by `scripts/document_options.py` from the table in `options.py`, which also parses and checks them. Options are
given to `session(model, key=value)`, to `add_provider_for_devices(devices, {"key": "value"})`, or as session
configuration `ep.webgpuexecutionprovider.key`. An unknown key or a value outside its domain is an error that names the
key, the value and the valid ones. An option whose effect is *none yet* is checked, and a warning says that it does nothing.

| key | values | default | what it sets | effect in this version |
| --- | --- | --- | --- | --- |
"""


def document() -> str:
    """The whole file."""
    rows = [f"| `{o.key}` | {o.domain} | {o.default or 'empty'} | {o.help} | {o.effect} |" for o in OPTIONS.values()]
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    TARGET.write_text(document())
