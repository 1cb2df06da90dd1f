"""Passes over the lowered graph, one per file, in the order a graph passes through them:

- `share`: merges equal maps.
- `apart`: gives each reader of weights its own calculation of them.
- `dead`: removes nodes without readers.
- `place`: decides how joins and pads are stored in memory.
- `alias`: finds outputs that begin as an input.
- `fuse`: groups nodes into kernels.
- `one_row/`: adds kernels for a single token.
- `unsplit`: adds kernels of attention for runs that do not split its keys.

`order` sorts nodes after the nodes they read. `cost` counts the work of a kernel.
"""
