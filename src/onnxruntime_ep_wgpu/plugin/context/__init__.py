"""Compiled models: their groups are EPContext nodes, which have a Program, its graph, and where in the model's files weights
are.

`asked` (what a session's configuration says of contexts), `made_for` (for which adapter, options and version one was made),
`compatible` (whether it suits an adapter), `graphs` (a group's graph as JSON), `referred` (weights by reference into files
beside the compiled model), `content` (a context as bytes and back), `own` (which of them this user made), `shared` (weights of
several sessions), `bodies` (of control flow, which ONNX Runtime writes), `carried` (what their groups are compiled to) in
`one_order`, `nodes` (the EPContext node, to ONNX Runtime and from it), `in_file` (the same in the file of a model), `ep_contexts`
(what a session writes, and what it opens). Of those that the cache keeps for `session()`: `keeping` (what a session leaves for
one), `one_node` (its file), `kept_model` (its entry, and when that is used).
"""
