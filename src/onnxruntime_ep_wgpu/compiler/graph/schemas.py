"""The version of an operator that a model uses: ONNX's schemas for the imported operator sets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from onnx import defs


def version_of(domain: str, opsets: Mapping[str, int]) -> tuple[str, int]:
    """Returns an operator's domain in canonical form, and the version of its operator set in a model."""
    if domain in ("", "ai.onnx"):
        return "", opsets.get("", opsets.get("ai.onnx", 1))
    return domain, opsets.get(domain, 1)


@cache
def schema_of(op_type: str, domain: str, opset: int) -> Any | None:
    """Returns ONNX's schema of an operator in a version of its operator set, or None if ONNX lacks the operator."""
    try:
        return defs.get_schema(op_type, opset, domain)
    except defs.SchemaError:
        return None
