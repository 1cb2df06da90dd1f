"""Types and shapes of the results of nodes that are not lowered. Without a known rank, no node after them could run here.

- `value_info`: the known type and shape of a tensor.
- `nodes`: the results of a node.
- `contrib`, `ml`: tables of patterns for ONNX Runtime's operators and ONNX's `ai.onnx.ml`, in the notation of `pattern`.
- `standard`: ONNX's own inference (`onnx_inference`) for all other operators.
- `bodies`: If, Loop and Scan, from the results of their bodies.
"""
