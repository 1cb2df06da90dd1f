"""The format that every host reads, and what a host does with it before it needs a device: `program` (the dataclasses), `flow`
(several Programs of one graph, and what decides between them), `file` (save and load) with `reading` (what a file may say)
and `consistency` (what fits each other), `weights` (as memory), `axes` (names of what lies in another order), `postfix`
(expressions over dims, evaluated), `layout` (everything that depends on shapes, as numbers) with `slots` (of intermediate memory)
and `series` (of sizes that grow), `dtypes` (element types and how they lie in memory), `target` (what a Program is made for) with
`tuning` (its choices for kernels) and `settings` (what else a session asks of the compiler), `ties` (constants that are one in
memory), `drawing` (operators of random numbers).

Imports nothing of this package but `errors`, `fields`, `records` and `writing`, and numpy.
"""
