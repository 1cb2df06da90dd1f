"""Device memory for ONNX Runtime, which uses it by address.

- `space`: addresses to ranges; `allocation`: the contents of a range; `pool`: ranges that are reused without Python.
- `copies`: copies between pointers; `transfer`: those that ONNX Runtime requests.
- `descriptors`: ONNX Runtime's descriptions of tensors.
"""
