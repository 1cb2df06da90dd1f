"""The Python API.

- Sessions: `session` calls `sessions`, on `devices`, with their `binding`. `kept` uses compiled models from the cache;
  `ahead` opens the device for them first.
  `arguments` validates arguments. `free_dimensions` fixes input dimensions. `smoke` checks a small run.
- Errors of ONNX Runtime made clear: `nowhere` (nodes that no provider runs), `unwritten` (compiled models that ONNX Runtime
  cannot write).
- Inspection: `reports` (the provider of each node), `explaining` (the same as a drawing), `profiling` (run times), `benchmark`.
- Preparation: `warmup` (compiling for sizes in advance), `tuning` with `tuning_classes` (the fastest forms of kernels).
- Interoperability: `sharing` (devices and tensors of wgpu-py), `language/` (text generation).
- Accuracy: `verify` compares with the CPU provider. It uses `exact` (float64), `outputs`, `differences` and `stand_in`.
- Export for browsers: `web_export` with `flow/` (graphs of several Programs), `web_files` and `web_programs`. `constants`
  folds constant subgraphs, `precision` with `halves` converts numbers. `original` keeps the ONNX model beside an export,
  `overwriting` checks existing files, and `transformers_export` exports folders of transformers.js.
- Input files: `model_file`, `external_data` and `folder_files`.
"""
