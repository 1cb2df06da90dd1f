"""The ONNX Runtime side, in the order in which ONNX Runtime meets it.

`entry` (the two functions it looks up), `factory` (devices, sessions), `provider` (one per session: its callbacks), `session`
(what it runs where) with `assign/` (which nodes, in which groups), `node` (one per compiled group) and `captures`, `memory/`
(device addresses, copies between host and device), `abi` (the C interface), `watch` (what the Python interface learns about
sessions). Before the first session nothing here imports the compiler.
"""
