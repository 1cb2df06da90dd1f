"""Nodes that ONNX Runtime runs with kernels of our registry: `control` has If, Loop and Scan, which hand their bodies device
tensors."""
