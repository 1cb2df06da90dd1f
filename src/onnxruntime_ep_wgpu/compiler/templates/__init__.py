"""WGSL files before code generation: the declarations of kernels and of bodies of maps.

- `files`: reads `emit/wgsl/`.
- `preprocess`: executes directives.
- `inline`: inlines small functions into their callers.
- `functions`: the functions of the prelude and their types.
"""
