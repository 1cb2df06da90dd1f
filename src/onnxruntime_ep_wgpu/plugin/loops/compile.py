"""Compiles a Loop: the Program of its body, in a node that runs its iterations.

In: a node as ONNX Runtime shows it, its body, and the compiled Program of the body. Out: a `LoopNode`. Invariant: a claimed
Loop compiles, because its body was lowered for the decision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..abi import Ort
from ..assign.shown import ShownNode
from ..known_tensors import FusedNode
from ..store.programs import array_of
from .body import LoopBody
from .iterations import LoopStep
from .node import LoopNode

if TYPE_CHECKING:
    from ..cached_compiler import CompiledProgram
    from ..node import RunnableGroup


def compiled_loop(
    ort: Ort,
    node: ShownNode,
    body: LoopBody,
    answer: CompiledProgram,
    group: RunnableGroup,
    inputs: list[str],
    outputs: list[str],
) -> LoopNode:
    """Returns the only node of a graph, with its body compiled to `group`.

    `inputs` and `outputs` are the names of the node's inputs and outputs, in the order that ONNX Runtime uses to call it.
    """
    stored = answer.stored
    places = {value: k for k, value in enumerate(stored.program.outputs)}
    sized = {places[output]: places[shape] for output, shape in stored.program.sized}
    step = LoopStep(node.name, body, group, stored.inputs, stored.outputs, sized)
    read = tuple("" if it is None else it.name for it in node.inputs)
    constants = {
        it.name: array_of(it.constant).copy() for it in node.inputs if it is not None and it.constant is not None
    }
    # ONNX Runtime omits outputs that nothing reads.
    made = [k for k, it in enumerate(node.outputs) if it.name in outputs]
    signature = FusedNode(
        inputs=list(range(len(inputs))),
        outputs=[outputs.index(node.outputs[k].name) for k in made],
        input_names=inputs,
        output_names=outputs,
    )
    return LoopNode(ort, step, signature, read, constants, tuple(made))
