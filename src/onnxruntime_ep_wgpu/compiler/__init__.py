"""ONNX graph to Program; touches no device.

In the order data flows: `compile` (the list of stages); `graph/` (the ONNX graph: constants, functions, types), `lower/` (to the
lowered graph, `ir/` over `dims/`) with what operators and rules make alike (`nodes/`); `kernels` (which groups of nodes are
kernels) after `passes/` and `rewrite/`; `tune/` (which algorithm and tile) and `emit/` (WGSL).

Imports point one way: `compile`, `emit/`, `lower/`, `kernels`, `rewrite/`, `passes/`, `nodes/`, `graph/`, `tune/`, `ir/`, `dims/`,
`templates/` (what files of WGSL declare).
"""

from ..lazily import OF_ONNX_IR, executed_when_used

with executed_when_used(*OF_ONNX_IR):
    import onnx_ir as onnx_ir  # before all modules of this folder
