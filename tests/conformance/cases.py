"""The 1,884 node cases that the package onnx generates, read once and cached one file per case.

Making them takes five seconds, which every worker process would pay again. Some cases are of an opset that the
installed onnxruntime refuses; where the same node is valid in the newest opset it takes, the case is run as that.
"""

from __future__ import annotations

import functools
import json
import os
import pickle
import warnings
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

CACHE = Path(__file__).parents[2] / ".cache" / "conformance" / onnx.__version__
NEWEST_OPSET, NEWEST_IR = 26, 13
"""The newest that onnxruntime 1.31 takes."""

# Results that the suite does not fix: only their types and shapes are compared.
RANDOM = ("Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial")


@dataclass(frozen=True)
class Info:
    """What the index says about a case.

    `operator` is what the case is about and `nodes` the operators in its graph: they differ where the operator was
    `expanded` to its function body. `restamped`: its opset is newer than onnxruntime takes, it runs as an older one.
    """

    name: str
    operator: str
    expanded: bool
    opset: int
    restamped: bool
    nodes: tuple[str, ...]
    types: tuple[str, ...]


@dataclass(frozen=True)
class Data:
    """One case: a serialised model, inputs in graph order, expected outputs, the suite's tolerances."""

    model: bytes
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    rtol: float
    atol: float
    random: bool


@functools.cache
def index() -> dict[str, Info]:
    """All cases by name, in the suite's order."""
    path = CACHE / "index.json"
    if not path.exists():
        _write()
    rows = json.loads(path.read_text())
    return {r["name"]: Info(**r | {"nodes": tuple(r["nodes"]), "types": tuple(r["types"])}) for r in rows}


def read(name: str) -> Data:
    index()  # which makes the cache
    data = pickle.loads((CACHE / f"{name}.pickle").read_bytes())
    assert isinstance(data, Data)
    return data


def _write() -> None:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        suite = load_model_tests(kind="node")
    operators = {case.name: case.model.graph.node[0].op_type for case in suite if case.model}
    CACHE.mkdir(parents=True, exist_ok=True)
    rows = []
    for case in suite:
        assert case.model and case.data_sets, case.name
        model, opset, restamped = runnable(case.model)
        whole = case.name.split("_expanded")[0]
        info = Info(
            name=case.name,
            operator=operators[whole],
            expanded=whole != case.name,
            opset=opset,
            restamped=restamped,
            nodes=tuple(sorted({n.op_type for n in model.graph.node})),
            types=types_of(model),
        )
        rows.append(asdict(info))
        inputs, outputs = case.data_sets[0]
        random = is_random(info.name, info.nodes)
        data = Data(model.SerializeToString(), tuple(inputs), tuple(outputs), case.rtol, case.atol, random)
        (CACHE / f"{case.name}.pickle").write_bytes(pickle.dumps(data))
    partial = CACHE / f"index.{os.getpid()}.part"
    partial.write_text(json.dumps(rows))
    partial.replace(CACHE / "index.json")


def is_random(name: str, nodes: Iterable[str]) -> bool:
    """Whether the suite does not fix the results of the case `name` with these operators."""
    return any(it in RANDOM for it in nodes) or _random_dropout(name)


def _random_dropout(name: str) -> bool:
    """Training dropout draws numbers, except with ratio 0."""
    return name.startswith("test_training_dropout") and "zero_ratio" not in name


def runnable(model: onnx.ModelProto) -> tuple[onnx.ModelProto, int, bool]:
    """The model, its opset, and whether it was stamped with NEWEST_OPSET because onnxruntime refuses its own."""
    opset = next((o.version for o in model.opset_import if o.domain == ""), 0)
    if opset <= NEWEST_OPSET:
        return model, opset, False
    older = onnx.ModelProto()
    older.CopyFrom(model)
    older.ir_version = min(model.ir_version, NEWEST_IR)
    for entry in older.opset_import:
        if entry.domain == "":
            entry.version = NEWEST_OPSET
    try:
        onnx.checker.check_model(older, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return model, opset, False
    return older, opset, True


def types_of(model: onnx.ModelProto) -> tuple[str, ...]:
    """Element types of the graph's inputs and outputs, `float16`; `sequence` and `optional` for what is no tensor."""
    found = set()
    for value in (*model.graph.input, *model.graph.output):
        kind = value.type.WhichOneof("value")
        if kind == "tensor_type":
            found.add(onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower())
        else:
            found.add(kind.removesuffix("_type"))
    return tuple(sorted(found))
