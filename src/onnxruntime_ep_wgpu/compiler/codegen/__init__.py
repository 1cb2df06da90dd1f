"""WGSL from fused groups: scalar types and operations, expressions, accessors, whole kernels."""
