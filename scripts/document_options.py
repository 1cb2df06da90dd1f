"""Writes docs/options.md from the table in options/table.py: `python scripts/document_options.py`."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from onnxruntime_ep_wgpu.options import OPTIONS, Option

TARGET = Path(__file__).parents[1] / "docs" / "options.md"
HEAD = """# Provider options

Written by `scripts/document_options.py` from the table in `options/table.py`; `wgpu-ep options`
prints keys, defaults and what they set, `wgpu-ep options KEY` describes one in full.
Options are text (numbers in base 10, flags 0 or 1). They are set in three places; later settings override
earlier ones:

1. for all sessions of an ONNX Runtime environment, as its configuration `ep_factory.WebGpuExecutionProvider.key`. Programs
   that make the environment with `CreateEnvWithOptions` can do that; ONNX Runtime's Python module offers no way to;
2. for all sessions of a Python program, with `onnxruntime_ep_wgpu.set_default_options(key=value)`;
3. for one session: `session(model, key=value)`, `add_provider_for_devices(devices, {"key": "value"})`, or a session
   configuration entry `ep.webgpuexecutionprovider.key` or `ep.wgpuexecutionprovider.key`.

An unknown key is an error, and so is a value outside its domain, or one key with different values under both prefixes. The
error names the key, the value, and the nearest key or the valid values. It reaches the program whatever the model, and no session
is made. A value that asks for something that does not happen is logged as a warning: "has no effect in this version".

| key | values | default | what it sets | effect in this version |
| --- | --- | --- | --- | --- |
"""


def _effect(option: Option) -> str:
    """Returns the effect, with one line per value if the text describes each value."""
    by_value = all(re.search(rf"(^|; |, ){re.escape(value)}[:,]", option.effect) for value in option.domain.split(", "))
    return option.effect.replace("; ", "<br>") if by_value else option.effect


def document() -> str:
    """Returns the whole file."""
    rows = [f"| `{o.key}` | {o.domain} | {o.default or 'empty'} | {o.help} | {_effect(o)} |" for o in OPTIONS.values()]
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    TARGET.write_text(document())
