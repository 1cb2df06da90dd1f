"""A Program on a device: `executable` (weights, runs), `inputs` (what they must be), `plans` (which are kept), `pipelines`
(compiled when), `plan` (a layout on the device: `planned` dispatches) with `temps`, `uniforms` and `checks`, `runs` (which
are kept: recorded, repeated, captured, growing), `stepwise` (looking at every dispatch), `inspect` (at every value),
`describe` (for profiles), `weight_sources` and `weight_file` (where weights can be read again), `external_path` (and which
files they may lie in), `model_files` (all that a model has), `read_ahead` (which are read meanwhile), `product_types` (of
which type the weights of a model are) with `protobuf`, `making` (a session: what takes how long) and `progress` (how far
that is), `rehearsal` (runs that nothing remembers), `settings`."""
