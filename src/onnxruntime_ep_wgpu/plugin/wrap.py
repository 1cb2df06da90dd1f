"""Tools between ONNX Runtime and the compiled groups of sessions: what they see of a run, and what runs instead.

In: a function from a group to what stands for it. Out: sessions that are made on this thread meanwhile run that.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx_ir as ir

    from .node import RunnableGroup

# An executable, and a way to read the graph it was compiled from, as long as the session is being made; what runs instead.
Wrap = Callable[[Any, "Callable[[], ir.Graph]"], "RunnableGroup"]

_thread = threading.local()


@contextlib.contextmanager
def wrapping(wrap: Wrap) -> Iterator[None]:
    """Groups that are compiled on this thread during the `with` run as what `wrap` makes of them."""
    outer = getattr(_thread, "wrap", None)
    try:
        _thread.wrap = wrap
        yield
    finally:
        _thread.wrap = outer


def tool_waits() -> bool:
    """Whether groups that are compiled on this thread now run as a tool makes them."""
    return getattr(_thread, "wrap", None) is not None


def tool_around(group: RunnableGroup, read_graph: Callable[[], ir.Graph]) -> RunnableGroup | None:
    """What runs instead of this group; None where the group itself does."""
    wrap: Wrap | None = getattr(_thread, "wrap", None)
    return None if wrap is None else wrap(group, read_graph)
