"""The interface to WebGPU libraries. All differences between them are behind `api.Library`.

- `header`: types, constants and strings of webgpu.h, which all libraries share.
- `messages`: errors, by the thread of the call that caused them.
- `callbacks`: Python functions that libraries call.
- `owned`: native objects that Python owns.
- `api`: the protocol; `wgpu_native` and `dawn`: its two implementations.
- `libraries`: a library by its name, and the default library of sessions. No other module imports an implementation.
"""
