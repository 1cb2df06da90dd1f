"""Generates WGSL from fused groups.

- `kernel_text`: the text of a group's kernel; `alike`: one text for groups that differ only in names and weights.
- `calls`: a kernel with a template; `maps`: a kernel of maps, in `transposed` through a tile.
- `writer`: memory, bindings and the module; `uniforms`: dims in texts.
- `accessor`: reads and computes elements, over `position`, `storage` (elements narrower than a word) and `packed_runs` (weights).
- `expression`: the expressions of maps, with the operations of `scalar`; `value`: typed text.
- `prelude`: adds the functions of `wgsl/prelude/` that a kernel uses; `branches`: gives each a single return.
- `reached`: leaves out of a page's module what its kernel does not reach.
"""
