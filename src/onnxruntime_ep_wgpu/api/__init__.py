"""What Python users call: `sessions`, `free_dimensions` (fixing dimensions of inputs), `reports` (what runs where), `sharing`
(devices and tensors with wgpu-py), `verify` and its judge `exact`."""
