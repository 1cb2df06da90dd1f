"""Rewrites, one per file, in the order a graph meets them: fold and expand (ONNX), dead and fuse (lowered graph)."""
