"""Nodes of the lowered graph that several stages make: operators, rules and passes.

`flash` (attention as calls) and `row_kernels` (kernels over rows); `joins` and `pads` (as maps, or in memory) over
`coordinates`; `divide` (nodes that need more bindings than there are, as several nodes).
"""
