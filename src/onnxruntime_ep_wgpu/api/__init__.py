"""What Python users call: `session`, made by `sessions`, on `devices` with their `binding`, `kept` (compiled models
of the cache, instead of models), `arguments` (what is passed where something else belongs), `nowhere` (nodes that no
provider runs), `unwritten` (compiled models that ONNX Runtime cannot write), `smoke` (a small run that is checked),
`free_dimensions` (fixing dimensions of inputs), `reports` (what runs where), `explaining` (the same as a drawing),
`profiling` (where the time goes), `warmup` (compiling for sizes before they come), `sharing` (devices and tensors
with wgpu-py), `verify` and its judge `exact`, with `outputs`, `differences` and `stand_in` (how far the outputs of
the model are from those of the CPU provider), `benchmark`, `tuning` with its `tuning_classes` (which forms of kernels
are fastest), `language/` (text from language models), `web_export` with `flow/` (graphs that take several Programs),
`web_files`, `web_programs` and `constants` (what is calculated of them), `precision` (with `halves`, `external_data`,
`model_file` and `folder_files`), `original` (the ONNX model beside an export), `overwriting` (what an export may
replace) and `transformers_export` (models for browsers).
"""
