"""Compiled groups as drawings for people: `boxes` (what a Program's dispatches read and make, as boxes and lines), `layers` (where
boxes lie) and `page` (one HTML file, made of page.css and page.js). Nothing here needs onnxruntime or a GPU.
"""
