"""The ONNX Runtime side, in the order in which ONNX Runtime meets it.

* `entry` (the two functions it looks up), `factory` (devices, sessions), `provider` (one per session: its callbacks).
* `session` (its device and compiled groups) with `sources` and `settings` (its options), `device_choice` (its adapter), `ahead`
  (what is done for it while ONNX Runtime reads the model).
* `deciding` (what runs where) with `assign/` (which nodes, in which groups).
* `cached_compiler` (claims and Programs), from `store/` (what earlier processes compiled), from `context/` (compiled models), or
  from `compiling` (the compiler), which gets graphs that are `prepared`.
* `group` (one as it runs, on any device) with `specialise` (for sizes beyond a limit) and `again` (of a stored one).
* `node` (one per compiled group), `sized` (one with sizes that data decides), `fused` (which of the two).
* `tensors` (where those of a run lie), `known` (those of earlier runs), `memo` (runs that C code repeats), `chained`
  (several at once), `captures`, and `wrap` (tools around groups).
* `memory/` and `allocator` (device addresses, copies between host and device), `without_python` (what C code gets to do the
  same), `profiler`.
* `search/` (nodes that generate text, with their decoders), `loops/` (Loops with all of their iterations), `step_memory` (of runs
  that go in steps), `kernels/` (copies and control flow).
* `abi` (the C interface) with `callbacks` (objects that it holds, and Ctrl-C during a call), `collector` (no garbage collection
  during one), `forked` (processes that end), `watch` (what the Python interface learns about sessions).

Only `compiling`, and what it uses, imports the compiler; `search/last_row` prepares a graph for it.
"""
