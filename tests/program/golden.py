"""Layouts as JSON, for every host to be compared with: `python -m tests.program.golden` writes `golden/*.json` again.

A file has a `program`, the JSON that begins a saved file (without weights and texts of kernels, which no layout depends on), and
`cases`: the values of its `symbols`, with the `layout` or the `error`, its kind, and `message`. In a layout `elements` and
`slot_of` are by value number; whole numbers may have more than 53 bits. Beside the Programs of `programs.py` there are
compiled ones, which are compiled only to write them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from onnxruntime_ep_wgpu.errors import InputError, LimitError
from onnxruntime_ep_wgpu.program.file import from_header, header
from onnxruntime_ep_wgpu.program.layout import Layout, Layouts
from onnxruntime_ep_wgpu.program.program import Program
from tests.program import programs

FOLDER = Path(__file__).parent / "golden"


def laid_out(layouts: Layouts, symbols: Sequence[int], like: Layout | None = None) -> dict[str, Any]:
    """One case, as JSON gives it back."""
    case: dict[str, Any] = {"symbols": symbols}
    try:
        case["layout"] = asdict(layouts.layout(symbols, like))
        del case["layout"]["symbols"], case["layout"]["basis"]
    except (InputError, LimitError) as error:
        case |= {"error": type(error).__name__, "message": str(error)}
    return as_json(case)


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def without_texts(program: Program) -> Program:
    kernels = tuple(replace(it, wgsl=("",) * len(it.wgsl)) for it in program.kernels)
    return replace(program, kernels=kernels, weights=())


def read(path: Path) -> tuple[Program, list[dict[str, Any]]]:
    """The program of a file and its cases. The weights are left out."""
    found = json.loads(path.read_text())
    return from_header(found["program"]), found["cases"]


def write(program: Program, cases: Sequence[Sequence[int]]) -> None:
    program = without_texts(program)
    layouts = Layouts(program)
    lines = [json.dumps(laid_out(layouts, symbols), separators=(",", ":")) for symbols in cases]
    text = json.dumps(header(program), separators=(",", ":"))
    path = FOLDER / f"{program.name.replace(' ', '_')}.json"
    path.write_text('{"program":' + text + ',\n"cases":[\n' + ",\n".join(lines) + "\n]}\n")


def compiled() -> Iterator[programs.Case]:
    """Models as the compiler writes them for browsers: attention and a convolution of any size, a recurrent layer."""
    import numpy as np
    from onnx.helper import make_node as node

    from onnxruntime_ep_wgpu.program.target import WEB_BASELINE
    from tests.support import compile_model, make_model

    floats = np.float32
    attention = [
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]), node("MatMul", ["q", "kt"], ["scores"]),
        node("Softmax", ["scores"], ["weights"]), node("MatMul", ["weights", "k"], ["y"]),
    ]  # fmt: skip
    shapes: dict[str, tuple[type, list[Any]]] = {"q": (floats, ["b", "s", 16]), "k": (floats, ["b", "t", 16])}
    model = make_model(attention, shapes)
    yield replace(compile_model(model, WEB_BASELINE), name="attention"), [(1, 1, 1), (2, 7, 9), (3, 64, 64), (0, 4, 4)]
    weights = {"w": np.ones((8, 3, 3, 3), floats), "size": np.array([0, 0, 4, 4])}
    layers = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]), node("Relu", ["c"], ["r"]),
        node("GlobalAveragePool", ["r"], ["y"]), node("Shape", ["r"], ["n"]),
    ]  # fmt: skip
    model = make_model(layers, {"x": (floats, ["b", 3, "h", "w"])}, {"w": weights["w"]})
    yield replace(compile_model(model, WEB_BASELINE), name="convolution"), [(1, 8, 8), (2, 31, 17), (1, 224, 224)]
    weights = {"w": np.ones((1, 64, 8), floats), "r": np.ones((1, 64, 16), floats)}
    model = make_model(
        [node("LSTM", ["x", "w", "r"], ["y", "h"], hidden_size=16)], {"x": (floats, ["s", 2, 8])}, weights
    )
    yield replace(compile_model(model, WEB_BASELINE), name="recurrent"), [(1,), (7,), (0,), (5000,)]


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    FOLDER.mkdir(exist_ok=True)
    for program, cases in [*programs.every(), *compiled()]:
        write(program, cases)


if __name__ == "__main__":
    main()
