"""Operators that generate text, whole: a decoder as a body, run step by step, and what chooses the next token.

`operators` (what a node says), `bodies` (its decoder and encoder as graphs to compile),
`decide` and `compile` (whether they can run here, and compiled), `parameters` (what a run asks), `steps` (runs of compiled
bodies), `decoders` (what a body reads in each step), `scores`, `beams` and `sampling` (which tokens come next), `generate` (the
loop), `node` (the node as ONNX Runtime calls it).
"""
