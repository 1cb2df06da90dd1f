"""Results of operators of ONNX's domain `ai.onnx.ml`: patterns of shapes (see `pattern`), and types that attributes decide.

ONNX infers nothing for half of them, and only a type for others. A pattern describes the result of ONNX Runtime's kernel, which
treats one row of numbers as a batch of one.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from .value_info import ValueInfo

_CLASSIFIER = "c->1:@class 1k:FLOAT; nc->n:@class nk:FLOAT"

PATTERNS = {
    "ArrayFeatureExtractor": "c->1k; ...bc->...bk",
    "Binarizer": "...->...",
    "CastMap": "->1k:@cast",
    "CategoryMapper": "...->...:@other",
    "DictVectorizer": "->1k:@element",
    "FeatureVectorizer": "c->1k:FLOAT; nc->nk:FLOAT",
    "Imputer": "...->...",
    "LabelEncoder": "...->...:@encoded",
    "LinearClassifier": _CLASSIFIER,
    "LinearRegressor": "c->1{targets}:FLOAT; nc->n{targets}:FLOAT",
    "Normalizer": "...->...:FLOAT",
    "OneHotEncoder": "...->...k:FLOAT",
    "SVMClassifier": _CLASSIFIER,
    "SVMRegressor": "c->11:FLOAT; nc->n1:FLOAT",
    "Scaler": "...->...:FLOAT",
    "TreeEnsemble": "nc->n{n_targets}",
    "TreeEnsembleClassifier": _CLASSIFIER,
    "TreeEnsembleRegressor": "c->1{n_targets}:FLOAT; nc->n{n_targets}:FLOAT",
}


def _class(node: ir.Node, _operands: Sequence[ValueInfo]) -> ir.DataType:
    texts = ("classlabels_strings", "classlabels_int64s")
    return ir.DataType.STRING if _given(node, texts[0]) and not _given(node, texts[1]) else ir.DataType.INT64


def _other(_node: ir.Node, operands: Sequence[ValueInfo]) -> ir.DataType | None:
    """Maps text to numbers, and numbers to text."""
    given = operands[0].dtype if operands else None
    return given and (ir.DataType.INT64 if given == ir.DataType.STRING else ir.DataType.STRING)


def _encoded(node: ir.Node, operands: Sequence[ValueInfo]) -> ir.DataType | None:
    if _given(node, "classes_strings"):  # version 1
        return _other(node, operands)
    tensor = node.attributes.get("values_tensor")
    if tensor is not None:
        return tensor.as_tensor().dtype
    for name, dtype in (("int64s", "INT64"), ("floats", "FLOAT"), ("strings", "STRING")):
        if _given(node, f"values_{name}"):
            return ir.DataType[dtype]
    return None


def _cast(node: ir.Node, _operands: Sequence[ValueInfo]) -> ir.DataType | None:
    to = node.attributes.get("cast_to")
    return {"TO_STRING": ir.DataType.STRING, "TO_INT64": ir.DataType.INT64}.get(
        to.as_string() if to is not None else "", ir.DataType.FLOAT
    )


def _element(_node: ir.Node, _operands: Sequence[ValueInfo]) -> None:
    """The result depends on a map, which is no tensor."""


def _given(node: ir.Node, name: str) -> bool:
    attribute = node.attributes.get(name)
    return attribute is not None and bool(attribute.value)


TYPES = {"cast": _cast, "class": _class, "element": _element, "encoded": _encoded, "other": _other}
