"""The results of a node that is not lowered, as far as they are known before a run.

In: a node, and the known types of its operands. Out: the known type and shape of each result. Invariant: a returned type or rank
holds in every run. For an unknown node all results are unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from ..schemas import version_of
from . import contrib, ml, pattern, standard
from .value_info import UNKNOWN, ValueInfo

_TABLES = {"ai.onnx.ml": ml, "com.microsoft": contrib}


def results(node: ir.Node, opsets: Mapping[str, int], operands: Sequence[ValueInfo]) -> list[ValueInfo]:
    """Returns one entry per output of the node. `operands` has one entry per input."""
    domain, _ = version_of(node.domain, opsets)
    table = _TABLES.get(domain)
    text = table.PATTERNS.get(node.op_type) if table is not None else None
    if table is None or text is None:
        return standard.results(node, opsets, operands)
    found = pattern.results(text, node, operands, table.TYPES)
    return [*found, *(UNKNOWN for _ in node.outputs)][: len(node.outputs)]
