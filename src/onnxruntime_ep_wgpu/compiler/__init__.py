"""ONNX graph to Program; touches no device.

In the order data flows: `compile` (the list of stages), `fold` and `expand` (of the ONNX graph), `lower` with `builder`, `operand`
and `ops/` (to the lowered graph, `ir/`, over `dims/`), `passes/`, `codegen/` with `wgsl/`, `tune` (which algorithm
and tile).
"""
