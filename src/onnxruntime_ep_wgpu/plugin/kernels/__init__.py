"""Nodes that ONNX Runtime runs with kernels of our `registry`: `memcpy` copies between host and device, `control` has If, Loop and
Scan, which hand their bodies device tensors; `transposer` permutes the axes of what a Scan takes apart."""
