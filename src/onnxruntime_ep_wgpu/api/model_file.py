"""Reads every kind of model file that ONNX Runtime opens as an onnx_ir model.

In: a file, ONNX or in ONNX Runtime's format (.ort), and sizes of free dimensions. Out: the model with these sizes, and its nodes in
topological order. Invariant: what onnx_ir cannot represent is converted or omitted, and is never an error. Sparse constants become
dense, calls of the model's functions are inlined, and map values, such as a classifier's probabilities, get no type.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ModelError, OptionError, ProgramError
from .external_data import check_external_data, with_real_paths
from .free_dimensions import free_in, set_sizes, sizes_of

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir


def plain_settings() -> Any:
    """Returns SessionOptions with only errors logged, without graph optimisation, and with exact int8 products."""
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.log_severity_level = 3
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    # Processors without VNNI add two int8 products in 16 bits, which saturates.
    settings.add_session_config_entry("session.x64quantprecision", "1")
    return settings


def read_model(source: Path, overrides: Mapping[str, int] | None = None) -> ir.Model:
    """Reads a model. `overrides` fixes free dimensions of inputs, as in `session(free_dimensions=...)`.

    Raises OptionError for an override without effect, ProgramError for a file that is not a model, and ModelError if external
    data is missing or truncated."""
    if source.suffix != ".ort":
        return _read(source, overrides or {})
    import onnx_ir as ir
    import onnxruntime as ort

    with tempfile.TemporaryDirectory() as folder:
        settings = plain_settings()
        settings.optimized_model_filepath = f"{folder}/model.onnx"
        settings.add_session_config_entry("session.save_model_format", "ONNX")
        ort.InferenceSession(source, settings, providers=["CPUExecutionProvider"])
        model = _read(Path(folder) / "model.onnx", overrides or {})
        ir.external_data.load_to_model(model)
        return model


def _read(source: Path, overrides: Mapping[str, int]) -> ir.Model:
    import onnx
    import onnx_ir as ir
    from onnx_ir.passes.common import InlinePass

    try:
        structure = onnx.load(source, load_external_data=False)
        check_external_data(source, structure)
        with_real_paths(structure, source)
        _convert_unreadable(structure, source.parent)
        set_sizes(structure, sizes_of(free_in(structure), overrides, "overrides"))
        model = ir.from_proto(structure)
        if model.functions:
            InlinePass()(model)
        model.graph.sort()  # tools append nodes, and ONNX Runtime accepts any order
    except (OptionError, ModelError):
        raise
    except Exception as error:
        raise ProgramError(f"{source} cannot be read as an ONNX model: {root_cause_of(error)}") from error
    if not model.opset_imports:  # an empty file is an empty protobuf
        raise ProgramError(f"{source} is not an ONNX model: it names no version of the operators")
    return model


def root_cause_of(error: BaseException) -> str:
    """Returns the text of the root cause. onnx_ir wraps it in one error per step."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{error}"


def _convert_unreadable(structure: onnx.ModelProto, beside: Path) -> None:
    """Converts the parts that onnx_ir cannot read."""
    pending: list[tuple[onnx.GraphProto | None, Iterable[onnx.NodeProto]]] = [(structure.graph, structure.graph.node)]
    pending += [(None, function.node) for function in structure.functions]
    while pending:
        graph, nodes = pending.pop()
        if graph is not None:
            graph.initializer.extend(_dense(it, beside) for it in graph.sparse_initializer)
            del graph.sparse_initializer[:]
            for value in (*graph.input, *graph.output, *graph.value_info):
                if _has_map(value.type):
                    value.ClearField("type")
        for node in nodes:
            for attribute in node.attribute:
                pending += [(body, body.node) for body in (attribute.g, *attribute.graphs) if body.node]
                if node.op_type == "Constant" and attribute.name == "sparse_value":
                    dense = _dense(attribute.sparse_tensor, beside)
                    attribute.Clear()
                    attribute.name, attribute.type = "value", attribute.TENSOR
                    attribute.t.CopyFrom(dense)


def _has_map(kind: onnx.TypeProto) -> bool:
    """Returns whether a type is a map or contains one."""
    if kind.HasField("sequence_type"):
        return _has_map(kind.sequence_type.elem_type)
    if kind.HasField("optional_type"):
        return _has_map(kind.optional_type.elem_type)
    return bool(kind.HasField("map_type"))


def _dense(sparse: onnx.SparseTensorProto, beside: Path) -> onnx.TensorProto:
    """Returns the dense form of a sparse tensor. Its indices are flat, or one row of indices per element."""
    from onnx import numpy_helper

    values = numpy_helper.to_array(sparse.values, str(beside))
    indices = numpy_helper.to_array(sparse.indices, str(beside))
    array = np.zeros(tuple(sparse.dims), values.dtype)
    array[np.unravel_index(indices, array.shape) if indices.ndim == 1 else tuple(indices.T)] = values
    return numpy_helper.from_array(array, sparse.values.name)
