"""Which nodes we take: `graph` (reads what ONNX Runtime shows) as `shown` (data of our own), `converted` (the same in onnx_ir),
`enclosing` (whether nodes of a body may run here), `external` (which files it reads weights from), `types` (types and ranks
that ONNX Runtime does not know), `subgraph` (a group cut out of a graph), `editing` (changes of what is shown), `partition`
(convex groups), `outcome` (what becomes of a node), `inferred` (these types as plain data), `claim` (makes the `decision`),
`lowerings` (what was lowered for it), `forced` (nodes the user keeps away), `crossings` (outputs that must not lie in inputs),
`report` and `placement` (what people read), `ort_format` (the check for models without copies between providers).

Of these `claim`, `converted`, `lowerings`, `subgraph` and `types` load the compiler, and are loaded after it.
"""
