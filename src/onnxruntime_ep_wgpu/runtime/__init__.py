"""A Program on a device: `recovery` (on the next one after a loss), `executable` (weights, plans, runs), `plan` (one set of input
shapes) with `temps`, `uniforms` and `checks`, `replay` (captures), `stepwise` (looking at every dispatch), `describe` (for
profiles), `weights` and `weight_file` (where weights can be read again), `settings`."""
