"""The node that stands for a compiled group: one that is captured, one whose sizes data decides, or one whose runs are repeated.

In: a group, or a tool around it, and what the session does with runs. Out: what ONNX Runtime calls. Invariant: the runs of a tool
are neither captured nor repeated, so that it sees all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from ..errors import UnsupportedError
from .captures import CapturedNode
from .node import ComputeInfo
from .sized import SizedNode

if TYPE_CHECKING:
    from ..program.program import Program
    from .abi import Ort
    from .captures import Captures
    from .known import FusedNode
    from .node import RunnableGroup


def node_of(
    ort: Ort,
    group: RunnableGroup,
    tool: RunnableGroup | None,
    signature: FusedNode,
    program: Program,
    captures: Captures | None,
    optional: Callable[[], Collection[str]],
    in_a_body: bool,
) -> ComputeInfo:
    """The node of a group that is compiled to `program`. `captures` are those of the session, if it captures its runs, and
    `optional` gives the inputs for which the model has a value. Raises UnsupportedError for a session that captures."""
    if program.sized:
        if captures is not None:
            results = ", ".join(repr(program.values[output].name) for output, _ in program.sized)
            raise UnsupportedError(
                f"enableGraphCapture: data decides the size of {results}, which a captured run cannot follow"
            )
        return SizedNode(ort, tool or group, signature, program)
    if tool is not None:
        return ComputeInfo(ort, tool, signature)
    captured = None
    if captures is not None:
        defaults = optional()
        names = [signature.input_names[place] for place in signature.inputs]
        captured = CapturedNode(captures, frozenset(k for k, name in enumerate(names) if name in defaults))
    info = ComputeInfo(ort, group, signature, captured=captured)
    info.repeat_in_c(in_a_body)
    return info
