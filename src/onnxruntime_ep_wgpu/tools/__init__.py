"""The subcommands of `wgpu-ep`, one per file; `_output` prints for all of them. See `cli.py`.

A tool imports what is slow (onnx, wgpu, onnxruntime) inside its functions, so that help and other tools stay quick.
"""
