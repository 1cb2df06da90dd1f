"""Loops with a body of one group: `body` (what the body makes, and of what), `decide` (which Loops those are), `unrolled`
(iterations as nodes of the graph around), `compile` (a Program for the body), `joined`, `steady` and `rounds` (the
iterations of a run), `node` (the node as ONNX Runtime calls it)."""
