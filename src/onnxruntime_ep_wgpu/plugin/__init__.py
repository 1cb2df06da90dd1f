"""The ONNX Runtime side, in the order in which ONNX Runtime meets it.

`entry` (the two functions it looks up), `factory` (devices, sessions), `provider` (one per session: which nodes, which
kernels), `partition` (nodes into groups), `compute` (one per compiled group), `memory` (device addresses), `transfer`
(copies between host and device), `abi` (the C interface), `backend` (the only way to the compiler and the device layer),
`watch` (what the Python interface learns about sessions).
"""
