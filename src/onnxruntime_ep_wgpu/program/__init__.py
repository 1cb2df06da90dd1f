"""The format that every host reads: `program` (the dataclasses, save and load), `postfix` (expressions over dims, evaluated),
`dtypes` (element types and how they lie in memory), `target` (what a Program is made for).

Imports nothing of this package but `errors`, and numpy.
"""
