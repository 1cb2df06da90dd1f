"""Changes that a graph needs before it is lowered, in addition to what ONNX Runtime shows.

In: a graph in the compiler's form. Out: the same graph, changed. Invariant: equal graphs are changed equally, so the key of the
graph from ONNX Runtime identifies the compiled graph too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

Prepare = Callable[["ir.Graph"], None]


def unchanged(_graph: ir.Graph) -> None:
    """Changes nothing."""
