"""Makes the node for a compiled group: with captured runs, with sizes that data decides, or with repeated runs.

In: a group, or a tool around it, and the session's captures. Out: the object that ONNX Runtime calls. Invariant: the runs of a
tool are neither captured nor repeated, so the tool receives all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from ..errors import UnsupportedError
from .captures import CapturedNode
from .data_sized import SizedNode
from .node import ComputeInfo

if TYPE_CHECKING:
    from ..program.program import Program
    from .abi import Ort
    from .captures import Captures
    from .known_tensors import FusedNode
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
    """Returns the node of a group that is compiled to `program`.

    `captures`: those of the session, if it captures its runs. `optional` returns the inputs with a value in the model. Raises
    UnsupportedError if data decides sizes and the session captures.
    """
    if program.sized:
        if captures is not None:
            results = ", ".join(repr(program.values[output].name) for output, _ in program.sized)
            raise UnsupportedError(
                f"enableGraphCapture: the size of {results} depends on data, which graph capture does not support"
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
