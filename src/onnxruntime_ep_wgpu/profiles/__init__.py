"""Profiles for people: in the order data flows `events` (a profile, from ONNX Runtime's JSON or from spans), `tables` (time
by operator, kernel and dispatch), `page` (one HTML file, of page.html, page.css and
page.js in the shell of `document`, which drawings have too) and `perfetto` (a trace
that Perfetto and chrome://tracing open). Nothing here needs onnxruntime or a GPU.
"""
