"""The ONNX Runtime side, in the order in which ONNX Runtime meets it.

`entry` (the two functions it looks up), `factory` (devices, sessions), `provider` (one per session: its callbacks),
`session` (what it runs where) with `sources` and `settings` (its options), `device_choice` (its adapter),
`ahead` (its device, meanwhile) and `assign/`
(which nodes, in which groups), `answers` (from `store/`, what earlier processes compiled, from `context/`, compiled models,
or `compiling`, which does it now, of graphs that are `prepared` for it), `group` (one as it runs, on any device) with
`specialise` (for sizes beyond a limit) and `again` (of a stored one),
`node` (one per compiled group), `sized` (one with sizes that data decides), `fused` (which of them) with `tensors` (where those
of a run lie) and
`known` (those of earlier runs), `memo` (its runs that C repeats), `captures` and `wrap` (tools around groups), `memory/` and
`allocator` (device addresses, copies between host and device), `without_python` (what C code is told that does any of this
itself), `profiler`; `search/` (nodes that generate text, with their decoders), `loops/` (Loops with all of their
iterations) and `step_memory` (of runs that go in steps), `kernels/` (copies and control flow);
`abi` (the C interface) with `callbacks` (objects that it holds, and Ctrl-C meanwhile), `collector` (no
garbage is looked for meanwhile), `forked` (processes that end), `watch` (what the Python interface learns about
sessions). Only `compiling`, and what it uses, imports the compiler; `search/last_row` prepares a graph for it.
"""
