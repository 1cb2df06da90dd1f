"""A Program on a device.

* `executable` (weights, runs), `inputs` (what they must be), `binder` (what dispatches bind for callers' tensors).
* `planning` (which plan a run has), `plans` (which are kept), `pipelines` (compiled when), `plan` (a layout on the device:
  `planned` dispatches) with `temps`, `uniforms` and `checks`.
* `runs` (which are kept: recorded, repeated, captured, growing), `stepwise` (looking at every dispatch), `inspect` (at every
  value), `describe` (for profiles).
* `weight_sources` and `weight_file` (where weights can be read again), `external_path` (which files they may lie in),
  `model_files` (all that a model has), `read_ahead` (which are read in advance), `product_types` (of which type the weights of a
  model are) with `protobuf`.
* `making` (a session: what takes how long), `progress` (how far that is), `settings`.
"""
