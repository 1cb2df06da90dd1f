"""Loops with a body of one group, which run here with all of their iterations.

- `body`: the role of the body's inputs and outputs; `decide`: which Loops these are.
- `unrolled`: iterations as nodes of the surrounding graph.
- `compile`: a Program for the body; `node`: the node that ONNX Runtime calls.
- `iterations`, `steady` and `joined`: the iterations of a run.
"""
