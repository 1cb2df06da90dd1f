"""Runs a Program on a device.

- `executable`: weights and runs; `inputs`: checks of the inputs; `binder`: bindings of the callers' tensors.
- `planning`: selects the plan of a run; `plans`: the kept plans; `pipelines`: when pipelines are compiled.
- `plan`: a layout on the device, as `planned` dispatches, with `temps`, `uniforms` and `checks`.
- `runs`: kept runs (recorded, repeated, captured, growing).
- `stepwise`: checks after every dispatch; `inspect`: access to every value; `describe`: descriptions for profiles.
- `weight_sources` and `weight_file`: how weights can be read again; `external_path`: which files they may be in.
- `model_files`: all files of a model; `read_ahead`: which are read in advance.
- `product_types`: the types of a model's weight matrices, with `protobuf`.
- `making`: the time of each part of making a session; `progress`: its progress; `settings`.
"""
