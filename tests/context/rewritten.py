"""Contexts that somebody else wrote: their digests are right, and what they say is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx

from onnxruntime_ep_wgpu.kept import entry
from onnxruntime_ep_wgpu.plugin.context.content import KIND


def rewritten(data: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """The bytes of a context whose content is changed."""
    found = entry.read(data, None)
    content = dict(found.content)
    change(content)
    return entry.written(KIND, replace(found, content=content, data=bytes(found.data)))


def rewrite(compiled: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes the only context of a compiled model, which lies beside it, and what the model says of it."""
    path = compiled.with_name(f"{compiled.stem}_0.wgpucontext")
    data = rewritten(path.read_bytes(), change)
    path.write_bytes(data)
    model = onnx.load(compiled)
    for it in model.graph.node[0].attribute:
        if it.name == "notes":
            it.s = entry.digest_of(data).encode()
    onnx.save(model, compiled)
