"""Cases of suites that are not in the repository, read from a folder of the user's.

In: a folder with cases of either form, at any depth. Out: as tests.conformance.cases, an Info per case and its Data.

* ONNX: `NAME/model.onnx` with `test_data_set_N/input_M.pb` and `output_M.pb`, one case per set. Models of opsets that
  onnxruntime has no kernels for run converted.
* onnxruntime-web: `NAME.jsonc`, a list of operators with attributes, each with cases of inputs and outputs. Without
  `inputShapeDefinitions` a model says the shapes of its inputs.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, version_converter

from .cases import NEWEST_IR, Data, Info, is_random, runnable, types_of

ONNX_TOLERANCE, WEB_TOLERANCE = (1e-3, 1e-7), (1e-5, 1e-3)
"""Relative and absolute, of each suite's own runner for its float32."""

OLDEST_OPSET, WEB_OPSET = 7, 17
"""The oldest that onnxruntime has kernels for: older models run converted to it, as its message advises. That of an operator
of onnxruntime-web that names none, unless its attributes are those of the oldest."""

COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
LAST_COMMA = re.compile(r",(\s*[\]}])")


@functools.cache
def index(folder: str) -> dict[str, Info]:
    """All cases of the folder by name, in the order of their files."""
    return {name: _info(name, _data(place)) for name, place in _places(Path(folder))}


def read(folder: str, name: str) -> Data:
    return _data(_place(Path(folder), name))


Place = tuple[Path, int, int]
"""A set of a model's folder as (folder, set, 0); a case of a .jsonc as (file, operator, case)."""


def _places(folder: Path) -> Iterator[tuple[str, Place]]:
    if not folder.is_dir():
        raise SystemExit(f"{folder} is no folder. Name the folder with the suite's cases.")
    for path in sorted(folder.rglob("*")):
        if path.name == "model.onnx":
            for number in range(len(_sets(path.parent))):
                yield f"{path.parent.relative_to(folder)}:{number}:0", (path.parent, number, 0)
        elif path.suffix == ".jsonc" and not path.name.startswith("_"):
            for operator, entry in enumerate(_entries(path)):
                for case in range(len(entry["cases"])):
                    yield f"{path.relative_to(folder)}:{operator}:{case}", (path, operator, case)


def _place(folder: Path, name: str) -> Place:
    path, first, second = name.rsplit(":", 2)
    return folder / path, int(first), int(second)


def _data(place: Place) -> Data:
    path, first, second = place
    return _of_web(path, first, second) if path.suffix == ".jsonc" else _of_onnx(path, first)


def _info(name: str, data: Data) -> Info:
    model = onnx.load_model_from_string(data.model)
    nodes = tuple(sorted({node.op_type for node in model.graph.node}))
    opset = max((it.version for it in model.opset_import if not it.domain), default=0)
    operator = nodes[0] if len(nodes) == 1 else "several operators"
    return Info(name, operator, False, opset, False, nodes, types_of(model))


def _sets(folder: Path) -> list[Path]:
    return sorted(folder.glob("test_data_set_*"))


def _of_onnx(folder: Path, number: int) -> Data:
    model, opset, _ = runnable(onnx.load(folder / "model.onnx"))
    if 0 < opset < OLDEST_OPSET:
        model = _converted(model)
    data = _sets(folder)[number]
    inputs = _values(data, "input", model.graph.input)
    outputs = _values(data, "output", model.graph.output)
    random = is_random(folder.name, [node.op_type for node in model.graph.node])
    return Data(model.SerializeToString(), inputs, outputs, *ONNX_TOLERANCE, random)


def _converted(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in the oldest opset that runs, or as it is where onnx cannot convert it."""
    try:
        return version_converter.convert_version(model, OLDEST_OPSET)
    except (RuntimeError, version_converter.ConvertError):
        return model


def _values(folder: Path, kind: str, declared: Sequence[onnx.ValueInfoProto]) -> tuple[Any, ...]:
    found: list[Any] = []
    for number, value in enumerate(declared):
        path = folder / f"{kind}_{number}.pb"
        if path.exists():
            message = _MESSAGES[value.type.WhichOneof("value") or "tensor_type"]()
            message.ParseFromString(path.read_bytes())
            found.append(message)
    return tuple(found)


_MESSAGES: dict[str, Any] = {
    "tensor_type": onnx.TensorProto,
    "sequence_type": onnx.SequenceProto,
    "optional_type": onnx.OptionalProto,
}


@functools.cache
def _entries(path: Path) -> list[dict[str, Any]]:
    """JSON with comments and commas behind the last element."""
    text = COMMENT.sub(lambda found: found[1] or "", path.read_text())
    entries: list[dict[str, Any]] = json.loads(LAST_COMMA.sub(r"\1", text))
    return entries


def _of_web(path: Path, operator: int, number: int) -> Data:
    entry = _entries(path)[operator]
    case = entry["cases"][number]
    opset = entry.get("opset") or {"domain": "", "version": WEB_OPSET}
    given = [(f"input_{n}", it) for n, it in enumerate(case["inputs"])]
    made = [(f"output_{n}", it) for n, it in enumerate(case["outputs"])]
    node = helper.make_node(
        entry["operator"],
        [name if _there(it) else "" for name, it in given],
        [name if _there(it) else "" for name, it in made],
        domain=opset["domain"],
        **{it["name"]: _attribute(it) for it in entry.get("attributes", ())},
    )
    said = entry.get("inputShapeDefinitions")
    graph = helper.make_graph(
        [node],
        "case",
        [_declared(name, it, _shape(said, n, it)) for n, (name, it) in enumerate(given) if _there(it)],
        [_declared(name, it, None) for name, it in made if _there(it)],
    )
    imports = {"": WEB_OPSET} | {opset["domain"]: opset["version"]}
    model = _model(graph, imports)
    if "opset" not in entry and not _valid(node):
        model = _model(graph, {"": OLDEST_OPSET})
    arrays = [tuple(_array(it) for _, it in part if _there(it)) for part in (given, made)]
    return Data(model.SerializeToString(), arrays[0], arrays[1], *WEB_TOLERANCE, is_random("", [entry["operator"]]))


def _model(graph: onnx.GraphProto, imports: dict[str, int]) -> onnx.ModelProto:
    opsets = [helper.make_opsetid(*it) for it in imports.items()]
    return helper.make_model(graph, ir_version=NEWEST_IR, opset_imports=opsets)


def _valid(node: onnx.NodeProto) -> bool:
    """Whether the newer opset has the operator with these attributes."""
    try:
        schema = onnx.defs.get_schema(node.op_type, WEB_OPSET)
    except onnx.defs.SchemaError:
        return False
    return not schema.deprecated and all(it.name in schema.attributes for it in node.attribute)


def _there(tensor: dict[str, Any]) -> bool:
    """An optional input or output that a case leaves out has no data."""
    return tensor.get("data") is not None


def _attribute(said: dict[str, Any]) -> Any:
    kind, data = said["type"], said["data"]
    return [float(it) for it in data] if kind == "floats" else float(data) if kind == "float" else data


def _shape(said: Any, number: int, tensor: dict[str, Any]) -> list[Any]:
    if said == "rankOnly":
        return [f"input_{number}_{axis}" for axis in range(len(tensor["dims"]))]
    if isinstance(said, list) and said[number] is not None:
        return list(said[number])
    return list(tensor["dims"])


def _declared(name: str, tensor: dict[str, Any], shape: Sequence[Any] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(_type(tensor)), shape)


def _type(tensor: dict[str, Any]) -> np.dtype:
    """`int4x2` is int4, given by its bytes, which have two elements each."""
    name = tensor["type"].removesuffix("x2")
    return np.dtype({"int4": ml_dtypes.int4, "uint4": ml_dtypes.uint4}.get(name, name))


def _array(tensor: dict[str, Any]) -> np.ndarray:
    values = [float(it) if isinstance(it, str) else it for it in tensor["data"]]
    if tensor["type"].endswith("x2"):
        values = [(byte >> shift) & 15 for byte in values for shift in (0, 4)][: int(np.prod(tensor["dims"]))]
    return np.array(values).astype(_type(tensor)).reshape(tensor["dims"])
