"""The ONNX Runtime side, in the order of ONNX Runtime's calls.

* `entry` (the two functions that ONNX Runtime looks up), `factory` (devices, sessions), `provider` (callbacks, one object per
  session).
* `session` (its device and compiled groups) with `sources` and `settings` (its options), `device_choice` (its adapter), and
  `preparation` (work for the session while ONNX Runtime reads the model).
* `deciding` (which nodes run where) with `assign/` (which nodes form which groups).
* `cached_compiler` (claims and Programs): from `store/` (results of earlier processes), from `context/` (compiled models), or
  from `compiling` (the compiler). The compiler receives graphs that are `prepared`.
* `group` (a compiled group on any device) with `specialise` (compiles again for sizes beyond a limit) and `recompiling` (the
  same for a stored group).
* `node` (one per compiled group), `data_sized` (for results with sizes that data decides), `node_choice` (selects one of
  these two).
* `tensors` (places of a run's tensors), `known_tensors` (tensors of earlier runs), `memo` (runs that C code repeats),
  `chained` (several of them in one submission).
* `captures` (graph capture), `tools` (tools around groups).
* `memory/` and `allocator` (device addresses, copies between host and device), `without_python` (what the C code needs for the
  same work), `profiler`.
* `search/` (nodes that generate text, with their decoders), `loops/` (Loops with all of their iterations), `step_memory` (for
  runs in steps), `kernels/` (copies and control flow).
* `abi` (the C interface) with `callbacks` (objects that ONNX Runtime holds, and Ctrl-C during a call).
* `collector` (pauses garbage collection), `forked_sessions` (the end of forked processes), `watch` (session data for the Python
  interface).

Only `compiling` and its own imports load the compiler; `search/last_row` prepares a graph for it.
"""
