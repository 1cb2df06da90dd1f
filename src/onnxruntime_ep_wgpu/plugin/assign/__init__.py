"""Which nodes we take: `graph` (what ONNX Runtime shows, in onnx_ir), `enclosing` (whether nodes of a body may run here),
`external` (which files it reads weights from), `types` (types and ranks that ONNX Runtime does not know), `subgraph` (a group cut
out of it), `partition` (convex groups), `outcome` (what becomes of a node), `claim` (the decision), `lowerings` (what was lowered
for it), `forced` (nodes the user keeps away), `crossings` (outputs that must not lie in inputs), `report` and `placement` (what
people are told), `ort_format` (the check for models without copies between providers).
"""

from ...lazily import OF_ONNX_IR, executed_when_used

with executed_when_used(*OF_ONNX_IR):
    import onnx_ir as onnx_ir  # before all modules of this folder
