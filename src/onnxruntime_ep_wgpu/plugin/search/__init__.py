"""Operators that generate text: a decoder runs step by step as a body, and the operator chooses the next token.

- `operators`: the contents of a node; `bodies`: its decoder and encoder as graphs to compile.
- `decide`: whether they can run here; `compile`: the compiled node.
- `parameters`: the inputs of a run; `generate`: its loop.
- `steps`: runs of compiled bodies; `decoders`: the inputs of a body in each step.
- `scores`, `beams` and `sampling`: which tokens come next.
- `node`: the node that ONNX Runtime calls.
"""
