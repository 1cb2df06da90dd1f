"""Measurements: `python -m bench.compare` (this provider, the official plugin and the CPU provider side by side),
`python -m bench.verify_zoo` (every value of every model against the CPU provider), kernels and the device layer alone.

Files, in the order data flows: models (what to run, on which inputs), process (one job, one process), worker (one
measurement), gpu_time (seconds on the GPU alone), compare (rounds, medians), ratios (summary), show (tables, chart);
verify_zoo; generate and decode (language models, and where the time of a token goes); kernels, rows and quantised (products:
of any size, of few rows, by packed weights) and device_layer; numbers (errors of pointwise operators), truth (what they are
in f64) and fits (their polynomials); web (the web runtime beside onnxruntime-web, in Chromium) and export_sizes (bytes of its
models); scale and scale_ray (requests per second of several sessions, rows per second of several actors). Invariant: a number
that is shown can be read back from the JSON beside it.
"""
