"""Compares random numbers between adapters: `python -m bench.drawn FILE`.

In: a file name. Out: if the file does not exist, it is written with the numbers of one seed, for each operator, type and run.
If it exists, a line per case with how many numbers of this adapter differ from the file's, and the largest difference.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import onnxruntime_ep_wgpu as wgpu

RUNS = 2
SHAPE = [100, 37]


def cases() -> Iterator[tuple[str, onnx.ModelProto, dict[str, np.ndarray]]]:
    rng = np.random.default_rng(0)
    for op in ("RandomUniform", "RandomNormal"):
        for kind in (TensorProto.FLOAT, TensorProto.FLOAT16):
            yield f"{op} {TensorProto.DataType.Name(kind)}", *_one(op, {}, kind, shape=SHAPE, dtype=kind, seed=7.0)
    p = rng.random(SHAPE, np.float32)
    yield "Bernoulli", *_one("Bernoulli", {"x": p}, TensorProto.FLOAT, seed=7.0)
    logits = rng.standard_normal((64, 50)).astype(np.float32)
    yield "Multinomial", *_one("Multinomial", {"x": logits}, TensorProto.INT32, sample_size=100, seed=7.0)
    dropped = {"x": p, "ratio": np.array(0.3, np.float32), "training": np.array(True)}
    yield "Dropout", *_one("Dropout", dropped, TensorProto.FLOAT, seed=7)


Feeds = dict[str, np.ndarray]


def _one(op: str, feeds: Feeds, kind: int, **attributes: Any) -> tuple[onnx.ModelProto, Feeds]:
    node = helper.make_node(op, list(feeds), ["y"], **attributes)
    types = {name: helper.np_dtype_to_tensor_dtype(it.dtype) for name, it in feeds.items()}
    inputs = [helper.make_tensor_value_info(name, types[name], it.shape) for name, it in feeds.items()]
    graph = helper.make_graph([node], "drawn", inputs, [helper.make_tensor_value_info("y", kind, None)])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]), feeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="numbers of an adapter, a .npz")
    path = parser.parse_args().file
    found: dict[str, Any] = {}
    for name, model, feeds in cases():
        session = wgpu.session(model.SerializeToString())
        found |= {f"{name}, run {run}": session.run(None, feeds)[0] for run in range(RUNS)}
    adapter = wgpu.devices()[0].ep_metadata["name"]
    if not path.exists():
        np.savez_compressed(path, **found, adapter=np.array(adapter))
        print(f"{path}: the numbers of {adapter}")
        return
    with np.load(path) as stored:
        print(f"{adapter} beside {stored['adapter']}")
        for name, mine in found.items():
            apart = np.abs(mine.astype(np.float64) - stored[name].astype(np.float64))
            print(f"{name:32} {np.count_nonzero(apart)} of {apart.size} differ, by {apart.max():.2e} at most")


if __name__ == "__main__":
    main()
