"""Types and shapes of what nodes make that are not lowered: without a rank, nothing that reads it could run here.

`value_info` is what is known of a tensor; `nodes` asks what a node makes: the table of patterns for operators of ONNX Runtime and
of ONNX's `ai.onnx.ml` (`contrib`, `ml`, in the notation of `pattern`), else ONNX's own inference (`standard`, which asks
`onnx_inference`). `bodies` is about If, Loop and Scan, whose bodies say what they make.
"""
