"""Nodes that ONNX Runtime runs with kernels of our registry: `control`, If and Loop, which hand device tensors to their bodies."""
