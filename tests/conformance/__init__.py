"""The ONNX backend node suite through stock onnxruntime with a provider library.

Files, in the order data flows: cases (the suite, read once and cached), worker (one process, some cases, a line of JSON
each), batches (many processes; an abort costs one batch, which is then taken apart), compare (what counts as right),
scope (operators that must run on WebGPU), table (`python -m tests.conformance.table` writes docs/conformance.md), suites
(cases of another suite, from a folder), suite_table (`python -m tests.conformance.suite_table` writes their part of the page),
page (the parts of that page).
"""
