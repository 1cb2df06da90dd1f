"""Draws compiled groups as HTML. Needs neither onnxruntime nor a GPU.

`boxes` turns a Program's dispatches and tensors into boxes and lines, `layers` computes the layout, and `page` makes one HTML
file with page.css and page.js.
"""
