"""The node around a graph that is a body: its name, and whether nodes of the body may run here.

In: an OrtGraph. Out: its `Enclosing`. Invariant: only a body of If, Loop or Scan is free to run here. These copy what a body makes
to where it is read, in the bodies of other operators too. ONNX Runtime's kernels of others read it as host memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..abi import Ort, text

_COPYING = frozenset({("", "If"), ("", "Loop"), ("", "Scan")})
# A function: ONNX Runtime asks about its nodes again when they stand in place of it, and could not inline groups.
_FUNCTIONS = frozenset({("", "SequenceMap")})


@dataclass(frozen=True)
class Enclosing:
    """`name`: that of the node whose body the graph is, "" for the main graph. `refusal`: why nothing in the graph may run here."""

    name: str = ""
    is_body: bool = False
    refusal: str | None = None


def enclosing(ort: Ort, graph: Any) -> Enclosing:
    """What is around an OrtGraph."""
    api = ort.api

    def word(function: Any, node: Any) -> str:
        return text(ort.get(function, node, "const char *"))

    parent = ort.get(api.Graph_GetParentNode, graph, "const OrtNode *")
    if not parent:
        return Enclosing()
    domain, operator = word(api.Node_GetDomain, parent), word(api.Node_GetOperatorType, parent)
    refusal = None
    if (domain, operator) in _FUNCTIONS:
        refusal = f"ONNX Runtime replaces the {operator} around it by a Loop"
    elif (domain, operator) not in _COPYING:
        refusal = f"the kernel of the {operator} around it reads what its bodies make as host memory"
    return Enclosing(word(api.Node_GetName, parent), True, refusal)
