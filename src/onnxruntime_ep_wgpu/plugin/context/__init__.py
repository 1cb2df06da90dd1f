"""Compiled models. Their groups are EPContext nodes; a context has a Program, its graph, and the places of weights in files.

- `options`: the context options in a session's configuration; `ep_contexts`: the contexts that a session writes or opens.
- `content`: a context as bytes; `graphs`: a group's graph as JSON; `references`: weights by reference into files.
- `build_key`: adapter, options and version of a context; `compatible`: whether an adapter suits them.
- `made_here`: whether this user made a context; `shared`: weights that several sessions share.
- `nodes`: the EPContext node, to and from ONNX Runtime; `in_file`: the same node in a model's file.
- `bodies`: whether ONNX Runtime can write a body; `body_entries`: claims and Programs for bodies, with nodes in
  `canonical_order`.
- Compiled models that `session()` caches: `keeping` makes one, `one_node` is its file, `kept_model` its cache entry.
"""
