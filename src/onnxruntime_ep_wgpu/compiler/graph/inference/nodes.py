"""What a node makes that is not lowered, as far as it is known before a run.

In: a node, and what is known of its operands. Out: what is known of each result. Invariant: what is said of a type or a rank is
true of every run; a node of which nothing is known says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from ..schemas import version_of
from . import contrib, ml, pattern, standard
from .value_info import UNKNOWN, ValueInfo

_TABLES = {"ai.onnx.ml": ml, "com.microsoft": contrib}


def results(node: ir.Node, opsets: Mapping[str, int], operands: Sequence[ValueInfo]) -> list[ValueInfo]:
    """One for each output of the node. `operands` are as many as it has inputs."""
    domain, _ = version_of(node.domain, opsets)
    table = _TABLES.get(domain)
    text = table.PATTERNS.get(node.op_type) if table is not None else None
    if table is None or text is None:
        return standard.results(node, opsets, operands)
    found = pattern.results(text, node, operands, table.TYPES)
    return [*found, *(UNKNOWN for _ in node.outputs)][: len(node.outputs)]
