"""Decides whether nodes of a body may run here.

Invariant: nodes run here only in a body of If, Loop or Scan. The kernels of these operators copy the results of a body to the
memory where they are read, even inside bodies of other operators. ONNX Runtime's kernels of other operators read them as host
memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..._ort import ffi
from ..abi import Ort, text
from ..memory.descriptors import BITS, COMPLEX
from .outcome import Elsewhere, OwnKernel
from .shown import Extent, ShownNode

BYTE, WORD = 8, 32  # bits

# Operators that ONNX Runtime has kernels of for accelerators, with copies between a node and its bodies. The number counts the
# leading inputs that the kernel reads on the host: conditions and trip counts.
_KERNELS = {("", "If"): 1, ("", "Loop"): 2, ("", "Scan"): 0}
# Functions. ONNX Runtime replaces one by its nodes and then calls GetCapability again for them. It could not inline groups.
_FUNCTIONS = frozenset({("", "SequenceMap")})


def refusal_within(parent: ShownNode) -> str | None:
    """Returns why no node in the bodies of a node may run here, or None."""
    operator = (parent.domain, parent.op_type)
    if operator in _FUNCTIONS:
        return f"ONNX Runtime replaces the {parent.op_type} around it by a Loop"
    if operator not in _KERNELS:
        return f"the kernel of the {parent.op_type} around it reads the outputs of its bodies in host memory"
    return None


def is_control(node: ShownNode) -> bool:
    """Whether ONNX Runtime has a kernel of a node for providers of accelerators."""
    return (node.domain, node.op_type) in _KERNELS


def host_inputs(node: ShownNode) -> int:
    """Returns how many leading inputs the kernel of a node reads on the host."""
    return _KERNELS[node.domain, node.op_type]


def refusal_of_rows(node: ShownNode) -> str | None:
    """Returns why ONNX Runtime's kernel of a control-flow node could not split or join its rows on a device, or None."""
    if node.op_type == "Loop" and (name := _first_below_a_byte(node)):
        return f"a Loop runs on the CPU if its elements are smaller than a byte, such as those of {name!r}"
    if node.op_type == "Scan" and any(it is not None and it.code in COMPLEX for it in (*node.inputs, *node.outputs)):
        return "a Scan of complex numbers runs on the CPU"
    if node.op_type == "Scan" and (name := _first_with_partial_words(node)):
        return f"a Scan runs on the CPU if its rows are not whole 32-bit words, such as those of {name!r}"
    return None


def _first_below_a_byte(node: ShownNode) -> str | None:
    """Returns the name of the first output of a Loop with elements of less than a byte, or None.

    The Loop concatenates the results of its iterations, which then could share bytes.
    """
    values = [value for value in node.outputs if value is not None]
    return next((it.name for it in values if BITS.get(it.code or 0, BYTE) % BYTE), None)


def _first_with_partial_words(node: ShownNode) -> str | None:
    """Returns the name of the first value of a Scan with rows that are no whole words of memory, or None.

    Copies on the device start and end at whole words. The kernel passes rows as parts of the value's memory; it transposes the
    value first if the rows are along another axis than the first.
    """
    (rows,) = (int(it.value) for it in node.attributes if it.name == "num_scan_inputs")
    states = len(node.inputs) - rows
    for values, name in ((node.inputs[states:], "scan_input_axes"), (node.outputs[states:], "scan_output_axes")):
        given = next((it.value for it in node.attributes if it.name == name), ())
        axes = [*given, *[0] * len(values)]
        for value, axis in zip(values, axes, strict=False):
            if value is None:
                continue
            bits, shape = BITS.get(value.code or 0, 0), value.shape
            if bits % WORD and (shape is None or not _has_whole_words(bits, _without_axis(shape, axis))):
                return value.name
    return None


def _without_axis(shape: Sequence[Extent], axis: int) -> Sequence[Extent]:
    """Returns the shape of the rows along an axis."""
    place = axis % len(shape) if shape else 0
    return (*shape[:place], *shape[place + 1 :])


def _has_whole_words(bits: int, row: Sequence[Extent]) -> bool:
    return math.prod(extent for extent in row if isinstance(extent, int)) * bits % WORD == 0


def control_outcome(
    ort: Ort, node: ShownNode, provider: str, has_kernel: Callable[[Any], bool], captured: bool
) -> OwnKernel | Elsewhere:
    """Returns the outcome of a control-flow node, after those of its bodies. `captured`: the session captures its runs."""
    if captured:
        return Elsewhere("a captured run would repeat the branches and iterations of the run that was captured")
    if refusal := refusal_of_rows(node):
        return Elsewhere(refusal)
    if not has_kernel(node.handle):
        batched = node.op_type == "Scan" and node.version < 9
        why = (
            "a Scan has opset 8: ONNX Runtime has a kernel from opset 9"
            if batched
            else "one of its values is not a tensor"
        )
        return Elsewhere(f"control flow runs on the CPU if {why}")
    if not runs_within(ort, node.handle, provider):
        return Elsewhere("control flow runs on the CPU if nothing in its bodies runs here")
    return OwnKernel(node.op_type)


def runs_within(ort: Ort, node: Any, provider: str) -> bool:
    """Whether this provider holds an OrtNode in the bodies of an OrtNode."""
    api, count = ort.api, ort.get(ort.api.Node_GetNumSubgraphs, node, "size_t")
    bodies = ffi.new("const OrtGraph *[]", count)
    ort.check_status(api.Node_GetSubgraphs(node, bodies, count, ffi.NULL))
    return any(
        text(ort.get(api.Node_GetEpName, inner, "const char *")) == provider or runs_within(ort, inner, provider)
        for body in bodies
        for inner in ort.list(api.Graph_GetNumNodes, api.Graph_GetNodes, body, "const OrtNode *")
    )
