"""Profiles and their display. Needs neither onnxruntime nor a GPU.

Files, in the order data flows:

- `events`: a profile, from ONNX Runtime's JSON or from spans
- `tables`: time by operator, kernel and dispatch
- `page`: a self-contained HTML file from page.html, page.css and page.js, in the shell of `document`, which drawings use too
- `perfetto`: a trace for Perfetto and chrome://tracing
"""
