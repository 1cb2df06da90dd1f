"""Compiles an ONNX graph to a Program. Touches no device.

The stages, in the order data flows:

- `compile`: the list of stages.
- `graph/`: the ONNX graph with its constants, functions and types.
- `lower/`: lowers it to `ir/` with sizes in `dims/`; `nodes/` makes the nodes that operators and rules share.
- `kernels`: which groups of nodes become kernels, after `passes/` and `rewrite/`.
- `tune/`: which algorithm and tile a kernel uses.
- `emit/`: the WGSL.

Imports point one way: `compile`, `emit/`, `lower/`, `kernels`, `rewrite/`, `passes/`, `nodes/`, `graph/`, `tune/`, `ir/`,
`dims/`, `templates/` (reads the declarations of WGSL files).
"""

from ..lazily import OF_ONNX_IR, lazy_imports

with lazy_imports(*OF_ONNX_IR):
    import onnx_ir as onnx_ir  # before all modules of this folder
