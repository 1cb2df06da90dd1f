"""What becomes of hostile files: read, and laid out for several sizes, as whoever runs them does before a device is asked.

In: names of cases. Out: per case `read`, the type of the error that says what is wrong, or `defect:TYPE` for an error that nobody
meant to raise. Nothing is run on a device: shaders are data here.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.api.web_files import read_flows
from onnxruntime_ep_wgpu.compiler.tune import check_choices
from onnxruntime_ep_wgpu.errors import InternalError, OptionError, ProgramError, WgpuEpError
from onnxruntime_ep_wgpu.program.file import from_header, header, load
from onnxruntime_ep_wgpu.program.flow import Flow, leaves
from onnxruntime_ep_wgpu.program.layout import Layouts
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.program.target import WEB_BASELINE
from onnxruntime_ep_wgpu.program.tuning import read_choices
from onnxruntime_ep_wgpu.runtime.inputs import InputChecks
from tests.support import compile_model, make_model
from tests.web import node as web

from . import hostile

SIZES = (1, 3, 0, 64, 2**31, 2**62)
MOST_WGSL = 1 << 22  # characters that the kernels of a small model have with any choice
COMPILED = 20  # of tables that are read, one of so many chooses kernels


def read(name: str, folder: Path) -> str:
    """The outcome of a case, in Python."""
    try:
        read_case(name, folder)
    except InternalError as error:
        return f"defect: InternalError: {error}"[:300]
    except WgpuEpError as error:
        return type(error).__name__
    except Exception as error:
        return f"defect: {type(error).__name__}: {error}"[:300]
    return "read"


def read_case(name: str, folder: Path) -> None:
    """Does with a file what whoever was given it does. Raises what that raises."""
    data, (kind, number) = hostile.make(name), name.split(":")
    path = folder / "case"
    path.write_bytes(data)
    if kind == "program":
        laid_out(load(path))
    elif kind == "export":
        for program in exported(data, folder / "export"):
            for it in leaves(program):
                laid_out(it)
    else:
        choose(path, compiled=int(number) % COMPILED == 0)


def laid_out(program: Program) -> None:
    """Everything that a host does with a Program before it asks its device. Raises what the first of all sizes is refused with."""
    InputChecks(program)
    for weight in program.weights:
        np.asarray(weight).reshape(-1).view(np.uint8).sum()
    assert replace(from_header(json.loads(json.dumps(header(program)))), weights=program.weights) == program
    layouts = Layouts(program)
    refused: WgpuEpError | None = None
    for size in SIZES:
        try:
            layouts.layout([size] * len(program.symbols))
        except WgpuEpError as error:
            refused = refused or error
    if refused is not None:
        raise refused


def exported(data: bytes, folder: Path) -> list[Program | Flow]:
    """The Programs and Flows of an export in one file, unpacked as its manifest says."""
    folder.mkdir(exist_ok=True)
    for it in folder.iterdir():
        it.unlink()
    if data[:8] != b"wgpupack" or len(data) < 48:
        raise ProgramError("no export")
    (length,) = struct.unpack_from("<I", data, 12)
    text = data[48 : 48 + length]
    (folder / "manifest.json").write_bytes(text)
    at = 48 + length
    try:
        manifest = json.loads(text)
        for entry in (*manifest["programs"], *manifest["weights"]["chunks"]):
            at += -at % 16
            if entry["file"] and not set(entry["file"]) & set("/\0") and len(entry["file"]) < 100:
                (folder / entry["file"]).write_bytes(data[at : at + entry["bytes"]])
            at += entry["bytes"]
    except (ValueError, KeyError, TypeError, OSError, OverflowError, RecursionError):
        pass  # so it is without these files
    return read_flows(folder)


def choose(path: Path, compiled: bool) -> None:
    """Reads a table, and compiles small models with it."""
    try:
        _, choices = read_choices(path)
        check_choices(choices)
    except ValueError as error:
        raise OptionError(str(error)) from error
    if compiled:
        for model in models():
            program = compile_model(model, replace(WEB_BASELINE, tuning=choices))
            assert sum(len(text) for it in program.kernels for text in it.wgsl) < MOST_WGSL


@cache
def models() -> tuple[onnx.ModelProto, ...]:
    """Small models that between them have most kernels that can be chosen for."""
    f = np.float32
    ones = {"w": np.ones((64, 64), f), "v": np.ones((8, 8, 3, 3), f), "d": np.ones((8, 1, 3, 3), f)}
    rows = [
        node("MatMul", ["x", "w"], ["m"]),
        node("Softmax", ["m"], ["s"]),
        node("Transpose", ["s"], ["t"]),
        node("Relu", ["t"], ["y"]),
    ]
    image = [
        node("Conv", ["x", "v"], ["c"], pads=[1] * 4), node("Conv", ["c", "d"], ["e"], pads=[1] * 4, group=8),
        node("GlobalAveragePool", ["e"], ["y"]),
    ]  # fmt: skip
    heads = [
        node("MatMul", ["q", "k"], ["p"]), node("Softmax", ["p"], ["s"]), node("MatMul", ["s", "v"], ["y"]),
    ]  # fmt: skip
    shape = ["b", 2, "n", 16]
    return (
        make_model(rows, {"x": (f, ["n", 64])}, {"w": ones["w"]}),
        make_model(rows, {"x": (f, [1, 64])}, {"w": ones["w"]}),
        make_model(image, {"x": (f, ["n", 8, 32, 32])}, {"v": ones["v"], "d": ones["d"]}),
        make_model(heads, {"q": (f, shape), "k": (f, ["b", 2, 16, "n"]), "v": (f, shape)}),
    )


# ---- in the web library


def read_in_node(names: Sequence[str], folder: Path) -> dict[str, str]:
    """The outcomes of cases in the web library. One that ends Node is `defect`, with how."""
    return bytes_in_node({it: hostile.make(it) for it in names}, folder)


def bytes_in_node(files: Mapping[str, bytes], folder: Path) -> dict[str, str]:
    """The same of the bytes of files, by name."""
    lines = folder / "lines"
    lines.write_bytes(b"\n".join(f"{it} ".encode() + base64.b64encode(data) for it, data in files.items()))
    done = web.node("--max-old-space-size=2048", "test/read_files.mjs", lines)
    outcomes: dict[str, str] = {}
    for row in map(json.loads, done.stdout.splitlines()):
        outcomes[row.get("name") or row["start"]] = row.get("outcome", f"defect: {done.stderr[-300:]}")
    return {it: outcomes.get(it, f"defect: it did not begin: {done.stderr[-300:]}") for it in files}
