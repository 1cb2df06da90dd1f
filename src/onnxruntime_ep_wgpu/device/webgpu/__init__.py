"""The door to WebGPU libraries: everything that differs between them is behind `api.Library`.

`header` (types, numbers and strings of webgpu.h, which all libraries share), `messages` (errors, by the thread whose call caused
them), `callbacks` (what libraries call in Python), `owned` (native objects that Python owns), `api` (the protocol), `wgpu_native`
and `dawn` (the two implementations), `libraries` (a library by its name, and which one a
session takes).
"""
