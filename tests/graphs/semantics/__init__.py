"""What operators compute, on numpy arrays: floats in float64, integers in their own type.

Written from the operators' specification for what is short in numpy; the rest is onnx's reference evaluator, which works in
the type of what it is given. In: a node's operator, arrays (None where an optional input is missing) and attributes, with the
schema's defaults. Out: a list of arrays.

`registry` is the table; `pointwise`, `layout`, `indexing`, `reductions`, `normalise`, `products` and `quantise` fill it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper
from onnx.reference import ReferenceEvaluator

from . import indexing, layout, normalise, products, quantise
from .pointwise import BINARY, UNARY, cast
from .reductions import REDUCTIONS
from .registry import RULES

__all__ = ["BINARY", "POOLS", "REDUCTIONS", "RULES", "UNARY", "cast", "compute", "defaults", "indexing", "layout", "normalise",
           "products", "quantise"]  # fmt: skip
POOLS = frozenset({"MaxPool", "AveragePool", "LpPool"})


@cache
def defaults(op: str, domain: str, opset: int) -> dict[str, Any]:
    """Defaults of attributes that the schema states. Raises SchemaError for an operator that the version does not have."""
    schema = defs.get_schema(op, opset, domain)
    found = {
        k: helper.get_attribute_value(a.default_value) for k, a in schema.attributes.items() if a.default_value.type
    }
    return {k: v.decode() if isinstance(v, bytes) else v for k, v in found.items()}


def compute(op: str, arrays: list[Any], attributes: dict[str, Any], opset: int, outputs: int = 1) -> list[np.ndarray]:
    """The results of a node. Raises whatever numpy or the evaluator does for what makes no sense."""
    given = defaults(op, "", opset) | attributes
    if op in ("Cast", "CastLike"):
        raise AssertionError("casts are calculated where types are known")
    while arrays and arrays[-1] is None:
        arrays = arrays[:-1]
    try:
        if op in RULES:
            results = RULES[op](*arrays, **(given | {"op": op} if op in POOLS else given))
            return [np.asarray(r) for r in (results if isinstance(results, list) else [results])]
    except ValueError as error:
        if "reference evaluator" not in str(error):
            raise
    return _reference(op, arrays, attributes, opset, outputs)


def _reference(op: str, arrays: list[Any], attributes: dict[str, Any], opset: int, outputs: int) -> list[np.ndarray]:
    names = ["" if a is None else f"x{k}" for k, a in enumerate(arrays)]
    node = helper.make_node(op, names, [f"y{k}" for k in range(outputs)], **attributes)
    found = _evaluator(node.SerializeToString(), opset).run(
        None, {n: a for n, a in zip(names, arrays, strict=True) if n}
    )
    return [np.asarray(r) for r in found]


@cache
def _evaluator(node: bytes, opset: int) -> ReferenceEvaluator:
    return ReferenceEvaluator(onnx.NodeProto.FromString(node), opsets={"": opset})
