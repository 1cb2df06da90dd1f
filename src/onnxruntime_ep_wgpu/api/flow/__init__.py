"""Compiles a graph that needs several Programs into a Flow of them (`program/flow.py`), for hosts without ONNX Runtime.

- `rewritten` and `scans` reduce the model to the constructs of a Flow.
- `division` divides a graph into groups and control-flow nodes.
- `pieces` compiles a group into Programs: one for the host, and one with kernels.
- `compiled` makes the Flow, from its end to its beginning.
- `assembled` replaces names by numbers.
"""
