"""A graph that one Program cannot run, as a Flow of several (`program/flow.py`), for hosts that have no ONNX Runtime.

`rewritten` and `scans` (the model in the few words that a Flow has), `division` (a graph into groups and nodes with bodies),
`pieces` (a group as Programs: what a host calculates, and what kernels do), `compiled` (the Flow, from its end to its beginning),
`assembled` (numbers for its names).
"""
