"""Text from exported decoder models, with caches and sampling on the GPU: a step downloads one id per sequence.

`folder` finds the files of a model, `model_file` its graph and weights; `last_row` cuts logits that are not read, `kept_rows`
keeps the caches of models at one length whose mask reaches them (`mask_reach`, `mask_trial`); `text` turns text into ids and
back, and a conversation into text by its `template`, within a `template_budget`, `memory` has tensors on the model's adapter and
runs with them, `decoder` runs the model on its caches, which `state` holds, `arguments` checks what users give, `sampler` picks the
next ids on the device, `picker` does so behind each step, `generate` puts them together.
"""
