"""WGSL as it is in files, before it is generated code: what kernels and bodies of maps declare.

`files` reads `emit/wgsl/`; `preprocess` carries out directives, and `inline` writes small functions out where they are called;
`functions` are those of the prelude, with their types.
"""
