"""WGSL from fused groups.

`kernel_text` makes one of a group, and `alike` one for all groups that differ in names and weights: `calls` its text with a
template and `maps` that without, in `transposed` through a tile. Both write with `writer` (memory, bindings, the module) through
the accessors of `accessor`, about a `position`, over `storage` (elements narrower than a word) and `packed_runs` (of weights).
`expression` writes the expressions of maps, by the operations of `scalar`; a `value` is typed text; `uniforms` are dims in texts.
`prelude` puts the functions of `wgsl/prelude/` into the kernels that use them, with one return each by `branches`.
"""
