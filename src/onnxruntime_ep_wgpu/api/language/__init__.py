"""Text generation with exported decoder models. KV caches and sampling stay on the GPU: a step downloads one id per sequence.

- Model files: `folder` finds them, `model_file` reads graph and weights.
- Graph changes: `last_row` removes unused logits. `kept_rows` keeps KV caches at a constant length if the mask covers the
  padding, which `mask_reach` derives from the nodes and `mask_trial` tests. `mask_length` decides how long other masks may be.
- Text: `text` tokenizes, and formats chats with a `template` within a `template_budget`.
- Runs: `memory` allocates tensors on the model's adapter and binds runs to them. `decoder` is the model, `state` its KV caches,
  and `spare_caches` keeps those of an ended text for the next one.
- Sampling: `sampler` is a small model that picks the next ids, and `picker` runs it after each step.
- `arguments` validates the caller's arguments, and `generate` is the public API.
"""
