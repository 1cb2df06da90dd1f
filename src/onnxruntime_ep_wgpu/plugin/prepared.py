"""What changes a graph for the compiler before it is lowered, beyond what ONNX Runtime shows.

In: a graph as the compiler reads it. Out: the same one, changed. Invariant: equal graphs are changed alike, so that the key of what
ONNX Runtime shows is that of what is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

Prepare = Callable[["ir.Graph"], None]


def as_it_is(_graph: ir.Graph) -> None:
    """Changes nothing."""
