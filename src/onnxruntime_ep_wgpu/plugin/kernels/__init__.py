"""Kernels for nodes that ONNX Runtime runs itself.

`registry` adds kernels to the registry of a session. `memcpy` copies between host and device. `control` has If, Loop and Scan,
which pass device tensors to their bodies. `transposer` permutes axes for a Scan.
"""
