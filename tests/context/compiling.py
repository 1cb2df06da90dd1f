"""Compiles models to such with contexts, and opens these; models with weights large enough to be referred to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.api.reports import state_of
from tests.plugin import models

F = np.float32
WIDE = 300  # columns of a weight of 9,600 bytes


def wide(seed: int = 0) -> bytes:
    """y = x @ w + b, with a weight that a context refers to and a bias that it copies."""
    rng = np.random.default_rng(seed)
    constants = [("w", rng.standard_normal((8, WIDE)).astype(F)), ("b", rng.standard_normal(WIDE).astype(F))]
    nodes = [models.node("MatMul", ["x", "w"], ["m"], "product"), models.node("Add", ["m", "b"], ["y"], "sum")]
    return models.model(nodes, [("x", models.FLOAT, ["n", 8])], [("y", models.FLOAT, ["n", WIDE])], constants)


def wide_reference(x: np.ndarray, seed: int = 0) -> np.ndarray:
    w, b = map(numpy_helper.to_array, onnx.load_from_string(wide(seed)).graph.initializer)
    return x @ w + b


def settings(**entries: object) -> ort.SessionOptions:
    """SessionOptions with `ep.context_` entries; `shared` is `ep.share_ep_contexts`."""
    made = ort.SessionOptions()
    made.log_severity_level = 4
    for key, value in entries.items():
        made.add_session_config_entry("ep.share_ep_contexts" if key == "shared" else f"ep.context_{key}", str(value))
    return made


def compile_model(
    model: bytes | Path, output: Path | None = None, *, embedded: bool = False, **options: Any
) -> ort.InferenceSession:
    """Writes the compiled model, and gives the session that did."""
    entries: dict[str, object] = {"enable": 1, "embed_mode": int(embedded)}
    if output is not None:
        entries["file_path"] = output
    return webgpu_ep.session(model, sess_options=settings(**entries), **options)


def compiled_beside(folder: Path, model: bytes, *, embedded: bool = False, **options: Any) -> Path:
    """The compiled model of one that is written into a folder: `model.onnx` and `model_ctx.onnx`."""
    path = folder / "model.onnx"
    path.write_bytes(model)
    compile_model(path, embedded=embedded, **options)
    return folder / "model_ctx.onnx"


def what_was_compiled(session: Any) -> list[str]:
    """What of a session the compiler made: "" for a decision about a graph, else the name of a group."""
    return state_of(session)._compiler.compiled


def contexts_in(model: Path | bytes) -> list[onnx.NodeProto]:
    proto = onnx.load_from_string(model) if isinstance(model, bytes) else onnx.load(model, load_external_data=False)
    return [it for it in proto.graph.node if it.op_type == "EPContext"]


def attributes_in(node: onnx.NodeProto) -> dict[str, Any]:
    return {it.name: helper.get_attribute_value(it) for it in node.attribute}


def touch(path: Path) -> None:
    """Gives a file another time, as a copy has."""
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 100))
