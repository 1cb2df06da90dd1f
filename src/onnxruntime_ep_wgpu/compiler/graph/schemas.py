"""Which version of an operator a model means: ONNX's schemas, by the operator sets that the model imports."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from onnx import defs


def version_of(domain: str, opsets: Mapping[str, int]) -> tuple[str, int]:
    """An operator's domain under the one name that it has here, and the version of its operator set in a model."""
    if domain in ("", "ai.onnx"):
        return "", opsets.get("", opsets.get("ai.onnx", 1))
    return domain, opsets.get(domain, 1)


@cache
def schema_of(op_type: str, domain: str, opset: int) -> Any | None:
    """ONNX's schema of an operator in a version of its operator set; None for an operator that ONNX does not know."""
    try:
        return defs.get_schema(op_type, opset, domain)
    except defs.SchemaError:
        return None
