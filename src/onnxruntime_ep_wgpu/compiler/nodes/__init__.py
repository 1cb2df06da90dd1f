"""Makes nodes of the lowered graph for several stages: operators, rules and passes.

- `flash`: attention as calls.
- `row_kernels`: kernels over rows.
- `joins`, `pads`: as maps or in memory, over `coordinates`.
- `divide`: splits nodes that need more bindings than the target has.
"""
