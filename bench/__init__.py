"""Measurements: `python -m bench.compare` (this provider, the official plugin and the CPU provider side by side),
`python -m bench.verify_zoo` (every value of every model against the CPU provider), kernels and the device layer alone.

Files of `compare`, in the order data flows:

- models: the models to run and their inputs
- process: runs one job in its own process
- worker: makes one measurement
- gpu_time: seconds on the GPU alone
- compare: rounds and medians
- ratios: the summary
- show: tables and a chart

Others:

- verify_zoo: every value of every model against the CPU provider
- generate, decode: language models, and the parts of a token's time
- kernels, rows, quantised: matrix products of any size, of few rows, and with packed weights
- device_layer: the device layer alone
- numbers, truth, fits: errors of pointwise operators, their f64 references, and their polynomials
- web, export_sizes: the web runtime beside onnxruntime-web in Chromium, and the sizes of its models
- scale, scale_ray: requests per second of several sessions, and rows per second of several actors

Invariant: every number that is shown is also in the JSON beside it.
"""
