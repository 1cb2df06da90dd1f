"""Kept runs.

- `key`: the identity of a run, by its sizes, values and the places of its tensors.
- `record`: the recordings and bind groups of runs.
- `repeat`: repeated and captured runs.
- `growth`: sizes that grow from run to run.
"""
