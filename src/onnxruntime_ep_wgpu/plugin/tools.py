"""Tools between ONNX Runtime and the compiled groups of sessions. They observe runs, or replace them.

In: a function from a group to its replacement. Out: sessions that are made on this thread in the meantime run the replacement.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx_ir as ir

    from .node import RunnableGroup

# Takes a group, and a function that reads its graph as long as the session is being made. Returns the replacement.
Wrap = Callable[[Any, "Callable[[], ir.Graph]"], "RunnableGroup"]

_thread = threading.local()


@contextlib.contextmanager
def wrapping(wrap: Wrap) -> Iterator[None]:
    """Replaces groups that are compiled on this thread during the `with` by the results of `wrap`."""
    outer = getattr(_thread, "wrap", None)
    try:
        _thread.wrap = wrap
        yield
    finally:
        _thread.wrap = outer


def tool_waits() -> bool:
    """Returns whether a tool replaces groups that are compiled on this thread now."""
    return getattr(_thread, "wrap", None) is not None


def tool_around(group: RunnableGroup, read_graph: Callable[[], ir.Graph]) -> RunnableGroup | None:
    """Returns the replacement of this group; None if there is none."""
    wrap: Wrap | None = getattr(_thread, "wrap", None)
    return None if wrap is None else wrap(group, read_graph)
