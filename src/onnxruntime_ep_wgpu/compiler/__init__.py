"""ONNX graph to Program; touches no device.

In the order data flows: `compile` (the list of stages), `fold` and `expand` (of the
ONNX graph), `lower` (a graph to the lowered graph, `ir/`, over `dims/`) with `lower_node`, whose operands are `graph_inputs`,
`weights` and what nodes made (`operand`, and `structures` of sequences), `malformed` (whose fault it is that a node cannot be
lowered) and `inference/` (types and shapes of what is not lowered); `ops/`, which append to a `builder`, with `requirements` and
`messages`; `channels` and `memory_format` (images whose channels are last); `kernels` (which groups of nodes are kernels) after
`passes/` and `rewrite/`; `codegen/` with `wgsl/`, `tune/` (which algorithm and tile).

What several of these make: `joins` and `pads` (as maps) over `coordinates`, `flash` (attention), `row_kernels` (kernels
over rows). What does not fit: `binding_ranges` (tensors larger than a binding), `divide` (nodes with too many of them), `limits`
(of memory), `tied` (constants that are one in memory), `facts` (which constants were looked at).
"""

from ..lazily import OF_ONNX_IR, executed_when_used

with executed_when_used(*OF_ONNX_IR):
    import onnx_ir as onnx_ir  # before all modules of this folder
