"""The subcommands of `wgpu-ep`, one per file: `info`, `run`, `profile`, `explain`, `verify`, `export`, `tune`, `chat`,
`options`, `cache`, `bench`, `doctor`, `completion`. See `cli.py`.

`_output` prints for all of them. A tool imports slow modules (onnx, wgpu, onnxruntime) inside its functions, so that help and
other tools stay fast.
"""
