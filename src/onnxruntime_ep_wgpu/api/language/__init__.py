"""Text from exported decoder models, with caches and sampling on the GPU: a step downloads one id per sequence.

`folder` finds the files of a model, `text` turns text into ids and back, `memory` has tensors on the model's adapter,
`decoder` runs the model on its caches, `sampler` picks the next ids on the device, `generate` puts them together.
"""
