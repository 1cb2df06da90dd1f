"""The format of compiled graphs, which every host reads, and the work of a host that needs no device.

- `program`: the dataclasses; `flow`: several Programs of one graph, with control flow between them.
- `file`: save and load; `reading`: checks of what a file contains; `consistency`: checks across tables.
- `weights`: weights as memory; `axes`: names of values with another order of axes.
- `postfix`: evaluates expressions over dims.
- `layout`: everything that depends on shapes, as numbers; `slots`: intermediate memory; `series`: sizes that grow.
- `dtypes`: element types and their memory layout.
- `target`: the adapter that a Program is made for; `tuning`: its choices for kernels; `settings`: other settings of the compiler.
- `compiled_for`: the fields of a compiled model's metadata.
- `ties`: constants that share memory; `drawing`: operators of random numbers.

Imports of this package only `errors`, `fields`, `records` and `writing`, and numpy.
"""
